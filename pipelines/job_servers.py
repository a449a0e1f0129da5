"""Checks the programs that runners need: Java and the jar of a job server, or Prism.

Without these checks, Beam would download a missing program without asking, or fail after the budget
was spent, with a message that must then be withheld. `make flink` fetches or builds the jar of
Flink's job server; `make prism` builds Prism. ``prepare`` does not import Beam, ``fetch`` does.
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
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from beam_dp.flags.command_line import known_beam
from beam_dp.flags.flag import FlagError, refused

_DEFAULT_LAUNCHER = "java"
_SECONDS_TO_START = 30.0
_JAVA = 11  # the oldest version that runs the servers below


class JarServer(NamedTuple):
    """The job server of a runner: the flag and the source of its jar; ``{version}`` is Beam's."""

    flag: str
    source: str


JAR_SERVERS = {
    "SparkRunner": JarServer(
        "spark_job_server_jar",
        "Maven's org.apache.beam:beam-runners-spark-3-job-server:{version}",
    ),
    "KafkaStreamsRunner": JarServer(
        "kafka_streams_job_server_jar", "it must be built from Beam's source"
    ),
}


def prepare(runner: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the programs on this machine that a runner needs; returns the flags that name them.

    ``given``: Beam's flags that are given.
    """
    if runner == FLINK_RUNNER:
        return _prepare_flink(given)
    # With an endpoint, the job server is already running.
    if given.get("job_endpoint"):
        return {}
    if runner == PRISM_RUNNER:
        return {"prism_location": _find_prism(given)}
    return _prepare_jar_server(runner, given) if runner in JAR_SERVERS else {}


def fetch(runner: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fetches remote programs into Beam's cache; returns the flags that name them.

    ``given``: all flags of Beam, with those that ``prepare`` has returned.
    """
    if runner == PRISM_RUNNER:
        for name in _LOGGERS:
            logging.getLogger(name).disabled = True  # Beam sets the level of the log itself
    if runner == FLINK_RUNNER:
        _fetch_jar(_FLINK_JAR, given)
        if (master := given["flink_master"].strip()) not in _EMBEDDED:
            version = _jar_version(given[_FLINK_JAR]) or given["flink_version"]
            _check_cluster(master, version)
    elif not given["job_endpoint"]:
        if runner == PRISM_RUNNER:
            return {"prism_location": _fetch_prism(given)}
        if runner in JAR_SERVERS:
            _fetch_jar(JAR_SERVERS[runner].flag, given)
    return {}


def _prepare_jar_server(runner: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the Java and jar for a runner of ``JAR_SERVERS``; returns Java from JAVA_HOME."""
    server, found = JAR_SERVERS[runner], dict[str, Any]()
    if runner == "SparkRunner" and given.get("spark_submit_uber_jar"):
        if not given.get("spark_rest_url"):
            raise FlagError("--spark_rest_url is required with --spark_submit_uber_jar")
    else:
        found = _find_java(given, runner, _JAVA)
    jar = given.get(server.flag)
    if not jar:
        source = server.source.format(version=known_beam()["version"])
        raise FlagError(
            f"--{server.flag} is required with --runner {runner}: the jar of Beam's"
            f" job server, {source}"
        )
    _check_jar(server.flag, jar)
    return found


def _find_java(given: Mapping[str, Any], runner: str, least: int) -> dict[str, Any]:
    """Returns the flag that names the program of Java; uses ``JAVA_HOME``, unlike Beam."""
    launcher: str = given.get("job_server_java_launcher", _DEFAULT_LAUNCHER)
    home, is_given = os.environ.get("JAVA_HOME"), launcher != _DEFAULT_LAUNCHER
    if home and not is_given:
        launcher = os.path.join(home, "bin", "java")
    reason = _no_java(launcher, least)
    if reason is not None:
        named = ("job_server_java_launcher", launcher) if is_given else ("runner", runner)
        raise refused(*named, f"must have Java {least} or newer, and {launcher!r} {reason}")
    return {"job_server_java_launcher": launcher}


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


def _check_jar(flag: str, jar: str) -> None:
    """Refuses a local jar that can't be read."""
    if urlsplit(jar).scheme:
        return
    if not os.path.isfile(jar):
        raise refused(flag, jar, "must be a file, or a URL")
    _check_whole(flag, jar, jar)


def _fetch_jar(flag: str, given: Mapping[str, Any]) -> None:
    """Fetches a remote jar into Beam's cache."""
    from apache_beam.utils.subprocess_server import JavaJarServer

    jar = given[flag]
    try:
        path = JavaJarServer.local_jar(jar, given["jar_cache_dir"])
    except (OSError, RuntimeError, ValueError) as error:
        raise refused(flag, jar, f"must be a URL that can be read: {error}") from None
    _check_whole(flag, jar, path)


def _check_whole(flag: str, jar: str, path: str) -> None:
    if not zipfile.is_zipfile(path):
        # Otherwise Java would reject the jar only after the budget is spent.
        raise refused(flag, jar, "must be a jar, and complete")


PRISM_RUNNER = "PrismRunner"
PRISM_VARIABLE = "BEAM_DP_PRISM"
# Prism logs the traceback of a failed worker, which may quote records.
_LOGGERS = ("PrismJobServer", "apache_beam.utils.subprocess_server")


def _find_prism(given: Mapping[str, Any]) -> str:
    """Returns the path or URL of Prism; refuses a local program that is another one."""
    location: str | None = given.get("prism_location") or os.environ.get(PRISM_VARIABLE)
    if not location:
        raise FlagError(
            f"--prism_location is required with --runner {PRISM_RUNNER}, unless"
            f" {PRISM_VARIABLE} names the program; `make prism` in a checkout builds it"
        )
    if urlsplit(location).scheme:
        return location
    if not os.path.isfile(location):
        made = "`make prism` in a checkout builds one"
        raise refused(
            "prism_location", location, f"must be a file, or a URL that Beam takes; {made}"
        )
    # Beam unpacks archives, and makes files executable.
    if os.access(location, os.X_OK) and not zipfile.is_zipfile(location):
        _check_prism(location, location)
    return location


def _fetch_prism(given: Mapping[str, Any]) -> str:
    """Returns the path of Prism; fetches and unpacks a remote file into Beam's cache."""
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.prism_runner import PrismJobServer

    location = given["prism_location"]
    names = ("prism_location", "prism_beam_version_override")
    options = PipelineOptions([], **{name: given[name] for name in names})
    try:
        source = PrismJobServer(options).path_to_binary()
        path: str = PrismJobServer.local_bin(source, PrismJobServer.BIN_CACHE, ignore_cache=True)
    except (KeyError, OSError, RuntimeError, ValueError, zipfile.BadZipFile) as error:
        condition = f"must be a program that can be read: {error}"
        raise refused("prism_location", location, condition) from None
    _check_prism(location, path)
    return os.path.abspath(path)


def _check_prism(location: str, path: str) -> None:
    """Refuses a program that does not start, or is not Prism."""
    output = ask_program(os.path.abspath(path), "-h")
    if output is None:
        raise refused("prism_location", location, "must be a program that starts on this machine")
    if "-job_port" not in output[1]:
        raise refused("prism_location", location, "must be Prism; it is another program")


FLINK_RUNNER = "FlinkRunner"
FLINK_VARIABLE = "BEAM_DP_FLINK_JOB_SERVER_JAR"
SECONDS_TO_ANSWER = 5.0
_FLINK_JAR = "flink_job_server_jar"
_FLINK_JAVA = 17
_EMBEDDED = ("[local]", "[auto]")
_JAR_NAME = re.compile(r"beam-(runners|dp)-flink-(?P<flink>\d+\.\d+)-job-server-(?P<beam>.+)\.jar")
# Built by deploy/flink/pom.xml; `make test-part` tests it with the installed Beam.
_TESTED = ("2.70.0",)


def _prepare_flink(given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the programs for FlinkRunner; returns the jar and Java, also from the environment."""
    found = _find_java(given, FLINK_RUNNER, _FLINK_JAVA)
    jar = given.get(_FLINK_JAR) or os.environ.get(FLINK_VARIABLE)
    if not jar:
        raise FlagError(
            f"--{_FLINK_JAR} is required with --runner {FLINK_RUNNER}, unless"
            f" {FLINK_VARIABLE} names the jar; `make flink` makes it"
        )
    version, given_version = _jar_version(jar), given.get("flink_version")
    if version is not None and given_version not in (None, version):
        raise refused("flink_version", given_version, f"must be the jar's version, {version}")
    _check_jar(_FLINK_JAR, jar)
    return {**found, _FLINK_JAR: jar}


def _jar_version(jar: str) -> str | None:
    """Returns the version of Flink in a jar's name, if any; refuses another version of Beam."""
    match = _JAR_NAME.fullmatch(os.path.basename(urlsplit(jar).path))
    if match is None:
        return None
    version = known_beam()["version"]
    if match["beam"] not in (version, *_TESTED):
        tested = f"or of one that was tested with it: {', '.join(_TESTED)}"
        raise refused(_FLINK_JAR, jar, f"must be of Beam {version}, {tested}")
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
