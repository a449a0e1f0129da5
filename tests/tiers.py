"""A plugin: which tests a run takes.

A test's tier follows from its markers: ``test`` without any, ``job`` if it starts Beam, an engine
or a server, ``part`` if it is dear, ``release`` if it is run only before a release; and a case that
took ``DEAR_SECONDS`` or more in a recorded run is a ``job``, too. A run takes the
tiers of ``--tiers``. Of the part it takes an eighth of the cases, which follows from the hash of
the tree, so that a commit always runs the same ones; and every audit that depends on a module that
has changed since the recorded run, the dearest last, up to ``CHANGED_SECONDS`` of recorded cost.
"""

import ast
import functools
import hashlib
import json
import pathlib
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDED_RUN = ROOT / "tests/recorded_run.json"
COSTS = ROOT / "tests/costs.json"
TIERS = ("test", "job", "part", "release")
NUM_PARTS = 8
DEAR_SECONDS = 0.15
CHANGED_SECONDS = 600.0
# Of a test that no recorded run knows.
UNKNOWN_SECONDS = 1.0
_CUT = pytest.StashKey[list[str]]()
_CHANGED = pytest.StashKey[list[str] | None]()
JOB_MARKERS = ("job", "engines", "wheel")
RELEASE_MARKERS = ("release", "faults", "site", "images", "benchmark")
# What changes the law of every mechanism.
COMMON_PACKAGES = ("beam_dp/privacy/",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tiers", default="test", help=f"of {', '.join(TIERS)}, or all")
    parser.addoption("--part", default="", help="which eighth of the part: 0 to 7, or all")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settles once what the worker processes of a run must agree on."""
    if hasattr(config, "workerinput"):
        config.option.part = config.workerinput["part"]
        config.stash[_CHANGED] = config.workerinput["changed_modules"]
        return
    tiers = chosen_tiers(config)
    if config.option.tiers == "all":
        config.option.part = config.option.part or "all"
    elif not {*tiers} <= {*TIERS}:
        raise pytest.UsageError(f"--tiers: must be of {', '.join(TIERS)}, or all")
    if config.option.part == "":
        config.option.part = str(part_of_tree())
    elif config.option.part not in ("all", *map(str, range(NUM_PARTS))):
        raise pytest.UsageError(f"--part: must be a number from 0 to {NUM_PARTS - 1}, or all")
    takes_part = "part" in tiers and config.option.part != "all"
    config.stash[_CHANGED] = changed_modules() if takes_part else []


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker process which part to take, and which modules have changed."""
    node.workerinput["part"] = node.config.option.part
    node.workerinput["changed_modules"] = node.config.stash[_CHANGED]


def pytest_report_header(config: pytest.Config) -> list[str]:
    if "part" not in chosen_tiers(config):
        return [f"tiers: {config.option.tiers}"]
    part, changed = config.option.part, config.stash[_CHANGED]
    what = "everything" if changed is None else f"{len(changed)} modules"
    since = "" if part == "all" else f"; {what} changed since the recorded run"
    return [f"tiers: {config.option.tiers}; part {part} of {NUM_PARTS}{since}"]


def chosen_tiers(config: pytest.Config) -> tuple[str, ...]:
    """The tiers that ``--tiers`` names."""
    return TIERS if config.option.tiers == "all" else tuple(config.option.tiers.split(","))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers, costs = chosen_tiers(config), recorded_costs()
    chosen, others = [], []
    for item in items:
        if tier_of(item) in tiers:
            (chosen if in_part(item, config.option.part) else others).append(item)
    others = [item for item in others if is_changed(item, config.stash[_CHANGED])]
    spent, cut = 0.0, []
    for item in sorted(others, key=lambda item: costs.get(item.nodeid, UNKNOWN_SECONDS)):
        spent += costs.get(item.nodeid, UNKNOWN_SECONDS)
        if spent <= CHANGED_SECONDS:
            chosen.append(item)
        else:
            cut.append(item.nodeid)
    config.stash[_CUT] = cut
    if hasattr(config, "workeroutput"):
        config.workeroutput["cut"] = cut
    taken = {*chosen}
    config.hook.pytest_deselected(items=[item for item in items if item not in taken])
    items[:] = dealt([item for item in items if item in taken], costs)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receives what a worker process did not run."""
    node.config.stash[_CUT] = getattr(node, "workeroutput", {}).get("cut", [])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    cut = config.stash.get(_CUT, [])
    if cut:
        terminalreporter.section("audits of changed modules left for `make test-release`")
        for name in cut:
            terminalreporter.write_line(name)


def tier_of(item: pytest.Item) -> str:
    if any(item.get_closest_marker(name) for name in RELEASE_MARKERS):
        return "release"
    if item.get_closest_marker("part"):
        return "part"
    if any(item.get_closest_marker(name) for name in JOB_MARKERS):
        return "job"
    return "job" if recorded_costs().get(item.nodeid, 0.0) >= DEAR_SECONDS else "test"


def in_part(item: pytest.Item, part: str) -> bool:
    if part == "all" or tier_of(item) != "part":
        return True
    return int.from_bytes(hashlib.sha256(item.nodeid.encode()).digest()[:4]) % NUM_PARTS == int(
        part
    )


def is_changed(item: pytest.Item, changed: list[str] | None) -> bool:
    """Whether a test is an audit of something that has changed; None: everything has."""
    marker = item.get_closest_marker("depends_on")
    if marker is None:
        return False
    return changed is None or any(
        module.startswith(COMMON_PACKAGES) or module in map(path_of, marker.args)
        for module in changed
    )


def path_of(module: str) -> str:
    return module.replace(".", "/") + ".py"


def dealt(items: list[pytest.Item], costs: Mapping[str, float]) -> list[pytest.Item]:
    """The dearest files first, in turn to both halves, with which two processes begin."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)

    def cost(of: list[pytest.Item]) -> float:
        return sum(costs.get(item.nodeid, 0.0) for item in of)

    ordered = sorted(files.values(), key=cost, reverse=True)
    return [item for half in (ordered[::2], ordered[1::2]) for file in half for item in file]


def recorded_costs() -> Mapping[str, float]:
    """The processor seconds of dear tests, by name, as recorded runs have measured them."""
    return read_costs(COSTS, COSTS.stat().st_mtime_ns) if COSTS.exists() else {}


@functools.cache
def read_costs(path: pathlib.Path, _: int) -> Mapping[str, float]:
    costs: dict[str, float] = json.loads(path.read_text("utf-8"))
    return costs


def part_of_tree() -> int:
    tree = git("rev-parse", "HEAD^{tree}")
    return int(tree[:4], 16) % NUM_PARTS if tree else 0


def changed_modules() -> list[str] | None:
    """Modules whose syntax tree, without imports, no module of the recorded commit had.

    So a move changes nothing. None without that commit, as in a shallow clone.
    """
    commit = json.loads(RECORDED_RUN.read_text("utf-8"))["commit"] if RECORDED_RUN.exists() else ""
    if not commit or git("cat-file", "-t", commit) != "commit":
        return None
    listed = git("ls-tree", "-r", "--name-only", commit, "beam_dp").splitlines()
    before = {fingerprint(git("show", f"{commit}:{path}")) for path in differing(commit, listed)}
    now = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "beam_dp").rglob("*.py"))]
    return [
        path
        for path in differing(commit, now)
        if fingerprint((ROOT / path).read_text("utf-8")) not in before
    ]


def differing(commit: str, paths: Iterable[str]) -> list[str]:
    """Those of the Python files that differ between a commit and the checkout."""
    changed = {*git("diff", "--name-only", "--no-renames", commit, "--", "beam_dp").splitlines()}
    changed |= {*git("ls-files", "--others", "--exclude-standard", "--", "beam_dp").splitlines()}
    return [path for path in paths if path in changed and path.endswith(".py")]


def fingerprint(source: str) -> str:
    """Of a module's syntax tree without its imports."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name, part in ast.iter_fields(node):
            if isinstance(part, list):
                kept = [each for each in part if not isinstance(each, ast.Import | ast.ImportFrom)]
                setattr(node, name, kept)
    return ast.dump(tree)


def git(*arguments: str) -> str:
    """What git says about this checkout; nothing where there is none."""
    run = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return run.stdout.strip() if run.returncode == 0 else ""
