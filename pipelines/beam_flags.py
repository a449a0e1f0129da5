"""Checks Beam's flags, and what their runner needs, without importing Beam."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dp.flags.command_line import known_beam, no_flag, unknown_flag
from beam_dp.flags.flag import Flag, FlagError, Parser, nearest, one_of, refused

from . import job_servers

ENVIRONMENTS = ("DOCKER", "PROCESS", "EXTERNAL", "LOOPBACK")
# DirectRunner would first try to download another runner.
LOCAL_RUNNER = "FnApiRunner"
DATAFLOW = ("DataflowRunner", "TestDataflowRunner")
_PORTABLE = "PortableRunner"
_MOST_THREADS = 1_024
_TYPES = {"int": int, "float": float, "json": json.loads}


def read_beam_flags(rest: Sequence[str], flags: Sequence[Flag]) -> dict[str, Any]:
    """Returns Beam's flags that are given; refuses others, and values that Beam can't read."""
    parser = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    names = known_beam()["flags"]
    for name, fields in names.items():
        read = {"type": _TYPES[fields["type"]]} if "type" in fields else {}
        parser.add_argument(name, **{**fields, **read})
    given, unknown = parser.parse_known_args(rest)
    # For argparse a lone "--" ends the flags, so "--" would hide all later arguments.
    unknown = ["--"] if "--" in rest else unknown
    if unknown and not unknown[0].startswith("-"):
        raise no_flag(unknown[0].partition("=")[0], rest)
    if unknown:
        ours = (f"--{flag.name}" for flag in flags)
        raise unknown_flag(unknown[0].partition("=")[0], [*ours, *names])
    return vars(given)


def check_beam_flags(
    program: str, rest: Sequence[str], flags: Sequence[Flag], given: Mapping[str, str]
) -> None:
    """Refuses flags of Beam with which a program can't run; ``given``: the program's own flags."""
    beam = read_beam_flags(rest, flags)
    if program == "check_domain":
        raise FlagError(f"{rest[0]} is a flag of Beam, and this command does not run on Beam")
    if program != "run_yaml":  # whose file may have more of Beam's flags
        for name in ("output", "private_folder"):
            if name in given:
                refuse_unshared_output(given[name], beam.get("runner") or LOCAL_RUNNER, name)
        check_values(beam)


def check_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Refuses values of Beam's flags that would make any job fail.

    Returns flags that name the programs on this machine that the runner needs.
    """
    typed = given.get("runner") or LOCAL_RUNNER
    runner = runner_name(typed)
    if "." not in typed and runner not in known_beam()["runners"]:
        near = nearest(typed, known_beam()["runners"])
        raise refused("runner", typed, f"must be a runner that Beam knows; the nearest is {near}")
    _check_file("requirements_file", given.get("requirements_file"))
    named = ", named setup.py or pyproject.toml"
    _check_file("setup_file", given.get("setup_file"), r"setup\.py|pyproject\.toml", named)
    for package in given.get("extra_packages") or ():
        if "://" not in package:  # Beam itself fetches a remote package
            named = ", named .tar, .tar.gz, .whl or .zip"
            _check_file("extra_package", package, r".*\.(tar|tar\.gz|whl|zip)", named)
    _check_at_least("direct_num_workers", given.get("direct_num_workers", 0), 0)
    for name in ("parallelism", "max_parallelism"):
        if (number := given.get(name, -1)) != -1:  # Beam's default: the engine decides
            _check_at_least(name, number, 1)
    place = given.get("environment_type")
    if place and place not in ENVIRONMENTS and not place.startswith("beam:env:"):
        raise refused("environment_type", place, one_of(place, ENVIRONMENTS))
    if runner == _PORTABLE and not given.get("job_endpoint"):
        raise FlagError(
            f"--job_endpoint is required with --runner {_PORTABLE}: host:port of a job server"
        )
    if (threads := given.get("num_threads")) is not None:
        if not 1 <= threads <= _MOST_THREADS:
            raise refused("num_threads", threads, f"must be from 1 to {_MOST_THREADS:,}")
        if runner not in known_beam()["local_runners"]:
            condition = f"must be left out with --runner {runner}: its workers take one thread each"
            raise refused("num_threads", threads, condition)
    return job_servers.prepare(runner, given)


def _check_file(name: str, path: str | None, pattern: str = ".*", named: str = "") -> None:
    if path is None:
        return
    if not os.path.isfile(path) or not re.fullmatch(pattern, os.path.basename(path)):
        raise refused(name, path, f"must be a file that exists{named}")


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise refused(name, value, f"must be >= {least}")


def runner_name(text: str) -> str:
    """Returns the class name of the runner that Beam uses for a typed name.

    Beam accepts the names of its own runners in upper or lower case, and without "Runner"; other
    runners need their full names.
    """
    runners = {name.lower(): name for name in known_beam()["runners"]}
    short = text.lower()
    return runners.get(short) or runners.get(f"{short}runner") or text.rpartition(".")[2]


def refuse_unshared_output(output: str, runner: str, name: str = "output") -> None:
    """Refuses a local folder for a runner whose workers do not share it."""
    if "://" not in output and runner_name(runner) in DATAFLOW:
        condition = "must be a URL such as gs://BUCKET/FOLDER with --runner"
        raise refused(name, output, f"{condition} {runner}: its workers share no local folder")
