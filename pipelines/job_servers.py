"""Checks the programs that runners need: Java and the jar of a job server, or Prism.

Without these checks, Beam would download a missing program without asking, or fail after the budget
was spent, with a message that must then be withheld. `make flink` fetches or builds the jar of
Flink's job server; `make prism` builds Prism.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import shutil
import subprocess
import urllib.request
import zipfile
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import apache_beam as beam
from apache_beam.options import pipeline_options as beam_options
from apache_beam.runners.portability.prism_runner import PrismJobServer
from apache_beam.utils.subprocess_server import JavaJarServer

from beam_dp.flags.flag import FlagError, refused

_DEFAULT_LAUNCHER = "java"
_SECONDS_TO_START = 30.0
_JAVA = 11  # the oldest version that runs the servers below


class JarServer(NamedTuple):
    """The job server of a runner: the flag for its jar, and where to get the jar."""

    flag: str
    source: str


JAR_SERVERS = {
    "SparkRunner": JarServer(
        "spark_job_server_jar",
        f"Maven's org.apache.beam:beam-runners-spark-3-job-server:{beam.__version__}",
    ),
    "KafkaStreamsRunner": JarServer(
        "kafka_streams_job_server_jar", "it must be built from Beam's source"
    ),
}


def prepare_jar_server(options: beam_options.PipelineOptions, runner: str) -> None:
    """Checks the Java and jar for a runner of ``JAR_SERVERS``; fills in Java from JAVA_HOME."""
    if options.view_as(beam_options.PortableOptions).job_endpoint:
        return  # a job server is already running
    server, given = JAR_SERVERS[runner], options.view_as(beam_options.JobServerOptions)
    spark = options.view_as(beam_options.SparkRunnerOptions)
    if runner == "SparkRunner" and spark.spark_submit_uber_jar:
        if not spark.spark_rest_url:
            raise FlagError("--spark_rest_url is required with --spark_submit_uber_jar")
    else:
        given.job_server_java_launcher = find_java(given.job_server_java_launcher, runner, _JAVA)
    jar = options.get_all_options().get(server.flag)
    if not jar:
        raise FlagError(
            f"--{server.flag} is required with --runner {runner}: the jar of Beam's"
            f" job server, {server.source}"
        )
    check_jar(server.flag, jar, given.jar_cache_dir)


def find_java(launcher: str, runner: str, least: int) -> str:
    """Returns the program that starts Java; uses ``JAVA_HOME``, unlike Beam's default."""
    home, is_given = os.environ.get("JAVA_HOME"), launcher != _DEFAULT_LAUNCHER
    if home and not is_given:
        launcher = os.path.join(home, "bin", "java")
    reason = _no_java(launcher, least)
    if reason is not None:
        named = ("job_server_java_launcher", launcher) if is_given else ("runner", runner)
        raise refused(*named, f"must have Java {least} or newer, and {launcher!r} {reason}")
    return launcher


def _no_java(launcher: str, least: int) -> str | None:
    """Returns the reason if a program does not start a recent enough Java, otherwise None."""
    if shutil.which(launcher) is None:
        return "is not a program"
    output = ask_program(launcher, "-version")
    if output is None:
        return "does not start"
    version = re.search(r'version "(\d+)', output[1])
    if output[0] != 0 or version is None:
        return "is not Java: -version shows no version"
    return f"is Java {version[1]}" if int(version[1]) < least else None


