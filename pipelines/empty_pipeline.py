"""Empty Beam pipelines that leave no folder and whose local workers are silent."""

from __future__ import annotations

import os
import shlex
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from .beam_flags import runner_name
from .prism import RUNNER as PRISM_RUNNER

# Not DirectRunner: that one looks for another runner to download first.
LOCAL_RUNNER = "FnApiRunner"
_PROCESSES = "multi_processing"


def empty_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """Returns an empty pipeline on the runner that the options name.

    Raises:
        ValueError: Beam knows no such runner.
        ImportError: it is not installed.
    """
    pipeline = beam.Pipeline(runner=_silent_processes(options), options=options)
    # For transforms of other languages, of which there are none; Beam removes it only after a run.
    os.rmdir(pipeline.local_tempdir)
    return pipeline


def _silent_processes(options: PipelineOptions) -> FnApiRunner | None:
    """Beam's local runner, if it shall start processes: it would let them print to our terminal.

    What they say there, beside what they log to the runner, are Beam's messages, and tracebacks
    that may quote records.
    """
    direct = options.view_as(DirectOptions)
    runner = runner_name(options.view_as(StandardOptions).runner)
    is_local = runner in StandardOptions.LOCAL_RUNNERS and runner != PRISM_RUNNER
    if direct.direct_running_mode != _PROCESSES or not is_local:
        return None
    direct.direct_running_mode = "in_memory"  # so that the runner keeps the command
    worker = f"{shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main"
    silent = f"exec {worker} > {os.devnull} 2>&1"
    return FnApiRunner(SubprocessSDKEnvironment.from_command_string(silent))
