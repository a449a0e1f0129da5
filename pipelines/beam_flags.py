"""Early checks of Beam's own flags, before the budget is spent.

By then its message is withheld, because it comes from a job that may have read records.
"""

from __future__ import annotations

import os
import re

import grpc  # type: ignore[import-untyped]
from apache_beam.options.pipeline_options import (
    DirectOptions,
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
    StandardOptions,
)

from beam_dp.flags.flag import FlagError, one_of, refused

SECONDS_TO_ANSWER = 5.0
ENVIRONMENTS = ("DOCKER", "PROCESS", "EXTERNAL", "LOOPBACK")
_OF_BEAM = "beam:env:"
_PORTABLE = "PortableRunner"
_PRISM = "PrismRunner"
_EMBEDDED = "embed"


def runner_name(text: str) -> str:
    """Returns the class of the runner that Beam makes of what was typed.

    Beam knows its own runners in any case, and without "Runner"; others by their full names.

    Example:
        >>> runner_name("flink"), runner_name("a.module.OwnRunner")
        ('FlinkRunner', 'OwnRunner')
    """
    known = {name.lower(): name for name in StandardOptions.KNOWN_RUNNER_NAMES}
    short = text.lower()
    return known.get(short) or known.get(f"{short}runner") or text.rpartition(".")[2]


def check_beam_flags(options: PipelineOptions, runner: str) -> None:
    """Refuses flags that no job can run with.

    Raises:
        FlagError: naming the flag.
    """
    setup, portable = options.view_as(SetupOptions), options.view_as(PortableOptions)
    _check_file("requirements_file", setup.requirements_file)
    _check_file(
        "setup_file",
        setup.setup_file,
        r"setup\.py|pyproject\.toml",
        ", named setup.py or pyproject.toml",
    )
    for package in setup.extra_packages or ():
        # Beam fetches a remote one.
        if "://" not in package:
            _check_file(
                "extra_package",
                package,
                r".*\.(tar|tar\.gz|whl|zip)",
                ", named .tar, .tar.gz, .whl or .zip",
            )
    _check_at_least("direct_num_workers", options.view_as(DirectOptions).direct_num_workers, 0)
    flink = options.view_as(FlinkRunnerOptions)
    for name in ("parallelism", "max_parallelism"):
        if getattr(flink, name) != -1:  # Beam's default: the engine decides
            _check_at_least(name, getattr(flink, name), 1)
    _check_environment(portable.environment_type)
    _check_endpoint(runner, portable.job_endpoint)


def _check_file(name: str, path: str | None, pattern: str = ".*", named: str = "") -> None:
    if path is None:
        return
    if not os.path.isfile(path) or not re.fullmatch(pattern, os.path.basename(path)):
        raise refused(name, path, f"must be a file that exists{named}")


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise refused(name, value, f"must be >= {least}")


def _check_environment(environment: str | None) -> None:
    if not environment or environment in ENVIRONMENTS or environment.startswith(_OF_BEAM):
        return
    raise refused("environment_type", environment, one_of(environment, ENVIRONMENTS))


def _check_endpoint(runner: str, endpoint: str | None) -> None:
    """Waits for a job server to answer, as Beam does."""
    if not endpoint:
        if runner == _PORTABLE:
            raise FlagError(
                f"--job_endpoint: missing; must be given with --runner {_PORTABLE}: host:port of a"
                " job server"
            )
        return
    # Of Beam's local runners Prism alone speaks to a job server.
    ignores_it = runner in StandardOptions.LOCAL_RUNNERS and runner != _PRISM
    if endpoint == _EMBEDDED or ignores_it:
        return
    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=SECONDS_TO_ANSWER)
        except grpc.FutureTimeoutError:
            limit = f"within {SECONDS_TO_ANSWER:g} seconds"
            condition = f"must be host:port of a job server that answers {limit}"
            raise refused("job_endpoint", endpoint, condition) from None
