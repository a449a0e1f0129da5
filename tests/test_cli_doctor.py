"""The command `beam-dp doctor`."""

import importlib.metadata
import re
import socket
import subprocess
import sys
from typing import Any

import pytest
from source_imports import ROOT

from beam_dp import installed
from beam_dp.cli import doctor
from beam_dp.cli.main import main
from beam_dp.privacy.ledger.ledger import Ledger

FOR_DEVELOPERS = {"demo", "fuzz", "mbi", "recipes", "test"}


def told(capfd: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert main(["doctor", *argv]) == code
    out, err = capfd.readouterr()
    assert err == ""
    return " ".join(out.split())


@pytest.fixture
def quick(monkeypatch) -> None:
    """Without the small job, which has a test of its own."""
    found = [doctor.Finding("works", "FnApiRunner", "ran a small job")]
    monkeypatch.setattr(doctor, "_runners", lambda: found)


def test_doctor_checks_setup_requirements():
    def name(line: str) -> str:
        return re.match(r"[\w.-]+", line)[0].lower()  # type: ignore[index]

    lines = importlib.metadata.requires("beam_dp") or []
    required = {name(line) for line in lines if "extra ==" not in line}
    assert required == {*installed.READING, *installed.MAKING}
    extras = {*(importlib.metadata.metadata("beam_dp").get_all("Provides-Extra") or [])}
    assert extras - FOR_DEVELOPERS == {*doctor.EXTRAS}


@pytest.mark.job
def test_doctor_does_not_use_the_network(capfd, monkeypatch):
    def connect(_: Any, address: Any) -> None:
        assert str(address[0]) in ("127.0.0.1", "::1", "localhost"), address

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.delenv("BEAM_DP_PRISM", raising=False)
    monkeypatch.setenv("BEAM_DP_FLINK_JOB_SERVER_JAR", "https://example.org/a.jar")
    out = told(capfd)
    assert "works FnApiRunner ran a small job" in out
    assert re.search(r"works hashing kernel (compiled|numpy)", out)
    assert "missing PrismRunner not set up, unless BEAM_DP_PRISM names the program" in out
    assert "https://example.org/a.jar, which is fetched before a job, and was not tried" in out
    assert "missing DataflowRunner" in out and "pip install 'apache-beam[gcp]'" in out
    assert out.endswith("You can make and read releases here.")


@pytest.mark.usefixtures("quick")
def test_missing_extra_is_not_an_error(capfd, monkeypatch):
    absent = {"gcs": ("absent_package.storage", "outputs"), "s3": ("absent_package", "others")}
    monkeypatch.setattr(doctor, "EXTRAS", absent)
    out = told(capfd)
    assert "missing gcs outputs: pip install 'beam_dp[gcs]'" in out
    assert "missing s3 others: pip install 'beam_dp[s3]'" in out


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("core", "condition"),
    [
        ({"absent-package": "absent"}, "broken absent-package not installed: pip install absent-"),
        ({"numpy": "absent_module"}, "can't be loaded (No module named 'absent_module')"),
    ],
)
def test_doctor_exits_with_1_if_a_requirement_is_broken(capfd, monkeypatch, core, condition):
    monkeypatch.setattr(doctor, "READING", core)
    out = told(capfd, code=1)
    assert condition in out and out.endswith("To make releases, fix the broken parts above.")
    assert "You can read releases here" not in out


@pytest.mark.usefixtures("quick")
def test_doctor_exits_with_1_if_only_reading_is_installed(capfd, monkeypatch):
    monkeypatch.setattr(doctor, "MAKING", {"absent-package": "absent"})
    out = told(capfd, code=1)
    assert out.endswith("You can read releases here. To make releases, fix the broken parts above.")


@pytest.mark.usefixtures("quick")
def test_doctor_checks_given_ledger(tmp_path, capfd):
    url = str(tmp_path / "budgets.sqlite")
    assert "broken ledger ledger: " in told(capfd, "--ledger", url)
    Ledger(url).declare("visits", 1.0, 0.0, "record", "add_or_remove_one")
    assert "answers; dataset ids: 1" in told(capfd, "--ledger", url)
    assert "hunter2" not in told(capfd, "--ledger", "postgresql://me:hunter2@localhost:1/db")


@pytest.mark.job
def test_doctor_runs_without_numpy_rich_and_beam():
    program = (
        "import sys\n"
        "for name in ('numpy', 'rich', 'apache_beam'): sys.modules[name] = None\n"
        "from beam_dp.cli.main import main\n"
        "sys.exit(main(['doctor']))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 1, run.stderr
    for name in ("numpy", "rich", "apache-beam", "FnApiRunner"):
        assert re.search(rf"broken +{name} ", run.stdout), run.stdout
