"""Runners: what they lack and flags that no job can run with cost one line; what they leave."""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import (
    JobServerOptions,
    PipelineOptions,
    PrismRunnerOptions,
    StandardOptions,
)
from apache_beam.portability import common_urns
from apache_beam.runners.portability.prism_runner import PrismJobServer
from apache_beam.runners.runner import create_runner
from jobs import interval_flags, job_flags, refused_line
from pytest import MonkeyPatch
from yaml_jobs import RELEASE, read, run, step

import beam_dp as dp
from beam_dp.privacy.ledger.ledger import Ledger
from pipelines import release_intervals, runners
from pipelines.job_servers import JAR_SERVERS, prepare_jar_server, prepare_prism
from pipelines.progress import Progress
from pipelines.release_synthetic_database import main, parse_arguments
from pipelines.runners import ENVIRONMENTS, empty_pipeline, make_pipeline, runner_name
from pipelines.running import run_pipeline


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("own.py", "package.txt", "setup.py"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "pattern"),
    [
        (
            {"runner": "PortableRunner", "job_endpoint": "localhost:1"},
            r"--job_endpoint: 'localhost:1' is not valid: must be host:port of a job server that",
        ),
        (
            {"runner": "prism", "job_endpoint": "localhost:1"},
            r"--job_endpoint: 'localhost:1' is not valid: must be host:port of a job server that",
        ),
    ],
)
def test_job_server_that_does_not_answer_is_refused_before_payment(
    folder, capfd, monkeypatch, flags, pattern
):
    monkeypatch.setattr("pipelines.job_servers.SECONDS_TO_ANSWER", 0.5)
    url = str(folder / "ledger.sqlite")
    ledger = dp.Ledger(url)
    ledger.declare("people", 1000.0, 1e-9, "record", "add_or_remove_one")
    argv = job_flags(folder, ledger=url, dataset_id="people", **flags)
    refused_line(main, argv, capfd, pattern, folder=folder)
    assert ledger.entries("people") == []


@pytest.mark.job
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
def test_accepts_valid_beam_flags(folder, flags):
    assert main([*job_flags(folder, **flags), "--validate_only"]) == 0


def test_runner_name_agrees_with_beam():
    for name in ("DirectRunner", "FlinkRunner", "FnApiRunner", "PortableRunner", "SparkRunner"):
        for text in (name, name.lower(), name.removesuffix("Runner"), name.lower()[:-6]):
            assert type(create_runner(text)) is type(create_runner(name))
            assert runner_name(text) == name
    for name in StandardOptions.KNOWN_RUNNER_NAMES:
        assert runner_name(name.upper()) == name
    full = "apache_beam.runners.portability.flink_runner.FlinkRunner"
    assert runner_name(full) == type(create_runner(full)).__name__ == "FlinkRunner"


def test_environment_types_match_beam():
    of_beam = {name for name in dir(common_urns.environments) if name.isupper()}
    assert set(ENVIRONMENTS) - {"LOOPBACK"} <= of_beam, of_beam


Refused = Callable[..., None]


@pytest.fixture
def refused(tmp_path, capfd, monkeypatch) -> Refused:
    """Demands one line that matches, code 2, and that nothing is spent or written."""
    new_program(tmp_path / "java" / "bin" / "java", "echo 'openjdk version \"17.0.9\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.delenv("BEAM_DP_PRISM", raising=False)
    monkeypatch.setattr(PrismJobServer, "BIN_CACHE", str(tmp_path / "cache"))
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 1000.0, 1e-9, "record", "add_or_remove_one")

    def check(pattern: str, **flags: str) -> None:
        argv = job_flags(tmp_path, ledger=ledger.name, dataset_id="people", **flags)
        refused_line(main, argv, capfd, pattern, folder=tmp_path)
        assert ledger.entries("people") == []

    return check


def new_program(path: Path, *lines: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def new_prism(path: Path) -> str:
    """A program that says what Prism says of its flags, and does nothing else."""
    return new_program(path, "echo 'Usage of prism: -job_port int' >&2", "exit 2")


@pytest.mark.parametrize("runner", ["PrismRunner", "prism"])
def test_refuses_missing_prism(refused, runner):
    refused(r"^error: --prism_location is required.*BEAM_DP_PRISM.*`make prism`", runner=runner)


def test_refuses_prism_at_a_wrong_path(refused, monkeypatch, tmp_path):
    pattern = r"--prism_location: 'nowhere/prism' is not valid: must be a file.*`make prism`"
    refused(pattern, runner="PrismRunner", prism_location="nowhere/prism")
    monkeypatch.setenv("BEAM_DP_PRISM", "nowhere/prism")
    refused(pattern, runner="PrismRunner")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/prism.zip", "s3n://bucket/prism"])
def test_refuses_remote_prism_that_cannot_be_fetched(refused, url):
    refused(rf"--prism_location: '{url}' is not valid: must", runner="prism", prism_location=url)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [(["echo 'what?'"], "must be Prism; it is another"), (None, "must be a program that starts")],
)
def test_refuses_a_program_other_than_prism(refused, tmp_path, lines, reason):
    path = tmp_path / "prism"
    if lines is None:
        path.write_bytes(b"\x7fELF of another machine")
        path.chmod(0o755)
    else:
        new_program(path, *lines)
    pattern = rf"--prism_location: '{path}' is not valid: {reason}"
    refused(pattern, runner="PrismRunner", prism_location=str(path))


