"""The steps of the workflow that tries the wheels, run here as they are written there."""

import os
import pathlib
import subprocess

import pytest
from newcomers import CONSTRAINTS, Home, empty_home, installed
from package_sources import ROOT
from workflows import ALL, steps

pytestmark = pytest.mark.wheel
JOB = ALL["wheels.yml"]["jobs"]["try"]
STEPS = {step["name"]: step for step in steps("wheels.yml", "try") if "run" in step}


@pytest.fixture
def checkout(tmp_path, wheel) -> pathlib.Path:
    """What a step finds in its folder."""
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / wheel.name).symlink_to(wheel)
    for name in ("tests", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run(home: Home, step: str, checkout: pathlib.Path) -> str:
    """Runs a step where the commands of an environment come first; returns what it printed."""
    environment = {
        **home.environment(),
        **JOB["env"],
        **STEPS[step].get("env", {}),
        "PATH": f"{home.folder / 'environment' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        # So that no new version of a package fails here, and fewer files are compiled.
        "PIP_CONSTRAINT": str(CONSTRAINTS),
        "PIP_NO_COMPILE": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTEST_ADDOPTS": "",
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[step]["run"]],
        cwd=checkout, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_step_is_run():
    assert [*STEPS] == ["what reads releases, alone", "what makes them, and its kernel", "a job"]


@pytest.mark.job
def test_what_reads_releases_is_installed_alone(tmp_path_factory, checkout):
    home = empty_home(tmp_path_factory.mktemp("alone"))
    printed = run(home, "what reads releases, alone", checkout)
    assert "Successfully installed beam_dp" in printed.replace("beam-dp", "beam_dp")
    assert printed.count("hold") >= len([*(ROOT / "tests" / "golden").glob("*/*.json")])


@pytest.mark.job
def test_a_job_is_run(home, checkout):
    assert "epsilon" in run(home, "a job", checkout)


@pytest.mark.part
def test_what_makes_releases_and_its_kernel_are_tested(tmp_path_factory, wheel, checkout):
    """What pip would fetch is there already."""
    home = installed(tmp_path_factory.mktemp("makes"), wheel, "hypothesis", "pytest")
    printed = run(home, "what makes them, and its kernel", checkout)
    assert " passed" in printed and " failed" not in printed
