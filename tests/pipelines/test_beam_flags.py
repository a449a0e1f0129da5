"""Values of Beam's flags that no job can run with cost one line, before anything is spent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.portability import common_urns
from apache_beam.runners.runner import create_runner
from jobs import everything_under, job_flags
from pytest import CaptureFixture, MonkeyPatch

import beam_dp as dp
from pipelines.release_synthetic_database import main
from pipelines.runners import ENVIRONMENTS, runner_name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("own.py", "package.txt", "setup.py"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "pattern"),
    [
        ({"setup_file": "./nope.py"}, r"--setup_file: './nope.py' is refused; must be a file that"),
        ({"setup_file": "./own.py"}, r"--setup_file: './own.py' .*, named setup.py or"),
        ({"extra_package": "./nope.tar.gz"}, r"--extra_package: './nope.tar.gz' is refused; must"),
        ({"extra_package": "./package.txt"}, r"--extra_package: .*, named .tar, .tar.gz, .whl or"),
        ({"requirements_file": "nope.txt"}, r"--requirements_file: 'nope.txt' is refused; must be"),
        (
            {"environment_type": "EXTERNL"},
            r"--environment_type: 'EXTERNL' .* nearest is 'EXTERNAL'",
        ),
        ({"parallelism": "0"}, r"--parallelism: 0 is refused; must be >= 1"),
        ({"max_parallelism": "-2"}, r"--max_parallelism: -2 is refused; must be >= 1"),
        ({"direct_num_workers": "-1"}, r"--direct_num_workers: -1 is refused; must be >= 0"),
        (
            {"runner": "PortableRunner", "job_endpoint": "localhost:1"},
            r"--job_endpoint: 'localhost:1' is refused; must be host:port of a job server that",
        ),
        (
            {"runner": "prism", "job_endpoint": "localhost:1"},
            r"--job_endpoint: 'localhost:1' is refused; must be host:port of a job server that",
        ),
        ({"runner": "portable"}, r"--job_endpoint: missing; must be given with --runner Portable"),
    ],
)
def test_it_costs_one_line_and_nothing_is_spent(
    folder: Path,
    capfd: CaptureFixture[str],
    monkeypatch: MonkeyPatch,
    flags: dict[str, str],
    pattern: str,
) -> None:
    monkeypatch.setattr("pipelines.runners.SECONDS_TO_ANSWER", 0.5)
    url = str(folder / "ledger.sqlite")
    ledger = dp.Ledger(url)
    ledger.declare("people", 1000.0, 1e-9, "record", "add_or_remove_one")
    argv = job_flags(folder, ledger=url, dataset_id="people", **flags)
    before = everything_under(folder)
    assert main(argv) == 2
    out, err = capfd.readouterr()
    assert out == "" and re.fullmatch(r"error: [^\n]+\n", err), err
    assert re.search(pattern, err), err
    assert ledger.entries("people") == [] and everything_under(folder) == before


@pytest.mark.mostly_slow(one_in=2, start=1)
@pytest.mark.parametrize(
    "flags",
    [
        {"setup_file": "./setup.py", "requirements_file": "package.txt"},
        {"extra_package": "gs://bucket/package.whl"},
        {"parallelism": "-1", "direct_num_workers": "0"},
        {"environment_type": "beam:env:external:v1"},
        {"runner": "fnapi", "job_endpoint": "localhost:1"},
        {"runner": "portable", "job_endpoint": "embed"},
    ],
)
def test_what_beam_takes_is_taken(folder: Path, flags: dict[str, str]) -> None:
    assert main([*job_flags(folder, **flags), "--validate_only"]) == 0


def test_a_runner_is_the_one_that_beam_makes() -> None:
    for name in ("DirectRunner", "FlinkRunner", "FnApiRunner", "PortableRunner", "SparkRunner"):
        for text in (name, name.lower(), name.removesuffix("Runner"), name.lower()[:-6]):
            assert type(create_runner(text)) is type(create_runner(name))
            assert runner_name(text) == name
    for name in StandardOptions.KNOWN_RUNNER_NAMES:
        assert runner_name(name.upper()) == name
    full = "apache_beam.runners.portability.flink_runner.FlinkRunner"
    assert runner_name(full) == type(create_runner(full)).__name__ == "FlinkRunner"


def test_environments_are_those_of_beam() -> None:
    of_beam = {name for name in dir(common_urns.environments) if name.isupper()}
    assert set(ENVIRONMENTS) - {"LOOPBACK"} <= of_beam, of_beam
