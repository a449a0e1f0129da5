"""Creates pipelines for Beam's flags, which are checked before the budget is spent.

After the budget is spent, Beam's messages are withheld, because the job may have read records.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import apache_beam as beam
import grpc  # type: ignore[import-untyped]
import pyarrow as pa
from apache_beam.options import pipeline_options as beam_options
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from beam_dp.cli.doctor import Finding
from beam_dp.flags.flag import FlagError, refused

from . import job_servers
from .beam_flags import DATAFLOW, LOCAL_RUNNER, check_values, refuse_unshared_output, runner_name
from .installed_beam import ThreadOptions
from .job_servers import FLINK_RUNNER, PRISM_RUNNER

_EMBEDDED = "embed"
_PROCESSES = "multi_processing"
# The options that may get the name of a program which was found.
_OPTIONS_OF = {
    "flink_job_server_jar": beam_options.FlinkRunnerOptions,
    "job_server_java_launcher": beam_options.JobServerOptions,
    "prism_location": beam_options.PrismRunnerOptions,
}


def _check_endpoint(runner: str, endpoint: str | None) -> None:
    """Waits for a job server to answer, as Beam does."""
    # Of Beam's local runners, only Prism uses a job server.
    ignores_it = runner in beam_options.StandardOptions.LOCAL_RUNNERS and runner != PRISM_RUNNER
    if not endpoint or endpoint == _EMBEDDED or ignores_it:
        return
    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=job_servers.SECONDS_TO_ANSWER)
        except grpc.FutureTimeoutError:
            limit = f"within {job_servers.SECONDS_TO_ANSWER:g} seconds"
            condition = f"must be host:port of a job server that answers {limit}"
            raise refused("job_endpoint", endpoint, condition) from None


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


def _check_dataflow(runner: str) -> None:
    """Refuses Dataflow if Beam's client is missing; Beam itself checks only when submitting."""
    try:
        importlib.import_module("apache_beam.runners.dataflow.internal.apiclient")
    except ImportError:
        condition = "must be installed: pip install 'apache-beam[gcp]'"
        raise refused("runner", runner, condition) from None


def prepare(options: beam_options.PipelineOptions) -> None:
    """Checks Beam's flags and what the runner needs; adds flags that name programs."""
    # Finds what is missing before a budget is spent; later messages are withheld.
    found = check_values(options.get_all_options(drop_default=True))
    given = options.get_all_options() | found
    runner = runner_name(given["runner"])
    _check_endpoint(runner, given["job_endpoint"])
    if runner in DATAFLOW:
        _check_dataflow(runner)
    for name, value in (found | job_servers.fetch(runner, given)).items():
        setattr(options.view_as(_OPTIONS_OF[name]), name, value)


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
    prepare(options)
    if threads := options.view_as(ThreadOptions).num_threads:
        pa.set_cpu_count(threads)
    try:
        return empty_pipeline(options)
    except ValueError as error:
        raise FlagError(str(error)) from None
    except ImportError as error:
        raise refused("runner", standard.runner, f"must be installed: {error}") from None
    except Exception as error:
        # No record has been read yet, so the message may be shown.
        condition = f"must be one that Beam can load: {type(error).__name__}: {error}"
        raise refused("runner", standard.runner, condition) from None


def runner_findings() -> Iterator[Finding]:
    """Yields, per runner, a finding that says whether the runner works; contacts no cluster."""
    yield _local()
    yield _prepared(FLINK_RUNNER, job_servers.FLINK_VARIABLE)
    yield _prepared(PRISM_RUNNER, job_servers.PRISM_VARIABLE)
    yield _prepared(DATAFLOW[0])


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


def _prepared(runner: str, variable: str = "") -> Finding:
    place = os.environ.get(variable, "")
    if urlsplit(place).scheme:
        text = f"{variable} names {place}, which is fetched before a job, and was not tried"
        return Finding("missing", runner, text)
    try:
        prepare(beam_options.PipelineOptions([f"--runner={runner}"]))
    except FlagError as error:
        flag = r"^--\w+( is required with --runner \w+|: '\w+' is not valid)"
        return Finding("missing", runner, re.sub(flag, "not set up", str(error)))
    text = "is installed; jobs need an account" if runner == DATAFLOW[0] else f"found: {place}"
    return Finding("works", runner, text)
