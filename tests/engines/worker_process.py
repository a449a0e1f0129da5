"""A Python worker of the cluster that can wait at a moment of its work: see ``moments``."""

import os
import pathlib

from apache_beam.runners.worker.sdk_worker import SdkHarness
from engines import moments

import beam_dp.transforms  # noqa: F401  # once, before workers are forked


def run(control: str, worker_id: str, folder: str) -> None:
    """Works for a task manager until it is released."""
    (pathlib.Path(folder) / str(os.getpid())).write_text(control)
    moments.install(control)
    try:
        SdkHarness(control, worker_id=worker_id, data_buffer_time_limit_ms=-1).run()
    finally:
        # As when a container stops: no thread may finish unless a test wants it to.
        moments.outlive()
        os._exit(0)