def test_finds_prism_by_flag_or_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(PrismJobServer, "BIN_CACHE", str(tmp_path / "cache"))

    def location(*flags: str) -> str | None:
        options = PipelineOptions(["--runner=PrismRunner", *flags])
        prepare_prism(options)
        found: str | None = options.view_as(PrismRunnerOptions).prism_location
        return found

    flag, variable = new_prism(tmp_path / "a" / "prism"), new_prism(tmp_path / "b" / "prism")
    monkeypatch.setenv("BEAM_DP_PRISM", variable)
    assert location() == variable
    assert location(f"--prism_location={flag}") == flag
    # One that runs already needs no program.
    monkeypatch.delenv("BEAM_DP_PRISM")
    assert location("--job_endpoint=localhost:1") is None


def test_unpacks_zipped_prism(tmp_path, monkeypatch):
    monkeypatch.setattr(PrismJobServer, "BIN_CACHE", str(tmp_path / "cache"))
    path = Path(new_prism(tmp_path / "prism"))
    with zipfile.ZipFile(tmp_path / "prism.zip", "w") as file:
        file.write(path, "prism")
    path.unlink()
    options = PipelineOptions([f"--prism_location={tmp_path / 'prism.zip'}"])
    prepare_prism(options)
    found = Path(options.view_as(PrismRunnerOptions).prism_location)
    assert found == tmp_path / "cache" / "prism" and found.stat().st_mode & stat.S_IEXEC


@pytest.mark.parametrize("runner", sorted({*JAR_SERVERS} & {*StandardOptions.KNOWN_RUNNER_NAMES}))
def test_refuses_missing_or_damaged_job_server_jar(refused, tmp_path, runner):
    flag = JAR_SERVERS[runner].flag
    missing = rf"^error: --{flag} is required with --runner {runner}: the jar of Beam's"
    refused(missing, runner=runner)
    refused(missing, runner=runner.lower().removesuffix("runner"))
    refused(rf"--{flag}: 'no.jar' is not valid: must be a file", runner=runner, **{flag: "no.jar"})
    (tmp_path / "a.jar").write_bytes(b"PK half of it")
    damaged = {flag: str(tmp_path / "a.jar")}
    refused(
        rf"--{flag}: '.*a.jar' is not valid: must be a jar, and complete", runner=runner, **damaged
    )


def test_spark_names_the_jar_it_needs(refused):
    name = f"org.apache.beam:beam-runners-spark-3-job-server:{re.escape(beam.__version__)}"
    refused(name, runner="SparkRunner")


@pytest.mark.parametrize("runner", JAR_SERVERS)
def test_refuses_missing_or_old_java_for_a_job_server(refused, monkeypatch, tmp_path, runner):
    new_program(tmp_path / "old" / "bin" / "java", "echo 'java version \"1.8.0\"'")
    for home, reason in ((tmp_path / "old", "is Java 1"), (tmp_path, "is not a program")):
        monkeypatch.setenv("JAVA_HOME", str(home))
        pattern = rf"--runner: '{runner}' is not valid: must have Java 11 or newer, and .* {reason}"
        refused(pattern, runner=runner)


def test_spark_with_an_uber_jar_requires_a_rest_url(refused, tmp_path):
    pattern = r"--spark_rest_url is required with --spark_submit_uber_jar"
    with MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", "/nowhere")  # which needs no Java here
        argv = [*job_flags(tmp_path, runner="SparkRunner"), "--spark_submit_uber_jar"]
        with pytest.raises(runners.FlagError, match=pattern):
            job = parse_arguments(argv)
            runners.make_pipeline(job.beam_flags, job.output)
    options = PipelineOptions(["--job_endpoint=localhost:1"])
    prepare_jar_server(options, "SparkRunner")
    assert options.view_as(JobServerOptions).job_server_java_launcher == "java"


def test_accepts_jar_with_java_from_the_environment(tmp_path, monkeypatch):
    java = new_program(tmp_path / "bin" / "java", "echo 'openjdk version \"17.0.9\"'")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "a.jar", "w") as file:
        file.writestr("META-INF/MANIFEST.MF", "")
    options = PipelineOptions([f"--spark_job_server_jar={tmp_path / 'a.jar'}"])
    prepare_jar_server(options, "SparkRunner")
    assert options.view_as(JobServerOptions).job_server_java_launcher == java