def ask_program(path: str, flag: str) -> tuple[int, str] | None:
    """Returns the exit code and output of a program; None if the program does not start or end."""
    try:
        said = subprocess.run(
            [path, flag],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS_TO_START,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.returncode, said.stderr + said.stdout


def check_jar(flag: str, jar: str, cache: str | None) -> None:
    """Refuses a jar that can't be read; fetches a remote jar into Beam's cache."""
    if not urlsplit(jar).scheme and not os.path.isfile(jar):
        raise refused(flag, jar, "must be a file, or a URL")
    try:
        path = JavaJarServer.local_jar(jar, cache)
    except (OSError, RuntimeError, ValueError) as error:
        raise refused(flag, jar, f"must be a URL that can be read: {error}") from None
    if not zipfile.is_zipfile(path):
        # Otherwise Java would reject the jar only after the budget is spent.
        raise refused(flag, jar, "must be a jar, and complete")


PRISM_RUNNER = "PrismRunner"
PRISM_VARIABLE = "BEAM_DP_PRISM"
# Prism logs the traceback of a failed worker, which may quote records.
_LOGGERS = (PrismJobServer.__name__, "apache_beam.utils.subprocess_server")


def prepare_prism(options: beam_options.PipelineOptions) -> None:
    """Checks that Prism can be started, fills in its path, and silences its log."""
    for name in _LOGGERS:
        logging.getLogger(name).disabled = True  # Beam sets the level of the log itself
    if options.view_as(beam_options.PortableOptions).job_endpoint:
        return  # Prism is already running
    prism = options.view_as(beam_options.PrismRunnerOptions)
    prism.prism_location = prism.prism_location or os.environ.get(PRISM_VARIABLE)
    if not prism.prism_location:
        raise FlagError(
            f"--prism_location is required with --runner {PRISM_RUNNER}, unless"
            f" {PRISM_VARIABLE} names the program; `make prism` in a checkout builds it"
        )
    prism.prism_location = _prism_program(prism.prism_location, options)


def _prism_program(location: str, options: beam_options.PipelineOptions) -> str:
    """Returns the path of Prism; fetches and unpacks a remote file into Beam's cache."""
    condition = f"--prism_location: {location!r} is not valid: must be"
    is_elsewhere = bool(urlsplit(location).scheme)
    if not is_elsewhere and not os.path.isfile(location):
        raise FlagError(
            f"{condition} a file, or a URL that Beam takes; `make prism` in a checkout builds one"
        )
    try:
        source = PrismJobServer(options).path_to_binary()
        path: str = PrismJobServer.local_bin(source, PrismJobServer.BIN_CACHE, ignore_cache=True)
    except (KeyError, OSError, RuntimeError, ValueError, zipfile.BadZipFile) as error:
        raise FlagError(f"{condition} a program that can be read: {error}") from None
    output = ask_program(path, "-h")
    if output is None:
        raise FlagError(f"{condition} a program that starts on this machine")
    if "-job_port" not in output[1]:
        raise FlagError(f"{condition} Prism; it is another program")
    return str(os.path.abspath(path))


FLINK_RUNNER = "FlinkRunner"
FLINK_VARIABLE = "BEAM_DP_FLINK_JOB_SERVER_JAR"
SECONDS_TO_ANSWER = 5.0
_FLINK_JAR = "flink_job_server_jar"
_FLINK_JAVA = 17
_EMBEDDED = ("[local]", "[auto]")
_JAR_NAME = re.compile(r"beam-(runners|dp)-flink-(?P<flink>\d+\.\d+)-job-server-(?P<beam>.+)\.jar")
# Built by deploy/flink/pom.xml; `make test-part` tests it with the installed Beam.
_TESTED = ("2.70.0",)


def prepare_flink(options: beam_options.PipelineOptions) -> None:
    """Checks the programs for FlinkRunner; fills in the jar and Java from the environment."""
    flink = options.view_as(beam_options.FlinkRunnerOptions)
    server = options.view_as(beam_options.JobServerOptions)
    launcher = server.job_server_java_launcher
    server.job_server_java_launcher = find_java(launcher, FLINK_RUNNER, _FLINK_JAVA)
    if not flink.flink_job_server_jar:
        flink.flink_job_server_jar = os.environ.get(FLINK_VARIABLE)
    given_version = options.get_all_options(drop_default=True).get("flink_version")
    jar, cache = flink.flink_job_server_jar, server.jar_cache_dir
    version = _check_flink_jar(jar, cache, given_version) or flink.flink_version
    if flink.flink_master.strip() not in _EMBEDDED:
        _check_cluster(flink.flink_master.strip(), version)


def _check_flink_jar(jar: str | None, cache: str | None, given_version: str | None) -> str | None:
    """Returns the version of Flink in the jar's name; None if the name has no version."""
    if not jar:
        raise FlagError(
            f"--{_FLINK_JAR} is required with --runner {FLINK_RUNNER}, unless"
            f" {FLINK_VARIABLE} names the jar; `make flink` makes it"
        )
    version = _check_jar_name(jar, os.path.basename(urlsplit(jar).path), given_version)
    check_jar(_FLINK_JAR, jar, cache)
    return version


def _check_jar_name(jar: str, name: str, given_version: str | None) -> str | None:
    """Returns the version of Flink in a jar's name; refuses a wrong version of Beam or Flink."""
    match = _JAR_NAME.fullmatch(name)
    if match is None:
        return None
    if match["beam"] not in (beam.__version__, *_TESTED):
        tested = f"or of one that was tested with it: {', '.join(_TESTED)}"
        raise refused(_FLINK_JAR, jar, f"must be of Beam {beam.__version__}, {tested}")
    if given_version is not None and given_version != match["flink"]:
        raise refused(
            "flink_version", given_version, f"must be the jar's version, {match['flink']}"
        )
    return match["flink"]


def cancel_job(master: str, job_id: str) -> None:
    """Cancels a job on a cluster, which Beam's job server would leave running.

    ``job_id``: Beam's id, which is the name of the job on the cluster plus random digits. If
    several jobs with this name run on the cluster, no job is canceled.
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
    """Returns the answer of the job manager's REST interface."""
    request = urllib.request.Request(url, method=method)
    with urllib.request.urlopen(request, timeout=SECONDS_TO_ANSWER) as answer:
        return json.load(answer)


def _check_cluster(master: str, version: str) -> None:
    """Refuses a cluster that does not answer, or runs another version of Flink."""
    try:
        running = str(_asked(f"{_address(master)}/config")["flink-version"])
    except (OSError, http.client.HTTPException, LookupError, TypeError, ValueError) as error:
        condition = "must be [local], or host:port of a Flink cluster that answers"
        reason = getattr(error, "reason", error)
        raise refused("flink_master", master, f"{condition}: {reason}") from None
    if not running.startswith(f"{version}."):
        condition = f"must be the cluster's version, which runs Flink {running}"
        raise refused("flink_version", version, condition)
