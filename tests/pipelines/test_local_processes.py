"""Workers of the local runner in processes of their own show nothing of what they work on."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from pytest import CaptureFixture

from pipelines.progress import Progress
from pipelines.runners import empty_pipeline, make_pipeline
from pipelines.running import run_pipeline

VALUE = "remarkable-4711"
PROCESSES = "--direct_running_mode=multi_processing"


def speaker(fails: bool) -> Callable[[str], str]:
    """A function that says its value in every way; workers cannot import the module of a test."""

    def speak(value: str) -> str:
        print(value)
        print(value, file=sys.stderr, flush=True)
        warnings.warn(value, stacklevel=1)
        for name in (None, "apache_beam", "beam_dp"):
            logging.getLogger(name).critical(value)
        if fails:
            raise ValueError(value)
        return value

    return speak


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_processes_show_no_record_and_nothing_of_beam(
    tmp_path: Path, capfd: CaptureFixture[str], fails: bool
) -> None:
    flags = (PROCESSES, "--direct_num_workers=1")
    pipeline = make_pipeline(flags, "out")
    _ = pipeline | beam.Create([VALUE]) | beam.Map(speaker(fails))
    assert run_pipeline(pipeline, Progress(), [str(tmp_path / "out")]) is not fails
    out, err = capfd.readouterr()
    line = r"error: the job failed with RuntimeError[^\n]*; its message is withheld[^\n]*\n"
    assert out == ""
    assert re.fullmatch(line if fails else "", err), err
    assert VALUE not in err


@pytest.mark.parametrize(
    ("runner", "expected"),
    [
        ("DirectRunner", "FnApiRunner"),
        ("direct", "FnApiRunner"),
        ("PrismRunner", "PrismRunner"),
    ],
)
def test_processes_are_silent_whatever_the_local_runner_is_called(
    runner: str, expected: str
) -> None:
    pipeline = empty_pipeline(PipelineOptions([f"--runner={runner}", PROCESSES]))
    assert type(pipeline.runner).__name__ == expected
