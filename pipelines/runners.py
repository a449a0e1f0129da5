"""Creates pipelines for Beam's flags, which are checked before the budget is spent.

After the budget is spent, Beam's messages are withheld, because the job may have read records.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from urllib.parse import urlsplit

import apache_beam as beam
import grpc  # type: ignore[import-untyped]
import pyarrow as pa
from apache_beam.options import pipeline_options as beam_options
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from beam_dp.cli.doctor import Finding
from beam_dp.flags.flag import FlagError, nearest, one_of, refused

from . import job_servers
from .job_servers import FLINK_RUNNER, JAR_SERVERS, PRISM_RUNNER

ENVIRONMENTS = ("DOCKER", "PROCESS", "EXTERNAL", "LOOPBACK")
_OF_BEAM = "beam:env:"
_PORTABLE = "PortableRunner"
_EMBEDDED = "embed"


def runner_name(text: str) -> str:
    """Returns the class name of the runner that Beam uses for a typed name.

    Beam accepts the names of its own runners in upper or lower case, and without "Runner"; other
    runners need their full names.
    """
    runners = {name.lower(): name for name in beam_options.StandardOptions.KNOWN_RUNNER_NAMES}
    short = text.lower()
    return runners.get(short) or runners.get(f"{short}runner") or text.rpartition(".")[2]


_MOST_THREADS = 1_024


class ThreadOptions(beam_options.PipelineOptions):
    """The flag for threads, which is passed like Beam's own; Beam has none."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--num_threads", type=int)


def check_beam_flags(options: beam_options.PipelineOptions, runner: str) -> None:
    """Refuses values of Beam's flags that would make any job fail."""
    setup = options.view_as(beam_options.SetupOptions)
    portable = options.view_as(beam_options.PortableOptions)
    _check_file("requirements_file", setup.requirements_file)
    named = ", named setup.py or pyproject.toml"
    _check_file("setup_file", setup.setup_file, r"setup\.py|pyproject\.toml", named)
    for package in setup.extra_packages or ():
        if "://" not in package:  # Beam itself fetches a remote package
            named = ", named .tar, .tar.gz, .whl or .zip"
            _check_file("extra_package", package, r".*\.(tar|tar\.gz|whl|zip)", named)
    direct = options.view_as(beam_options.DirectOptions)
    _check_at_least("direct_num_workers", direct.direct_num_workers, 0)
    flink = options.view_as(beam_options.FlinkRunnerOptions)
    for name in ("parallelism", "max_parallelism"):
        if getattr(flink, name) != -1:  # Beam's default: the engine decides
            _check_at_least(name, getattr(flink, name), 1)
    _check_environment(portable.environment_type)
    _check_endpoint(runner, portable.job_endpoint)
    threads = options.view_as(ThreadOptions).num_threads
    if threads is not None:
        if not 1 <= threads <= _MOST_THREADS:
            raise refused("num_threads", threads, f"must be from 1 to {_MOST_THREADS:,}")
        if runner not in beam_options.StandardOptions.LOCAL_RUNNERS:
            condition = f"must be left out with --runner {runner}: its workers take one thread each"
            raise refused("num_threads", threads, condition)


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
                f"--job_endpoint is required with --runner {_PORTABLE}: host:port of a job server"
            )
        return
    # Of Beam's local runners, only Prism uses a job server.
    ignores_it = runner in beam_options.StandardOptions.LOCAL_RUNNERS and runner != PRISM_RUNNER
    if endpoint == _EMBEDDED or ignores_it:
        return
    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=job_servers.SECONDS_TO_ANSWER)
        except grpc.FutureTimeoutError:
            limit = f"within {job_servers.SECONDS_TO_ANSWER:g} seconds"
            condition = f"must be host:port of a job server that answers {limit}"
            raise refused("job_endpoint", endpoint, condition) from None


# DirectRunner would first try to download another runner.
LOCAL_RUNNER = "FnApiRunner"
_PROCESSES = "multi_processing"


def empty_pipeline(options: beam_options.PipelineOptions) -> beam.Pipeline:
    """Returns an empty pipeline on the runner that the options name."""
    pipeline = beam.Pipeline(runner=_silent_processes(options), options=options)
    # Beam's folder for cross-language transforms is not used here, and only a run would remove it.
    os.rmdir(pipeline.local_tempdir)
    return pipeline


def _silent_processes(options: beam_options.PipelineOptions) -> FnApiRunner | None:
    """Returns Beam's local runner with silent worker processes, if options ask for processes."""
    # Beam's own processes print messages, and tracebacks that may quote records.
    direct = options.view_as(beam_options.DirectOptions)
    runner = runner_name(options.view_as(beam_options.StandardOptions).runner)
    is_local = runner in beam_options.StandardOptions.LOCAL_RUNNERS and runner != PRISM_RUNNER
    if direct.direct_running_mode != _PROCESSES or not is_local:
        return None
    direct.direct_running_mode = "in_memory"  # keeps the runner from replacing the command
    worker = f"{shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main"
    silent = f"exec {worker} > {os.devnull} 2>&1"
    return FnApiRunner(SubprocessSDKEnvironment.from_command_string(silent))


