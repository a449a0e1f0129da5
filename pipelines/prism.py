"""Checks of PrismRunner before a job starts: the Prism program.

Without these checks Beam downloads it behind the user's back, or fails after the budget was spent.
`make prism` builds it.
"""

from __future__ import annotations

import logging
import os
import zipfile
from urllib.parse import urlsplit

from apache_beam.options.pipeline_options import (
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
)
from apache_beam.runners.portability.prism_runner import PrismJobServer

from beam_dp.flags.flag import FlagError

from .job_servers import ask_program

RUNNER = "PrismRunner"
VARIABLE = "BEAM_DP_PRISM"
# What Prism logs may quote records: for a worker that failed, its traceback.
_LOGGERS = (PrismJobServer.__name__, "apache_beam.utils.subprocess_server")


def prepare_prism(options: PipelineOptions) -> None:
    """Checks that Prism can be started, fills in where it is, and silences it.

    Raises:
        FlagError: if Prism is missing, or is another program.
    """
    for name in _LOGGERS:
        logging.getLogger(name).disabled = True  # Beam sets the level itself
    if options.view_as(PortableOptions).job_endpoint:
        return  # that of a Prism which runs already
    prism = options.view_as(PrismRunnerOptions)
    prism.prism_location = prism.prism_location or os.environ.get(VARIABLE)
    if not prism.prism_location:
        raise FlagError(
            f"--prism_location: missing; must be given with --runner {RUNNER}, unless {VARIABLE}"
            " names the program; `make prism` in a checkout builds it"
        )
    prism.prism_location = _program(prism.prism_location, options)


def _program(location: str, options: PipelineOptions) -> str:
    """Returns the path of the program; fetches and unpacks it as Beam does, which keeps it."""
    refused = f"--prism_location: {location!r} is refused; must be"
    is_elsewhere = bool(urlsplit(location).scheme)
    if not is_elsewhere and not os.path.isfile(location):
        raise FlagError(
            f"{refused} a file, or an URL that Beam takes; `make prism` in a checkout builds one"
        )
    try:
        source = PrismJobServer(options).path_to_binary()
        path: str = PrismJobServer.local_bin(source, PrismJobServer.BIN_CACHE, ignore_cache=True)
    except (KeyError, OSError, RuntimeError, ValueError, zipfile.BadZipFile) as error:
        raise FlagError(f"{refused} a program that can be read: {error}") from None
    told = ask_program(path, "-h")
    if told is None:
        raise FlagError(f"{refused} a program that starts on this machine")
    if "-job_port" not in told[1]:
        raise FlagError(f"{refused} Prism, and is another program")
    return str(os.path.abspath(path))
