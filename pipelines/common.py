"""Reading of shared flags: the guarantee, the pipeline options, the ledger."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from beam_dp.domain.files import parse_domain
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError, nearest, refused
from beam_dp.privacy.ledger.edges import check_edges_paid
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.ledger.origin import Origin, place_text
from beam_dp.transforms.errors import FileError
from beam_dp.transforms.reading.formats import open_file
from beam_dp.transforms.reading.listing import plain_path

from .beam_flags import check_beam_flags, runner_name
from .empty_pipeline import LOCAL_RUNNER, empty_pipeline
from .flink import RUNNER as FLINK_RUNNER, prepare_flink
from .job_servers import JAR_SERVERS, prepare_jar_server
from .prism import RUNNER as PRISM_RUNNER, prepare_prism

_DATAFLOW = ("DataflowRunner", "TestDataflowRunner")


def read_ledger(given: dict[str, str]) -> Ledger | None:
    """Returns the ledger that flags name, if they do.

    Raises:
        FlagError: the ledger or the dataset id is missing.
    """
    for name, other in (("ledger", "dataset_id"), ("dataset_id", "ledger")):
        if name in given and other not in given:
            raise FlagError(f"--{other}: missing; must be given with --{name}")
    for name in ("purpose", "who"):
        if name in given and "ledger" not in given:
            raise FlagError(f"--ledger: missing; must be given with --{name}")
    return Ledger(given["ledger"]) if "ledger" in given else None


def read_origin(given: dict[str, str]) -> Origin:
    """Returns who releases something, why and where, as the ledger is told.

    Raises:
        InputError: a text is refused.
    """
    said = {name: given[name] for name in ("who", "purpose") if name in given}
    return Origin(**said, output=place_text(given["output"]))


def read_text(name: str, path: str) -> str:
    """Returns the text of a file on any filesystem that Beam knows, or JSON that stands for one.

    Args:
        name: the flag.
        path: of the file; a text that starts with ``{`` is what the file would hold.

    Raises:
        InputError: naming the flag, if it can't be read or is not UTF-8.
    """
    if path.lstrip().startswith("{"):
        return path
    try:
        with open_file(plain_path(name, path), decompress=True) as file:
            return str(b"".join(iter(lambda: file.read(2**24), b"")), "utf-8-sig")
    except FileError as error:
        raise InputError(name, path, str(error)) from None
    except UnicodeDecodeError as error:
        raise InputError(name, path, f"must be UTF-8 text: byte {error.start} is not") from None
    except Exception as error:
        # Each of Beam's filesystems raises its own errors; all mean the same to the user.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not found"
        raise InputError(name, path, f"must be a file that can be read: {reason}") from None


def read_domain(given: dict[str, str]) -> Domain:
    """Returns the domain that flags name, of a release that is paid for as they say.

    Raises:
        FlagError: the ledger or the dataset id is missing.
        InputError: it is no domain, or its edges come from a release that another budget paid for.
    """
    domain = parse_domain(read_text("domain", given["domain"]), source=given["domain"])
    check_edges_paid(domain, read_ledger(given), given.get("dataset_id", ""))
    return domain


def prepare_dataflow(_: PipelineOptions, runner: str) -> None:
    """Raises FlagError where Beam's client of Dataflow is missing: it looks once it submits."""
    try:
        importlib.import_module("apache_beam.runners.dataflow.internal.apiclient")
    except ImportError:
        condition = "must be installed: pip install 'apache-beam[gcp]'"
        raise refused("runner", runner, condition) from None


# What a runner lacks shows before a budget is spent; of a job that runs it would be withheld.
_PREPARED: dict[str, Callable[[PipelineOptions], None]] = {
    FLINK_RUNNER: prepare_flink,
    PRISM_RUNNER: prepare_prism,
    **{name: partial(prepare_jar_server, runner=name) for name in JAR_SERVERS},
    **{name: partial(prepare_dataflow, runner=name) for name in _DATAFLOW},
}


def make_pipeline(beam_flags: Sequence[str], output: str) -> beam.Pipeline:
    """Returns an empty pipeline for Beam's flags: on FnApiRunner unless a runner is named.

    Raises:
        FlagError: Beam knows no such runner or can't load it, no job could run with its flags, it
            lacks a program, a jar or a library, or Dataflow's workers could not share the output.
    """
    options = PipelineOptions(list(beam_flags))
    refuse_unshared_output(output, options.view_as(StandardOptions).runner or LOCAL_RUNNER)
    return pipeline_of(options)


def pipeline_of(options: PipelineOptions) -> beam.Pipeline:
    """Returns an empty pipeline for Beam's options: on FnApiRunner unless a runner is named.

    Raises:
        FlagError: Beam knows no such runner or can't load it, no job could run with its flags, or
            it lacks a program, a jar or a library.
    """
    standard = options.view_as(StandardOptions)
    standard.runner = standard.runner or LOCAL_RUNNER
    runner = runner_name(standard.runner)
    check_beam_flags(options, runner)
    if runner in _PREPARED:
        _PREPARED[runner](options)
    try:
        return empty_pipeline(options)
    except ValueError as error:
        if "Unexpected pipeline runner" in str(error):
            near = nearest(standard.runner, StandardOptions.KNOWN_RUNNER_NAMES)
            condition = f"must be a runner that Beam knows; the nearest is {near}"
            raise refused("runner", standard.runner, condition) from None
        raise FlagError(str(error)) from None
    except ImportError as error:
        raise refused("runner", standard.runner, f"must be installed: {error}") from None
    except Exception as error:
        # No record was read yet, so that whatever went wrong may be said.
        condition = f"must be one that Beam can load: {type(error).__name__}: {error}"
        raise refused("runner", standard.runner, condition) from None


def refuse_unshared_output(output: str, runner: str, name: str = "output") -> None:
    """Refuses a folder of one machine for a runner whose workers share none.

    Raises:
        FlagError: if it is refused.
    """
    if "://" not in output and runner_name(runner) in _DATAFLOW:
        condition = "must not be a folder of one machine with --runner"
        raise refused(name, output, f"{condition} {runner}: its workers share none")
