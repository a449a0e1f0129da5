"""What `make dist` refuses to publish, the version that it publishes, and the locked ones."""

import importlib.metadata
import itertools
import pathlib
import re
import tarfile
import zipfile

import pytest
from interpreters import named_versions
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from source_imports import ROOT

from tools.distributions.checks import KERNEL, odd_in_sources, odd_in_wheel

EXTRAS = importlib.metadata.metadata("beam_dp").get_all("Provides-Extra") or ()
X86 = "beam_dp-0.1.0-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
ELF = {
    "x86_64": b"\x7fELF".ljust(18, b"\0") + b"\x3e\0",
    "aarch64": b"\x7fELF".ljust(18) + b"\xb7\0",
}
GOOD = {"beam_dp/a.py": b"1", "beam_dp/pipelines/b.py": b"2", "beam_dp-0.1.0.dist-info/WHEEL": b""}


@pytest.fixture
def commit(tmp_path) -> pathlib.Path:
    for name, content in {"beam_dp/a.py": "1", "pipelines/b.py": "2", "tests/c.py": "3"}.items():
        (tmp_path / "commit" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "commit" / name).write_text(content)
    return tmp_path / "commit"


def wheel(commit: pathlib.Path, name: str, files: dict[str, bytes]) -> pathlib.Path:
    with zipfile.ZipFile(commit.parent / name, "w") as opened:
        for inner, content in files.items():
            opened.writestr(inner, content)
    return commit.parent / name


def test_accepts_wheel_with_committed_files_and_kernel(commit):
    compiled = wheel(commit, X86, {"beam_dp/": b"", **GOOD, KERNEL: ELF["x86_64"]})
    assert odd_in_wheel(compiled, "x86_64", "2.17", commit) == []


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "not exactly one compiled file"),
        ({KERNEL: ELF["aarch64"]}, "its kernel is for aarch64"),
        ({KERNEL: b"nothing"}, "its kernel is for None"),
        ({KERNEL: ELF["x86_64"], "beam_dp/more.so": b""}, "beam_dp/more.so does not belong"),
        ({KERNEL: ELF["x86_64"], "tests/c.py": b"3"}, "tests/c.py does not belong"),
        ({KERNEL: ELF["x86_64"], "beam_dp/__pycache__/a.pyc": b"1"}, "a.pyc does not belong"),
        ({KERNEL: ELF["x86_64"], "beam_dp/a.py": b"4"}, "or is not as committed"),
        ({KERNEL: ELF["x86_64"], "beam_dp/x.dist-info/WHEEL": b""}, "does not belong"),
    ],
)
def test_rejects_wheel_with_unexpected_files(commit, files, told):
    odd = odd_in_wheel(wheel(commit, X86, {**GOOD, **files}), "x86_64", "2.17", commit)
    assert odd and all(line.startswith(X86) for line in odd)
    assert any(told in line for line in odd)


def test_rejects_wheel_tagged_for_another_platform(commit):
    compiled = wheel(commit, X86, {**GOOD, KERNEL: ELF["x86_64"]})
    assert odd_in_wheel(compiled, "x86_64", "2.28", commit)


def sources(commit: pathlib.Path, folder: str) -> pathlib.Path:
    archive = commit.parent / f"{folder}.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(commit / folder, f"beam_dp-0.1.0/{folder}")
    return archive


def test_source_distribution_has_committed_files_without_tests(commit):
    packed, tests = sources(commit, "beam_dp"), sources(commit, "tests")
    assert odd_in_sources(packed, commit) == []
    (odd,) = odd_in_sources(tests, commit)
    assert odd.startswith("tests.tar.gz: tests/c.py does not belong there")
    (commit / "beam_dp" / "a.py").write_text("other")
    assert odd_in_sources(packed, commit)


def test_constraints_cover_requirements_and_name_no_place():
    """Also what only some Pythons need: the versions are those of all that is supported."""
    lines = (ROOT / "tools" / "constraints.txt").read_text("utf-8").splitlines()
    pinned: dict[str, list[Requirement]] = {}
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[\w.!+]+( ; [^@/]+)?", line), line
        pinned.setdefault(line.partition("==")[0], []).append(Requirement(line))
    asked = [Requirement(line) for line in importlib.metadata.requires("beam_dp") or ()]
    assert len(asked) > 30
    for each, python in itertools.product(asked, named_versions()):
        where = {"python_version": python, "python_full_version": f"{python}.0"}
        extras = [{**where, "extra": name} for name in ("", *EXTRAS)]
        if each.marker is not None and not any(map(each.marker.evaluate, extras)):
            continue
        if each.name == "beam_dp":
            continue  # the extra `test` has others
        known = pinned[canonicalize_name(each.name)]
        (one,) = [line for line in known if line.marker is None or line.marker.evaluate(where)]
        assert each.specifier.contains(str(one.specifier)[2:]), (str(each), python)


def test_installed_versions_are_those_of_the_constraints_with_their_hashes():
    pinned = (ROOT / "tools" / "constraints.txt").read_text("utf-8").splitlines()
    with_hashes = (ROOT / "tools" / "requirements.txt").read_text("utf-8")
    stated = re.split(r" \\\n(?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", with_hashes)
    assert stated.pop() == "" and len(stated) > 100
    assert sorted({*stated} - {*pinned}) == []


def test_every_file_has_the_same_version():
    (version,) = re.findall(
        r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.M
    )
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    heading = "## [Unreleased]" if version.endswith(".dev0") else f"## [{version}] - 20"
    assert f"\n{heading}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
