"""Checks of FlinkRunner before a job starts: Java, the job server, a cluster that answers.

Without these checks Beam downloads a jar behind the user's back, or fails after the budget was
spent. `make flink` fetches the jar, or builds one.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
)

from beam_dp.flags.flag import FlagError, refused

from .job_servers import check_jar, find_java

RUNNER = "FlinkRunner"
JAR_VARIABLE = "BEAM_DP_FLINK_JOB_SERVER_JAR"
SECONDS_TO_ANSWER = 5.0
_JAR_FLAG = "flink_job_server_jar"
_JAVA = 17
_EMBEDDED = ("[local]", "[auto]")
_JAR_NAME = re.compile(r"beam-(runners|dp)-flink-(?P<flink>\d+\.\d+)-job-server-(?P<beam>.+)\.jar")
# Built by deploy/flink/pom.xml; `make test-engines` tests it with the installed Beam.
_TESTED = ("2.70.0",)


def prepare_flink(options: PipelineOptions) -> None:
    """Checks what FlinkRunner needs; fills in the jar and the Java that the environment names."""
    flink = options.view_as(FlinkRunnerOptions)
    server = options.view_as(JobServerOptions)
    server.job_server_java_launcher = find_java(server.job_server_java_launcher, RUNNER, _JAVA)
    if not flink.flink_job_server_jar:
        flink.flink_job_server_jar = os.environ.get(JAR_VARIABLE)
    given_version = options.get_all_options(drop_default=True).get("flink_version")
    jar, cache = flink.flink_job_server_jar, server.jar_cache_dir
    version = _check_jar(jar, cache, given_version) or flink.flink_version
    if flink.flink_master.strip() not in _EMBEDDED:
        _check_cluster(flink.flink_master.strip(), version)


def _check_jar(jar: str | None, cache: str | None, given_version: str | None) -> str | None:
    """Returns the version of Flink that the jar's name states, if it states one.

    A jar elsewhere is fetched as Beam does, which keeps it: once the budget is spent it is there.
    """
    if not jar:
        raise FlagError(
            f"--{_JAR_FLAG}: missing; must be given with --runner {RUNNER}, unless"
            f" {JAR_VARIABLE} names the jar; `make flink` makes it"
        )
    version = _check_name(jar, os.path.basename(urlsplit(jar).path), given_version)
    check_jar(_JAR_FLAG, jar, cache)
    return version


def _check_name(jar: str, name: str, given_version: str | None) -> str | None:
    """Returns the version of Flink in a jar's name; refuses another Beam or Flink."""
    match = _JAR_NAME.fullmatch(name)
    if match is None:
        return None
    if match["beam"] not in (beam.__version__, *_TESTED):
        tested = f"or of one that was tested with it: {', '.join(_TESTED)}"
        raise refused(_JAR_FLAG, jar, f"must be of Beam {beam.__version__}, {tested}")
    if given_version is not None and given_version != match["flink"]:
        raise refused("flink_version", given_version, f"must be that of the jar, {match['flink']}")
    return match["flink"]


def cancel_job(master: str, job_id: str) -> None:
    """Cancels a job of a cluster: Beam's job server forgets it, and leaves it running there.

    ``job_id``: that Beam gave it: the name that the cluster knows, and random digits. Where
    several jobs of that name run there, none is cancelled.
    """
    if master.strip() in _EMBEDDED:
        return
    address, name = _address(master), job_id.rpartition("_")[0]
    jobs = _asked(f"{address}/jobs/overview")["jobs"]
    running = [job["jid"] for job in jobs if job["name"] == name and job["end-time"] < 0]
    if len(running) == 1:
        _asked(f"{address}/jobs/{running[0]}?mode=cancel", method="PATCH")


def _address(master: str) -> str:
    return master.strip() if re.match(r"\s*https?://", master) else f"http://{master.strip()}"


def _asked(url: str, method: str = "GET") -> Any:
    """Returns what the job manager's REST interface answers."""
    request = urllib.request.Request(url, method=method)
    with urllib.request.urlopen(request, timeout=SECONDS_TO_ANSWER) as answer:
        return json.load(answer)


def _check_cluster(master: str, version: str) -> None:
    """Asks the job manager's REST interface which Flink it runs."""
    try:
        running = str(_asked(f"{_address(master)}/config")["flink-version"])
    except (OSError, http.client.HTTPException, LookupError, TypeError, ValueError) as error:
        condition = "must be [local], or host:port of a Flink cluster that answers"
        reason = getattr(error, "reason", error)
        raise refused("flink_master", master, f"{condition}: {reason}") from None
    if not running.startswith(f"{version}."):
        condition = f"must be that of the cluster, which runs Flink {running}"
        raise refused("flink_version", version, condition)
