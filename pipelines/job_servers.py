"""Checks of runners that start a program: Java and the jar of a job server, or Prism.

Without these checks Beam downloads it behind the user's back, or fails after the budget was spent,
in words that are withheld by then. `make prism` builds Prism.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import zipfile
from typing import NamedTuple
from urllib.parse import urlsplit

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
    SparkRunnerOptions,
)
from apache_beam.runners.portability.prism_runner import PrismJobServer
from apache_beam.utils.subprocess_server import JavaJarServer

from beam_dp.flags.flag import FlagError, refused

_DEFAULT_LAUNCHER = "java"
_SECONDS_TO_START = 30.0
_JAVA = 11  # the oldest version that the servers below run on


class JarServer(NamedTuple):
    """The job server of a runner: the flag that names its jar, and where a jar comes from."""

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


def prepare_jar_server(options: PipelineOptions, runner: str) -> None:
    """Checks what a runner of ``JAR_SERVERS`` needs, and fills in the Java of the environment."""
    if options.view_as(PortableOptions).job_endpoint:
        return  # that of a server which runs already
    server, given = JAR_SERVERS[runner], options.view_as(JobServerOptions)
    spark = options.view_as(SparkRunnerOptions)
    if runner == "SparkRunner" and spark.spark_submit_uber_jar:
        if not spark.spark_rest_url:
            raise FlagError("--spark_rest_url: missing; must be given with --spark_submit_uber_jar")
    else:
        given.job_server_java_launcher = find_java(given.job_server_java_launcher, runner, _JAVA)
    jar = options.get_all_options().get(server.flag)
    if not jar:
        raise FlagError(
            f"--{server.flag}: missing; must be given with --runner {runner}: the jar of Beam's"
            f" job server, {server.source}"
        )
    check_jar(server.flag, jar, given.jar_cache_dir)


def find_java(launcher: str, runner: str, least: int) -> str:
    """Returns the program that starts Java: Beam's own default ignores ``JAVA_HOME``."""
    home, is_given = os.environ.get("JAVA_HOME"), launcher != _DEFAULT_LAUNCHER
    if home and not is_given:
        launcher = os.path.join(home, "bin", "java")
    reason = _no_java(launcher, least)
    if reason is not None:
        named = ("job_server_java_launcher", launcher) if is_given else ("runner", runner)
        raise refused(*named, f"must have Java {least} or newer, and {launcher!r} {reason}")
    return launcher


def _no_java(launcher: str, least: int) -> str | None:
    """Returns why a program starts no Java that the job server runs on, if so."""
    if shutil.which(launcher) is None:
        return "is not a program"
    told = ask_program(launcher, "-version")
    if told is None:
        return "does not start"
    version = re.search(r'version "(\d+)', told[1])
    if told[0] != 0 or version is None:
        return "is not Java: -version shows no version"
    return f"is Java {version[1]}" if int(version[1]) < least else None


def ask_program(path: str, flag: str) -> tuple[int, str] | None:
    """Returns the exit code of a program and what it says; None if it does not start, or end."""
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
    """Refuses a jar that can't be read; one elsewhere is fetched as Beam does, which keeps it."""
    if not urlsplit(jar).scheme and not os.path.isfile(jar):
        raise refused(flag, jar, "must be a file, or an URL")
    try:
        path = JavaJarServer.local_jar(jar, cache)
    except (OSError, RuntimeError, ValueError) as error:
        raise refused(flag, jar, f"must be an URL that can be read: {error}") from None
    if not zipfile.is_zipfile(path):
        # Java would say so, once the budget is spent.
        raise refused(flag, jar, "must be a jar, and complete")


PRISM_RUNNER = "PrismRunner"
PRISM_VARIABLE = "BEAM_DP_PRISM"
# What Prism logs may quote records: for a worker that failed, its traceback.
_LOGGERS = (PrismJobServer.__name__, "apache_beam.utils.subprocess_server")


def prepare_prism(options: PipelineOptions) -> None:
    """Checks that Prism can be started, fills in where it is, and silences it."""
    for name in _LOGGERS:
        logging.getLogger(name).disabled = True  # Beam sets the level itself
    if options.view_as(PortableOptions).job_endpoint:
        return  # that of a Prism which runs already
    prism = options.view_as(PrismRunnerOptions)
    prism.prism_location = prism.prism_location or os.environ.get(PRISM_VARIABLE)
    if not prism.prism_location:
        raise FlagError(
            f"--prism_location: missing; must be given with --runner {PRISM_RUNNER}, unless"
            f" {PRISM_VARIABLE} names the program; `make prism` in a checkout builds it"
        )
    prism.prism_location = _prism_program(prism.prism_location, options)


def _prism_program(location: str, options: PipelineOptions) -> str:
    """Returns the path of the program; fetches and unpacks it as Beam does, which keeps it."""
    condition = f"--prism_location: {location!r} is refused; must be"
    is_elsewhere = bool(urlsplit(location).scheme)
    if not is_elsewhere and not os.path.isfile(location):
        raise FlagError(
            f"{condition} a file, or an URL that Beam takes; `make prism` in a checkout builds one"
        )
    try:
        source = PrismJobServer(options).path_to_binary()
        path: str = PrismJobServer.local_bin(source, PrismJobServer.BIN_CACHE, ignore_cache=True)
    except (KeyError, OSError, RuntimeError, ValueError, zipfile.BadZipFile) as error:
        raise FlagError(f"{condition} a program that can be read: {error}") from None
    told = ask_program(path, "-h")
    if told is None:
        raise FlagError(f"{condition} a program that starts on this machine")
    if "-job_port" not in told[1]:
        raise FlagError(f"{condition} Prism, and is another program")
    return str(os.path.abspath(path))