_DATAFLOW = ("DataflowRunner", "TestDataflowRunner")


def prepare_dataflow(_: beam_options.PipelineOptions, runner: str) -> None:
    """Refuses Dataflow if Beam's client is missing; Beam itself checks only when submitting."""
    try:
        importlib.import_module("apache_beam.runners.dataflow.internal.apiclient")
    except ImportError:
        condition = "must be installed: pip install 'apache-beam[gcp]'"
        raise refused("runner", runner, condition) from None


# Finds missing parts of a runner before a budget is spent; later messages are withheld.
_PREPARED: dict[str, Callable[[beam_options.PipelineOptions], None]] = {
    FLINK_RUNNER: job_servers.prepare_flink,
    PRISM_RUNNER: job_servers.prepare_prism,
    **{name: partial(job_servers.prepare_jar_server, runner=name) for name in JAR_SERVERS},
    **{name: partial(prepare_dataflow, runner=name) for name in _DATAFLOW},
}


def make_pipeline(beam_flags: Sequence[str], output: str) -> beam.Pipeline:
    """Returns an empty pipeline for Beam's flags; the default runner is FnApiRunner."""
    options = beam_options.PipelineOptions(list(beam_flags))
    standard = options.view_as(beam_options.StandardOptions)
    refuse_unshared_output(output, standard.runner or LOCAL_RUNNER)
    return pipeline_of(options)


def pipeline_of(options: beam_options.PipelineOptions) -> beam.Pipeline:
    """Returns an empty pipeline for Beam's options; the default runner is FnApiRunner."""
    standard = options.view_as(beam_options.StandardOptions)
    standard.runner = standard.runner or LOCAL_RUNNER
    runner = runner_name(standard.runner)
    check_beam_flags(options, runner)
    if runner in _PREPARED:
        _PREPARED[runner](options)
    if threads := options.view_as(ThreadOptions).num_threads:
        pa.set_cpu_count(threads)
    try:
        return empty_pipeline(options)
    except ValueError as error:
        if "Unexpected pipeline runner" in str(error):
            near = nearest(standard.runner, beam_options.StandardOptions.KNOWN_RUNNER_NAMES)
            condition = f"must be a runner that Beam knows; the nearest is {near}"
            raise refused("runner", standard.runner, condition) from None
        raise FlagError(str(error)) from None
    except ImportError as error:
        raise refused("runner", standard.runner, f"must be installed: {error}") from None
    except Exception as error:
        # No record has been read yet, so the message may be shown.
        condition = f"must be one that Beam can load: {type(error).__name__}: {error}"
        raise refused("runner", standard.runner, condition) from None


def refuse_unshared_output(output: str, runner: str, name: str = "output") -> None:
    """Refuses a local folder for a runner whose workers do not share it."""
    if "://" not in output and runner_name(runner) in _DATAFLOW:
        condition = "must be a URL such as gs://BUCKET/FOLDER with --runner"
        raise refused(name, output, f"{condition} {runner}: its workers share no local folder")


def runner_findings() -> Iterator[Finding]:
    """Yields, per runner, a finding that says whether the runner works; contacts no cluster."""
    yield _local()
    yield _prepared(FLINK_RUNNER, job_servers.prepare_flink, job_servers.FLINK_VARIABLE)
    yield _prepared(PRISM_RUNNER, job_servers.prepare_prism, job_servers.PRISM_VARIABLE)
    yield _prepared(_DATAFLOW[0], lambda options: prepare_dataflow(options, _DATAFLOW[0]))


def _local() -> Finding:
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        pipeline = empty_pipeline(beam_options.PipelineOptions([f"--runner={LOCAL_RUNNER}"]))
        _ = pipeline | beam.Create([1, 2]) | beam.CombineGlobally(sum)
        pipeline.run().wait_until_finish()
    except Exception as error:
        return Finding("broken", LOCAL_RUNNER, f"a small job failed: {error}")
    finally:
        logging.disable(disabled)
    return Finding("works", LOCAL_RUNNER, "ran a small job")


def _prepared(
    runner: str,
    prepare: Callable[[beam_options.PipelineOptions], None],
    variable: str = "",
) -> Finding:
    place = os.environ.get(variable, "")
    if urlsplit(place).scheme:
        text = f"{variable} names {place}, which is fetched before a job, and was not tried"
        return Finding("missing", runner, text)
    try:
        prepare(beam_options.PipelineOptions([f"--runner={runner}"]))
    except FlagError as error:
        flag = r"^--\w+( is required with --runner \w+|: '\w+' is not valid)"
        return Finding("missing", runner, re.sub(flag, "not set up", str(error)))
    text = "is installed; jobs need an account" if runner == _DATAFLOW[0] else f"found: {place}"
    return Finding("works", runner, text)
