"""Flink: what it lacks costs one line before anything is spent, and its cluster cancels jobs."""

from __future__ import annotations

import http.server
import json
import os
import re
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import JobServerOptions, PipelineOptions
from jobs import job_flags, refused_line
from patience import HANG_SECONDS
from versions import since

from pipelines.job_servers import cancel_job, prepare_flink
from pipelines.release_synthetic_database import main

ROOT = Path(__file__).resolve().parent.parent.parent
Refused = Callable[..., None]


@pytest.fixture
def refused(tmp_path, capfd, monkeypatch) -> Refused:
    """Demands one line that matches, code 2, nothing written; there is a Java, but no jar."""
    new_java(tmp_path / "java" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.delenv("BEAM_DP_FLINK_JOB_SERVER_JAR", raising=False)

    def check(pattern: str, **flags: str) -> None:
        argv = job_flags(tmp_path, **{"runner": "FlinkRunner", **flags})
        refused_line(main, argv, capfd, pattern, folder=tmp_path)

    return check


def new_java(path: Path, version: str = "17.0.9") -> str:
    """A program that says what Java says of itself, and does nothing else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2023-10-17' >&2\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def jar(tmp_path) -> str:
    return new_jar(tmp_path / f"beam-runners-flink-1.20-job-server-{beam.__version__}.jar")


def new_jar(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("META-INF/MANIFEST.MF", "")
    return str(path)


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


@pytest.fixture
def other_cluster(monkeypatch) -> Iterator[str]:
    with serving(monkeypatch, Cluster({"/config": {"flink-version": "1.19.3"}})) as found:
        yield found.master


RUNNERS = (
    "flink",
    "Flink",
    "flinkrunner",
    "apache_beam.runners.portability.flink_runner.FlinkRunner",
)
WITH_JAR = {"flink_job_server_jar": "JAR"}
REFUSED: list[tuple[dict[str, str], str]] = [
    *(({"runner": name}, "--flink_job_server_jar is required") for name in RUNNERS),
    ({"flink_master": "[local]"}, "--flink_job_server_jar is required .*make flink"),
    *(
        ({**WITH_JAR, "job_server_java_launcher": name}, f"'{name}' .* must have Java 17 or newer")
        for name in ("/bin/false", "/bin/echo", "nojava")
    ),
    *(
        ({"flink_job_server_jar": url}, f"--flink_job_server_jar: '{url}' is not valid: must be")
        for url in ("http://127.0.0.1:1/nope.jar", "file:///nowhere/nope.jar")
    ),
    (
        {**WITH_JAR, "flink_version": "1.19"},
        r"--flink_version: '1\.19' is not valid: must be the jar's version, 1\.20",
    ),
    ({**WITH_JAR, "flink_version": "1.2"}, r"--flink_version: .*'1\.2'"),
    *(
        (
            {**WITH_JAR, "flink_master": name},
            rf"--flink_master: '{re.escape(name)}' is not valid: must be \[local\], or host:port",
        )
        for name in ("127.0.0.1:9", "http://127.0.0.1:9", "local", "[::1", "a b:1")
    ),
]


@pytest.mark.parametrize(("flags", "pattern"), REFUSED, ids=str)
def test_refuses_flags_that_no_cluster_can_run_with(refused, jar, flags, pattern):
    refused(pattern, **{name: jar if value == "JAR" else value for name, value in flags.items()})


def test_refuses_missing_java(refused, monkeypatch, jar):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    refused(r"--runner: 'FlinkRunner' is not valid: must have Java", flink_job_server_jar=jar)


@pytest.mark.parametrize(
    ("version", "reason"), [("1.8.0_392", "is Java 1"), ("11.0.21", "is Java 11")]
)
def test_refuses_old_java(refused, tmp_path, jar, version, reason):
    java = new_java(tmp_path / "old" / "java", version)
    pattern = rf"--job_server_java_launcher: '{java}' is not valid: must have Java 17 .*{reason}\n"
    refused(pattern, flink_job_server_jar=jar, job_server_java_launcher=java)


def test_fetches_remote_jar_before_paying(refused, tmp_path, jar):
    (tmp_path / "cache").mkdir()
    name = Path(jar).name
    whole, cached = Path(jar).read_bytes(), tmp_path / "cache" / name
    options = PipelineOptions(
        [
            *("--runner=FlinkRunner", "--flink_master=[local]"),
            *(f"--flink_job_server_jar=file://{jar}", f"--jar_cache_dir={tmp_path / 'cache'}"),
        ]
    )
    prepare_flink(options)
    assert cached.read_bytes() == whole
    cached.write_bytes(whole[: len(whole) // 2])
    refused(
        r"--flink_job_server_jar: 'file://.*' is not valid: must be a jar, and complete",
        flink_job_server_jar=f"file://{jar}",
        # The first has gone, and Beam would use what it has kept.
        jar_cache_dir=str(tmp_path / "cache"),
    )


def test_refuses_jar_that_does_not_exist(refused, monkeypatch):
    pattern = r"--flink_job_server_jar: 'nowhere\.jar' is not valid: must be a file"
    refused(pattern, flink_job_server_jar="nowhere.jar")
    monkeypatch.setenv("BEAM_DP_FLINK_JOB_SERVER_JAR", "nowhere.jar")
    refused(pattern)


def test_refuses_truncated_jar(refused, jar):
    whole = Path(jar).read_bytes()
    Path(jar).write_bytes(whole[: len(whole) // 2])
    refused(r"--flink_job_server_jar: .* must be a jar, and complete", flink_job_server_jar=jar)


def test_finds_java_by_flag_or_environment(monkeypatch, tmp_path, jar):
    for folder in ("path", "home/bin", "flag"):
        new_java(tmp_path / folder / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)

    def launcher(*more: str) -> str:
        flags = ["--runner=FlinkRunner", "--flink_master=[local]", f"--flink_job_server_jar={jar}"]
        options = PipelineOptions([*flags, *more])
        prepare_flink(options)
        found: str = options.view_as(JobServerOptions).job_server_java_launcher
        return found

    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert launcher() == "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert launcher() == str(tmp_path / "home" / "bin" / "java")
    flag = str(tmp_path / "flag" / "java")
    assert launcher(f"--job_server_java_launcher={flag}") == flag


def test_refuses_jar_of_another_beam_version(refused, tmp_path):
    path = new_jar(tmp_path / "beam-runners-flink-1.20-job-server-2.10.0.jar")
    pattern = rf"must be of Beam {re.escape(beam.__version__)}, or of one that was tested"
    refused(pattern, flink_job_server_jar=path)


@since("apache-beam", "2.77")  # the first to know Flink 2.0
def test_accepts_jar_built_by_the_repository_with_any_beam_version(refused, tmp_path):
    properties = (ROOT / "deploy" / "flink" / "pom.xml").read_text(encoding="utf-8")
    flink, built = (
        re.findall(rf"<{name}.version>([0-9.]+)</", properties)[0] for name in ("flink", "beam")
    )
    assert built != beam.__version__
    path = new_jar(tmp_path / f"beam-dp-flink-{flink}-job-server-{built}.jar")
    # What is refused comes after the jar's Beam was checked.
    pattern = (
        rf"--flink_version: '2\.0' is not valid: must be the jar's version, {re.escape(flink)}"
    )
    refused(pattern, flink_job_server_jar=path, flink_version="2.0")


def test_refuses_cluster_with_another_flink_version(refused, jar, other_cluster):
    pattern = r"--flink_version: '1\.20' is not valid: must be the cluster's version.* 1\.19\.3"
    refused(pattern, flink_job_server_jar=jar, flink_master=other_cluster)


ENDED = {"jid": "a0", "name": "week-root-1123-f00d", "end-time": 17}
OURS = {"jid": "a1", "name": "week-root-1123-f00d", "end-time": -1}
OTHER = {"jid": "a2", "name": "week-root-1123-beef", "end-time": -1}
JOB_ID = "week-root-1123-f00d_0bb55546-0e3f-4a0b-9fdc-4e0359649fd2"


@pytest.fixture
def cluster(monkeypatch) -> Iterator[Cluster]:
    with serving(monkeypatch, Cluster({"/jobs/overview": {"jobs": [ENDED, OURS, OTHER]}})) as found:
        yield found


@pytest.mark.parametrize("address", ["{}", " {} ", "http://{}"])
def test_cancels_only_the_running_job(cluster, address):
    cancel_job(address.format(cluster.master), JOB_ID)
    assert cluster.changes == ["/jobs/a1?mode=cancel"]


def test_cancels_no_job_if_several_share_the_name(cluster):
    cluster.answers["/jobs/overview"]["jobs"].append({**OURS, "jid": "a3"})
    cancel_job(cluster.master, JOB_ID)
    assert cluster.changes == []


def test_embedded_flink_is_not_cancelled():
    cancel_job("[auto]", JOB_ID)
    cancel_job(" [local]", JOB_ID)
