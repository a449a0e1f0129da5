"""Job servers: what Flink, Spark or Prism lacks costs one line, before anything is spent."""

import http.server
import json
import os
import re
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import (
    JobServerOptions,
    PipelineOptions,
    PrismRunnerOptions,
    StandardOptions,
)
from apache_beam.runners.portability.prism_runner import PrismJobServer
from jobs import job_flags, paid_by, refused_line
from patience import HANG_SECONDS
from versions import since

from pipelines import runners
from pipelines.job_servers import JAR_SERVERS, cancel_job
from pipelines.release_synthetic_database import main, parse_arguments

ROOT = Path(__file__).resolve().parent.parent.parent
Refused = Callable[..., None]


def new_program(path: Path, *lines: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def new_java(path: Path, version: str = "17.0.9") -> str:
    """A program that says what Java says of itself, and does nothing else."""
    return new_program(path, f"echo 'openjdk version \"{version}\" 2023-10-17' >&2")


def new_prism(path: Path) -> str:
    """A program that says what Prism says of its flags, and does nothing else."""
    return new_program(path, "echo 'Usage of prism: -job_port int' >&2", "exit 2")


def new_jar(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("META-INF/MANIFEST.MF", "")
    return str(path)


@pytest.fixture
def jar(tmp_path) -> str:
    return new_jar(tmp_path / f"beam-runners-flink-1.20-job-server-{beam.__version__}.jar")


@pytest.fixture
def refused(tmp_path, capfd, monkeypatch) -> Refused:
    """Demands one line that matches, code 2, nothing spent or written; there is only a Java."""
    new_java(tmp_path / "java" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setattr(PrismJobServer, "BIN_CACHE", str(tmp_path / "cache"))
    for name in ("BEAM_DP_PRISM", "BEAM_DP_FLINK_JOB_SERVER_JAR"):
        monkeypatch.delenv(name, raising=False)
    ledger, _ = paid_by(job_flags(tmp_path), tmp_path)

    def check(pattern: str, **flags: str) -> None:
        argv = job_flags(tmp_path, ledger=ledger.name, dataset_id="people", **flags)
        refused_line(main, argv, capfd, pattern, folder=tmp_path)
        assert ledger.entries("people") == []

    return check


class Cluster:
    """Answers as a job manager does, and keeps what it is asked to change."""

    def __init__(self, answers: dict[str, Any]) -> None:
        changes: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(answers.get(self.path, {}))

            def do_PATCH(self) -> None:
                changes.append(self.path)
                self.answer({})

            def answer(self, value: Any) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(value).encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.answers, self.changes = answers, changes
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.master = f"127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def serving(patch: pytest.MonkeyPatch, cluster: Cluster) -> Iterator[Cluster]:
    """Serves a cluster, whose answers may be late."""
    patch.setattr("pipelines.job_servers.SECONDS_TO_ANSWER", HANG_SECONDS)
    with cluster.server as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield cluster
        server.shutdown()
        thread.join()


FLINK, WITH_JAR = {"runner": "FlinkRunner"}, {"runner": "flink", "flink_job_server_jar": "JAR"}


# What Beam or the system says is different in other versions: the rest is in the table of refusals.
REFUSED: list[tuple[dict[str, str], str]] = [
    *(
        ({"runner": "prism", "prism_location": url}, f"--prism_location: '{url}' is not valid")
        for url in ("http://127.0.0.1:1/prism.zip", "s3n://bucket/prism")
    ),
    *(
        ({**FLINK, "flink_job_server_jar": url}, f"_jar: '{url}' is not valid: must be")
        for url in ("http://127.0.0.1:1/nope.jar", "file:///nowhere/nope.jar")
    ),
    ({**WITH_JAR, "flink_version": "1.2"}, r"--flink_version: .*'1\.2'"),
    *(
        (
            {**WITH_JAR, "flink_master": name},
            rf"--flink_master: '{re.escape(name)}' is not valid: must be \[local\], or host:port",
        )
        for name in ("127.0.0.1:9", "http://127.0.0.1:9", "local", "[::1", "a b:1")
    ),
    *(
        (
            {"runner": name},
            rf"^error: --{server.flag} is required with --runner .*: the jar of Beam",
        )
        for runner, server in JAR_SERVERS.items()
        if runner in StandardOptions.KNOWN_RUNNER_NAMES
        for name in (runner, runner.lower().removesuffix("runner"))
    ),
]


@pytest.mark.parametrize(("flags", "pattern"), REFUSED, ids=str)
def test_refuses_flags_that_no_job_server_can_run_with(refused, monkeypatch, jar, flags, pattern):
    monkeypatch.setattr("pipelines.job_servers.SECONDS_TO_ANSWER", 0.5)
    refused(pattern, **{name: jar if value == "JAR" else value for name, value in flags.items()})


@pytest.mark.parametrize(
    ("variable", "runner"),
    [("BEAM_DP_PRISM", "PrismRunner"), ("BEAM_DP_FLINK_JOB_SERVER_JAR", "FlinkRunner")],
)
def test_refuses_missing_file_that_the_environment_names(refused, monkeypatch, variable, runner):
    monkeypatch.setenv(variable, "nowhere/file")
    refused("'nowhere/file' is not valid: must be a file", runner=runner)


def test_finds_prism_by_flag_or_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(PrismJobServer, "BIN_CACHE", str(tmp_path / "cache"))

    def location(*flags: str) -> str | None:
        options = PipelineOptions(["--runner=PrismRunner", *flags])
        runners.prepare(options)
        found: str | None = options.view_as(PrismRunnerOptions).prism_location
        return found

    flag, variable = new_prism(tmp_path / "a" / "prism"), new_prism(tmp_path / "b" / "prism")
    monkeypatch.setenv("BEAM_DP_PRISM", variable)
    assert location() == variable
    assert location(f"--prism_location={flag}") == flag
    with zipfile.ZipFile(tmp_path / "prism.zip", "w") as file:
        file.write(flag, "prism")
    unpacked = Path(str(location(f"--prism_location={tmp_path / 'prism.zip'}")))
    assert unpacked == tmp_path / "cache" / "prism" and unpacked.stat().st_mode & stat.S_IEXEC
    # One that runs already needs no program.
    monkeypatch.delenv("BEAM_DP_PRISM")
    assert location("--job_endpoint=embed") is None


@pytest.mark.parametrize("runner", JAR_SERVERS)
def test_refuses_missing_or_old_java_for_a_job_server(refused, monkeypatch, tmp_path, runner):
    new_java(tmp_path / "1.8.0_392" / "bin" / "java", "1.8.0_392")
    for home, reason in ((tmp_path / "1.8.0_392", "is Java 1"), (tmp_path, "is not a program")):
        monkeypatch.setenv("JAVA_HOME", str(home))
        pattern = rf"--runner: '{runner}' is not valid: must have Java 11 or newer, and .* {reason}"
        refused(pattern, runner=runner)


def test_spark_with_an_uber_jar_requires_a_rest_url(refused, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # which needs no Java here
    argv = [*job_flags(tmp_path, runner="SparkRunner"), "--spark_submit_uber_jar"]
    with pytest.raises(runners.FlagError, match=r"--spark_rest_url is required with --spark_submi"):
        parse_arguments(argv)
    options = PipelineOptions(["--runner=spark", "--job_endpoint=embed"])
    runners.prepare(options)
    assert options.view_as(JobServerOptions).job_server_java_launcher == "java"


def test_fetches_remote_jar_before_paying(refused, tmp_path, jar):
    (tmp_path / "cache").mkdir()
    whole, cached = Path(jar).read_bytes(), tmp_path / "cache" / Path(jar).name
    given = {"flink_job_server_jar": f"file://{jar}", "jar_cache_dir": str(tmp_path / "cache")}
    flags = [f"--{name}={value}" for name, value in given.items()]
    runners.prepare(PipelineOptions(["--runner=FlinkRunner", "--flink_master=[local]", *flags]))
    assert cached.read_bytes() == whole
    # The first has gone, and Beam would use what it has kept.
    cached.write_bytes(whole[: len(whole) // 2])
    refused(r"_jar: 'file://.*' is not valid: must be a jar, and complete", **FLINK, **given)


def test_finds_java_by_flag_or_environment(monkeypatch, tmp_path, jar):
    for folder in ("path", "home/bin", "flag"):
        new_java(tmp_path / folder / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)

    def launcher(*more: str) -> str:
        flags = ["--runner=FlinkRunner", "--flink_master=[local]", f"--flink_job_server_jar={jar}"]
        options = PipelineOptions([*flags, f"--spark_job_server_jar={jar}", *more])
        runners.prepare(options)
        found: str = options.view_as(JobServerOptions).job_server_java_launcher
        return found

    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert launcher() == "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert launcher() == str(tmp_path / "home" / "bin" / "java")
    options = PipelineOptions(["--runner=spark", f"--spark_job_server_jar={jar}"])
    runners.prepare(options)
    assert options.view_as(JobServerOptions).job_server_java_launcher == launcher()
    flag = str(tmp_path / "flag" / "java")
    assert launcher(f"--job_server_java_launcher={flag}") == flag


def test_refuses_jar_of_another_beam_version(refused, tmp_path):
    path = new_jar(tmp_path / "beam-runners-flink-1.20-job-server-2.10.0.jar")
    pattern = rf"must be of Beam {re.escape(beam.__version__)}, or of one that was tested"
    refused(pattern, **FLINK, flink_job_server_jar=path)


@since("apache-beam", "2.77")  # the first to know Flink 2.0
def test_accepts_jar_built_by_the_repository_with_any_beam_version(refused, tmp_path):
    properties = (ROOT / "deploy" / "flink" / "pom.xml").read_text(encoding="utf-8")
    flink, built = (
        re.findall(rf"<{name}.version>([0-9.]+)</", properties)[0] for name in ("flink", "beam")
    )
    assert built != beam.__version__
    path = new_jar(tmp_path / f"beam-dp-flink-{flink}-job-server-{built}.jar")
    # What is refused comes after the jar's Beam was checked.
    pattern = rf"--flink_version: '2\.0' .*: must be the jar's version, {re.escape(flink)}"
    refused(pattern, **FLINK, flink_job_server_jar=path, flink_version="2.0")


def test_refuses_cluster_with_another_flink_version(refused, jar, monkeypatch):
    pattern = r"--flink_version: '1\.20' is not valid: must be the cluster's version.* 1\.19\.3"
    with serving(monkeypatch, Cluster({"/config": {"flink-version": "1.19.3"}})) as cluster:
        refused(pattern, **FLINK, flink_job_server_jar=jar, flink_master=cluster.master)


ENDED = {"jid": "a0", "name": "week-root-1123-f00d", "end-time": 17}
OURS = {"jid": "a1", "name": "week-root-1123-f00d", "end-time": -1}
OTHER = {"jid": "a2", "name": "week-root-1123-beef", "end-time": -1}
JOB_ID = "week-root-1123-f00d_0bb55546-0e3f-4a0b-9fdc-4e0359649fd2"


@pytest.mark.parametrize("is_known", [True, False])
def test_cancels_the_running_job_if_its_name_is_its_own(monkeypatch, is_known):
    jobs = [ENDED, OURS, OTHER] + [{**OURS, "jid": "a3"}] * (not is_known)
    with serving(monkeypatch, Cluster({"/jobs/overview": {"jobs": jobs}})) as cluster:
        for address in ("{}", " {} ", "http://{}"):
            cancel_job(address.format(cluster.master), JOB_ID)
    assert cluster.changes == ["/jobs/a1?mode=cancel"] * (3 * is_known)


def test_embedded_flink_is_not_cancelled():
    cancel_job("[auto]", JOB_ID)
    cancel_job(" [local]", JOB_ID)