def test_refuses_dataflow_without_its_library(tmp_path, capfd, monkeypatch):
    name = "apache_beam.runners.dataflow.internal.apiclient"
    monkeypatch.setitem(sys.modules, name, None)
    argv = job_flags(tmp_path, runner="DataflowRunner", output="gs://releases/out")
    assert main(argv) == 2
    err = capfd.readouterr().err
    assert err.startswith("error: --runner: 'DataflowRunner' is not valid: must be installed: pip")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AttributeError("'DataFrame' has no attribute 'first'"), "load: AttributeError: 'DataF"),
        (ModuleNotFoundError("No module named 'IPython'"), "must be installed: No module named"),
    ],
)
def test_refuses_a_runner_that_cannot_be_loaded(refused, monkeypatch, error, reason):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("apache_beam.Pipeline", fail)
    refused(rf"--runner: 'InteractiveRunner' is not valid: .*{reason}", runner="InteractiveRunner")


def test_every_beam_runner_is_local_or_checked():
    known = set(StandardOptions.KNOWN_RUNNER_NAMES) - set(StandardOptions.LOCAL_RUNNERS)
    elsewhere = known - set(runners._PREPARED)
    # The first has its endpoint checked; the second runs here, and is loaded before anything.
    assert elsewhere == {"PortableRunner", "InteractiveRunner"}


VALUE = "remarkable-4711"
PROCESSES = "--direct_running_mode=multi_processing"


def speaker(fails: bool) -> Callable[[str], str]:
    """A function that says its value in every way; workers cannot import the module of a test."""

    def speak(value: str) -> str:
        print(value)
        print(value, file=sys.stderr, flush=True)
        warnings.warn(value, stacklevel=1)
        for name in (None, "apache_beam", "beam_dp"):
            logging.getLogger(name).critical(value)
        if fails:
            raise ValueError(value)
        return value

    return speak


@pytest.mark.job
@pytest.mark.parametrize("fails", [pytest.param(False, marks=pytest.mark.part), True])
def test_worker_processes_print_no_record_and_no_beam_output(tmp_path, capfd, fails):
    flags = (PROCESSES, "--direct_num_workers=1")
    pipeline = make_pipeline(flags, "out")
    _ = pipeline | beam.Create([VALUE]) | beam.Map(speaker(fails))
    assert run_pipeline(pipeline, Progress(), [str(tmp_path / "out")]) is not fails
    out, err = capfd.readouterr()
    line = r"error: the job failed with RuntimeError[^\n]*; its message is withheld[^\n]*\n"
    assert out == ""
    # A slow machine is told that the job is working.
    told = re.sub(r"\[ *[\d.]+ s\] working\n", "", err)
    assert re.fullmatch(line if fails else "", told), err
    assert VALUE not in err


@pytest.mark.parametrize(
    ("runner", "expected"),
    [
        ("DirectRunner", "FnApiRunner"),
        ("direct", "FnApiRunner"),
        ("PrismRunner", "PrismRunner"),
    ],
)
def test_worker_processes_are_silent_under_every_name_of_the_local_runner(runner, expected):
    pipeline = empty_pipeline(PipelineOptions([f"--runner={runner}", PROCESSES]))
    assert type(pipeline.runner).__name__ == expected


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def budget(tmp_path) -> dict[str, str]:
    """Flags of a ledger with a budget, with which programs build their pipeline twice."""
    url = str(tmp_path / "ledger.sqlite")
    unit = RELEASE["privacy_unit"]
    dp.Ledger(url).declare("people", 1000.0, 1e-9, unit, "add_or_remove_one")
    return {"ledger": url, "dataset_id": "people"}


@pytest.mark.parametrize(
    ("flags", "more", "code"), [({}, ["--validate_only"], 0), ({"input": "none.csv"}, [], 2)]
)
def test_check_or_refusal_leaves_no_temporary_files(tmp_path, temporary, flags, more, code):
    assert main([*job_flags(tmp_path, **flags), *more]) == code
    assert os.listdir(temporary) == []


@pytest.mark.job
def test_paid_release_leaves_no_temporary_files(tmp_path, temporary, budget):
    assert release_intervals.main(interval_flags(tmp_path, **budget)) == 0
    assert os.listdir(temporary) == []


@pytest.mark.job
def test_paid_beam_yaml_release_leaves_no_temporary_files(tmp_path, temporary, budget):
    output = str(tmp_path / "out")
    run(read(tmp_path), step("ReleaseSyntheticDatabase", **RELEASE, **budget, output=output))
    assert os.listdir(temporary) == []
