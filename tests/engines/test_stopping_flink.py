"""A signal stops a job on an embedded Flink, whose workers are threads of the program."""

from __future__ import annotations

import pathlib
import signal

import pytest
from stopped_program import assert_stops

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_write_leaves_no_draft(
    tmp_path: pathlib.Path, job_server_jar: str, number: signal.Signals
) -> None:
    flags = [
        "--runner=FlinkRunner",
        "--flink_master=[local]",
        f"--flink_job_server_jar={job_server_jar}",
    ]
    assert_stops(tmp_path, number, flags)
