"""The images, built without a daemon, and the services of compose.yaml, run with them."""

from __future__ import annotations

import datetime
import json
import pathlib
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from images.building import ROOT, TOOLS, Storage, arguments, missing, pinned, run
from images.composed import Composed
from packaging.utils import canonicalize_name
from patience import HANG_SECONDS, wait_for

pytestmark = pytest.mark.images
WORKER, DATAFLOW = "beam_dp", "beam_dp_dataflow"
# So that some windows of the horizon are over at once, and others minutes later: the release is
# stopped between them, also where workers take three minutes to start.
START_EARLIER = 6 * 60


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    """Both images, built; gone afterwards, with all containers."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="images-"))
    made = Storage(folder)
    try:
        made.build_stand_ins()
        # In this order: Buildah 1.28 mounts no stage that an earlier build has made.
        made.build(ROOT, DATAFLOW, "--target=dataflow", "--build-arg=PROGRAM=release_intervals")
        made.build(ROOT, WORKER)
        yield made
    finally:
        made.podman("rm", "--all", "--force", "--volumes", check=False)
        made.podman("rmi", "--all", "--force", check=False)
        shutil.rmtree(folder, ignore_errors=True)


def test_dockerfile_passes_the_linter():
    if not (TOOLS / "hadolint").exists():
        pytest.skip("no .venv-images: `make test-images` makes it")
    assert run([str(TOOLS / "hadolint"), "deploy/Dockerfile"], folder=ROOT).stdout == ""


def configuration(storage: Storage, image: str) -> Any:
    return json.loads(storage.podman("image", "inspect", image).stdout)[0]["Config"]


def test_image_runs_commands_and_contains_no_secrets(storage):
    """Without a word it helps; its programs are those of the tree, with the compiled kernel."""
    assert storage.inside(WORKER).stdout.startswith("usage: beam-dp ")
    version = arguments()["VERSION"]
    assert storage.inside(WORKER, "beam-dp", "--version").stdout.split()[-1] == version
    shown = configuration(storage, WORKER)
    assert shown["User"] == "10001:10001"
    assert shown["Labels"]["org.opencontainers.image.version"] == version
    base = arguments()["PYTHON_IMAGE"]
    assert shown["Labels"]["org.opencontainers.image.base.name"] == base
    names = {each.partition("=")[0] for each in shown["Env"]}
    assert names <= {"PATH", "PIP_BREAK_SYSTEM_PACKAGES", "RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT"}
    code = "import beam_dp.hashing.evaluation as b, os; print(b.active_backend(), os.getuid())"
    backend, user = storage.inside(WORKER, "python", "-c", code).stdout.split()
    assert (backend != "numpy", user) == (True, "10001")
    for absent in ("gcc", "/source", "/wheels"):
        looked = storage.inside(
            WORKER, "sh", "-c", f"command -v {absent} || ls -d {absent}", check=False
        )
        assert looked.returncode != 0, looked.stdout


def test_image_starts_beams_boot_program_for_the_flags_of_an_engine(storage):
    said = storage.inside(WORKER, "--id=1-1", check=False)
    assert (said.returncode, "No provision endpoint provided" in said.stderr) == (1, True)


def test_dataflow_image_has_the_launcher_and_runs_its_program(storage):
    shown = configuration(storage, DATAFLOW)
    assert shown.get("User", "") in ("", "root")
    environment = dict(each.split("=", 1) for each in shown["Env"])
    assert environment["FLEX_TEMPLATE_PYTHON_PY_FILE"] == "/opt/beam_dp/main.py"
    storage.inside(DATAFLOW, "test", "-x", "/opt/google/dataflow/python_template_launcher")
    said = storage.inside(DATAFLOW, "python", "/opt/beam_dp/main.py", "--epsilon=1", check=False)
    assert said.returncode == 2 and said.stderr.startswith("error: --input is required:")
    code = "import apache_beam.runners.dataflow.dataflow_runner, apache_beam.io.gcp.gcsio"
    storage.inside(DATAFLOW, "python", "-c", code)


def test_image_has_the_pinned_versions(storage):
    listed = storage.inside(DATAFLOW, "python", "-m", "pip", "list", "--format=freeze").stdout
    installed = dict(line.split("==") for line in listed.splitlines())
    named = {canonicalize_name(name): version for name, version in installed.items()}
    bill = json.loads(storage.inside(DATAFLOW, "cat", "/usr/local/share/beam_dp.cdx.json").stdout)
    parts = [each for each in bill["components"] if each["purl"].startswith("pkg:pypi/")]
    assert {part["name"]: part["version"] for part in parts} == named
    # Of the base, and the package itself.
    base = {"pip", "setuptools", "wheel", "beam-dp"}
    assert {name: named[name] for name in named.keys() - base} == pinned()


@pytest.fixture(scope="module")
def composed(storage, tmp_path_factory) -> Iterator[Composed]:
    """All services, started, with files that arrive."""
    settings = {"START": "not yet", "LEDGER_PASSWORD": secrets.token_hex(16)}
    made = Composed(storage, tmp_path_factory.mktemp("composed"), settings)
    try:
        for service in made.services:
            if service != "release":
                made.start(service)
        # Only now, however long all that took.
        start = (int(time.time()) - START_EARLIER) // 60 * 60
        made.set_up(START=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start)))
        assert made.arrive(1).wait() == 0
        made.start("release")
        made.arrive(20)
        yield made
    finally:
        made.compose("down", "--volumes", check=False)


def visits(folder: pathlib.Path, start: int) -> np.ndarray:
    """How many people of each sex visited in each window of a minute, by the files."""
    found = np.zeros((10, 2), np.int64)
    people = set()
    for file in folder.glob("*.csv"):
        for line in file.read_text(encoding="utf-8").splitlines()[1:]:
            moment, person, _, sex = line.split(",")
            window = (int(moment) - start) // 60
            if window < 10 and (window, person) not in people:
                people.add((window, person))
                found[window, int(sex == "Male")] += 1
    return found


def test_docker_compose_releases_windows_on_flink_paid_in_postgresql(composed):
    """Stopped half-way, the same service goes on, and pays nothing."""
    container = composed.container("release")
    some = re.compile(r"released: ([1-9]) of 10")
    wait_for("some windows", lambda: some.search(composed.logs("release")))
    composed.storage.podman("stop", f"--time={HANG_SECONDS:.0f}", container)
    assert composed.wait_until_it_ends("release") == 143, composed.logs("release")
    composed.storage.podman("start", container)
    assert composed.wait_until_it_ends("release") == 0, composed.logs("release")
    said = composed.logs("release")
    assert "continues: visits/1 in the ledger" in said
    assert re.search(r"continues: [1-9] of 10", said)

    described = composed.run("release", "beam-dp", "describe", "out/visits")
    assert "10 of 10 windows" in described
    asked = ("beam-dp", "answer", "out/visits", "--windows", "6:8", "--marginal", "sex", "--json")
    (line,) = json.loads(composed.run("release", *asked))
    start = datetime.datetime.fromisoformat(composed.settings["START"]).timestamp()
    expected = visits(composed.folder / "landing", int(start))[6:8].sum(axis=0)
    assert min(expected) > 500
    # Six standard errors, and people with two records in a window, of which either may be kept.
    np.testing.assert_allclose(line["records"], expected, atol=100)
    budget = composed.run("budget", "beam-dp", "ledger", "postgresql://beam_dp@ledger/budgets")
    assert budget.count("visits/") == 1 and "released" in budget

    ids = composed.storage.podman("exec", composed.container("workers"), "id", "-u").stdout
    assert ids.strip() == "10001"
