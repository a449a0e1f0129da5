"""Runners: what they lack and flags that no job can run with cost one line; what they leave."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    StandardOptions,
)
from apache_beam.portability import common_urns
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import create_runner
from jobs import interval_flags, job_flags, refused_line
from program_jobs import JOBS, texts

from beam_dp.flags.command_line import import_program
from beam_dp.threads import num_threads
from pipelines import flags, release_intervals
from pipelines.beam_flags import DATAFLOW, ENVIRONMENTS, read_beam_flags, runner_name
from pipelines.job_servers import FLINK_RUNNER, JAR_SERVERS
from pipelines.progress import Progress
from pipelines.release_synthetic_database import main
from pipelines.runners import empty_pipeline, make_pipeline
from pipelines.running import run_pipeline


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("own.py", "package.txt", "setup.py"):
        (tmp_path / name).touch()
    return tmp_path


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


@pytest.mark.job
def test_number_of_threads_is_that_of_this_process(folder):
    number = pa.cpu_count()
    try:
        assert main([*job_flags(folder, num_threads=str(number + 1)), "--validate_only"]) == 0
        assert num_threads() == number + 1
    finally:
        pa.set_cpu_count(number)


def test_runners_are_named_and_checked_as_in_Beam():
    for name in ("DirectRunner", "FlinkRunner", "FnApiRunner", "PortableRunner", "SparkRunner"):
        for text in (name, name.lower(), name.removesuffix("Runner"), name.lower()[:-6]):
            assert type(create_runner(text)) is type(create_runner(name))
            assert runner_name(text) == name
    for name in StandardOptions.KNOWN_RUNNER_NAMES:
        assert runner_name(name.upper()) == name
    full = "apache_beam.runners.portability.flink_runner.FlinkRunner"
    assert runner_name(full) == type(create_runner(full)).__name__ == "FlinkRunner"
    of_beam = {name for name in dir(common_urns.environments) if name.isupper()}
    assert set(ENVIRONMENTS) - {"LOOPBACK"} <= of_beam, of_beam
    known = set(StandardOptions.KNOWN_RUNNER_NAMES) - set(StandardOptions.LOCAL_RUNNERS)
    elsewhere = known - {FLINK_RUNNER, *JAR_SERVERS, *DATAFLOW}
    # The first has its endpoint checked; the second runs here, and is loaded before anything.
    assert elsewhere == {"PortableRunner", "InteractiveRunner"}


READ = (
    *("--direct_num_workers=-1", "--num_threads", "3", "--parallelism=-5", "--max_parallelism=2"),
    *("--extra_package=a.whl", "--extra_packages", "b.zip", "--runner", "flink", "--runner=Prism"),
    *("--setup_file=s", "--flink_version=1.20", "--spark_submit_uber_jar", "--streaming"),
    *("--job_endpoint=a:1", "--environment_type=X", "--spark_rest_url", "b:2"),
)


def test_flags_are_read_as_in_Beam():
    given, theirs = read_beam_flags(READ, []), PipelineOptions([*READ]).get_all_options(True)
    assert theirs == {name: given[name] for name in theirs}


def test_refuses_dataflow_without_its_library(tmp_path, capfd, monkeypatch):
    name = "apache_beam.runners.dataflow.internal.apiclient"
    monkeypatch.setitem(sys.modules, name, None)
    argv = job_flags(tmp_path, runner="DataflowRunner", output="gs://releases/out")
    told = "^error: --runner: 'DataflowRunner' is not valid: must be installed: pip"
    refused_line(main, [*argv, "--validate_only"], capfd, told)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AttributeError("'DataFrame' has no attribute 'first'"), "load: AttributeError: 'DataF"),
        (ModuleNotFoundError("No module named 'IPython'"), "must be installed: No module named"),
    ],
)
def test_refuses_a_runner_that_cannot_be_loaded(tmp_path, capfd, monkeypatch, error, reason):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("apache_beam.Pipeline", fail)
    told = rf"--runner: 'InteractiveRunner' is not valid: .*{reason}"
    refused_line(main, job_flags(tmp_path, runner="InteractiveRunner"), capfd, told)


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


@pytest.mark.parametrize(
    ("flags", "more", "code"), [({}, ["--validate_only"], 0), ({"input": "none.csv"}, [], 2)]
)
def test_check_or_refusal_leaves_no_temporary_files(tmp_path, temporary, flags, more, code):
    assert main([*job_flags(tmp_path, **flags), *more]) == code
    assert os.listdir(temporary) == []


@pytest.mark.job
@pytest.mark.parametrize("name", ["intervals", "intervals, by a YAML file"])
def test_paid_release_leaves_no_temporary_files(tmp_path, temporary, name):
    """Programs with a ledger build their pipeline twice."""
    _, flags = JOBS[name].paid_flags(tmp_path)
    assert JOBS[name].main(texts(flags)) == 0
    assert os.listdir(temporary) == []


ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy" / "dataflow"
_COMMAND = runpy.run_path(str(FOLDER / "metadata.py"))
PROGRAMS, metadata = _COMMAND["PROGRAMS"], _COMMAND["metadata"]

# Of Dataflow's API, v1b3: ParameterMetadata; which fields must be given is said in the guide.
PARAMETER_TYPES = {
    *("DEFAULT", "TEXT", "BOOLEAN", "ENUM", "NUMBER", "SERVICE_ACCOUNT", "MACHINE_TYPE"),
    *("GCS_READ_BUCKET", "GCS_READ_FILE", "GCS_READ_FOLDER"),
    *("GCS_WRITE_BUCKET", "GCS_WRITE_FILE", "GCS_WRITE_FOLDER"),
    *("PUBSUB_TOPIC", "PUBSUB_SUBSCRIPTION", "BIGQUERY_TABLE", "JAVASCRIPT_UDF_FILE"),
    *("KMS_KEY_NAME", "WORKER_REGION", "WORKER_ZONE"),
    *("KAFKA_TOPIC", "KAFKA_READ_TOPIC", "KAFKA_WRITE_TOPIC"),
}
# What Google's launcher adds to the parameters of a template.
LAUNCHER_FLAGS = [
    "--runner=DataflowRunner",
    "--project=project",
    "--region=europe-west1",
    "--job_name=ages",
    "--template_location=gs://staging/job_object",
    "--temp_location=gs://temp",
    "--staging_location=gs://staging",
    "--sdk_container_image=europe-docker.pkg.dev/project/images/beam-dp:0.1.0",
    "--labels={}",
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_metadata_is_valid_and_its_parameters_are_all_flags_that_may_be_remote(name):
    given = metadata(name)
    parameters = given["parameters"]
    assert given["name"] and len({each["name"] for each in parameters}) == len(parameters)
    for each in parameters:
        assert all(each[field] for field in ("name", "label", "helpText")), each
        kind = each.get("paramType", "DEFAULT")
        assert kind in PARAMETER_TYPES and (kind == "ENUM") == ("enumOptions" in each), each
        assert isinstance(each.get("regexes", []), list) and isinstance(each["isOptional"], bool)
        known = {"name", "label", "helpText", "paramType", "enumOptions", "regexes", "isOptional"}
        assert {*each} <= known | {"defaultValue", "groupName"}, each
    parameters = {each["name"]: each for each in metadata(name)["parameters"]}
    for flag in import_program(name).FLAGS:
        of_one_machine = ("start_from", "state", "resume", "expect_records")
        if flag.is_switch or flag.name in of_one_machine:
            assert flag.name not in parameters
        else:
            assert parameters[flag.name]["isOptional"] is not flag.required


def test_ledger_url_with_a_password_does_not_match_its_parameter():
    (ledger,) = (
        each for each in metadata("release_intervals")["parameters"] if each["name"] == "ledger"
    )
    (pattern,) = ledger["regexes"]
    assert re.fullmatch(pattern, "postgresql://bob@db.example.org:5432/budgets")
    for refused in (
        "postgresql://bob:hunter2@db.example.org/budgets",
        "postgresql://bob@db/budgets?password=hunter2",
        "/tmp/ledger.sqlite",
    ):
        assert not re.fullmatch(pattern, refused)


@pytest.mark.job
def test_command_prints_metadata_of_one_program():
    command = [sys.executable, str(FOLDER / "metadata.py")]
    printed = subprocess.run([*command, "release_intervals"], capture_output=True, check=True)
    assert json.loads(printed.stdout) == metadata("release_intervals")
    refused = subprocess.run([*command, "release_windows"], capture_output=True)
    assert refused.returncode == 1 and refused.stderr.count(b"\n") == 1


def test_image_contains_the_files_that_the_launcher_runs(monkeypatch, capsys):
    stage = (
        (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").partition(" AS dataflow\n")[2]
    )
    (path,) = re.findall(r"FLEX_TEMPLATE_PYTHON_PY_FILE=(\S+)", stage)
    assert f"COPY deploy/dataflow/main.py {path}\n" in stage
    # Installed, the programs are in `beam_dp.pipelines`; here they are in `pipelines`.
    tree = ast.parse((FOLDER / "main.py").read_text(encoding="utf-8"))
    assert "beam_dp.pipelines." in ast.unparse(tree)
    monkeypatch.setitem(sys.modules, "beam_dp.pipelines.release_intervals", release_intervals)
    monkeypatch.setenv("BEAM_DP_PROGRAM", "release_intervals")
    monkeypatch.setattr(sys, "argv", ["main.py", "--epsilon=1"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / "main.py"), run_name="__main__")
    assert ended.value.code == flags.EXIT_BAD_INPUT
    assert "--input is required" in capsys.readouterr().err


def test_accepts_launcher_flags(tmp_path):
    argv = interval_flags(tmp_path, output="gs://releases/out")
    job = release_intervals.parse_arguments([*argv, *LAUNCHER_FLAGS])
    assert job.beam_flags == tuple(LAUNCHER_FLAGS)


@pytest.mark.job
@pytest.mark.parametrize("name", ["intervals", "intervals, by a YAML file"])
def test_launched_program_stages_the_job_and_exits(tmp_path, monkeypatch, capsys, name):
    """A launcher of Dataflow's templates starts the job then; one that never ran has no release."""

    class Staged:
        def wait_until_finish(self) -> None:
            raise OSError("Failed to get the Dataflow job id.")

    monkeypatch.setattr(FnApiRunner, "run_pipeline", lambda *_: Staged())
    argv = texts(JOBS[name].flags(tmp_path))
    assert JOBS[name].main([*argv, "--template_location=gs://staging/job_object"]) == 0
    assert "staged" in capsys.readouterr().err
    assert JOBS[name].main(argv) == flags.EXIT_JOB_FAILED


def test_command_in_the_manual_has_all_required_parameters():
    manual = (ROOT / "docs" / "dataflow.md").read_text(encoding="utf-8")
    (given,) = re.findall(r"--parameters '\^~\^(.*)'", manual)
    names = {each.partition("=")[0] for each in given.split("~")}
    parameters = metadata("release_intervals")["parameters"]
    assert names <= {each["name"] for each in parameters}
    assert {each["name"] for each in parameters if not each["isOptional"]} <= names
