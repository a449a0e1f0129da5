"""Which runners work here, for `beam-dp doctor`: by the checks that come before a job."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dp.cli.doctor import Finding
from beam_dp.flags.flag import FlagError

from .common import prepare_dataflow
from .empty_pipeline import LOCAL_RUNNER, empty_pipeline
from .flink import JAR_VARIABLE, RUNNER as FLINK_RUNNER, prepare_flink
from .prism import RUNNER as PRISM_RUNNER, VARIABLE as PRISM_VARIABLE, prepare_prism

_DATAFLOW = "DataflowRunner"


def runner_findings() -> Iterator[Finding]:
    """Yields whether each runner works, that of this machine first.

    That one runs a small job. Of the others their programs, jars and libraries are looked for, as
    before a job; nothing is fetched, and no cluster is asked.
    """
    yield _local()
    yield _prepared(FLINK_RUNNER, prepare_flink, JAR_VARIABLE)
    yield _prepared(PRISM_RUNNER, prepare_prism, PRISM_VARIABLE)
    yield _prepared(_DATAFLOW, lambda options: prepare_dataflow(options, _DATAFLOW))


def _local() -> Finding:
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        pipeline = empty_pipeline(PipelineOptions([f"--runner={LOCAL_RUNNER}"]))
        _ = pipeline | beam.Create([1, 2]) | beam.CombineGlobally(sum)
        pipeline.run().wait_until_finish()
    except Exception as error:
        return Finding("broken", LOCAL_RUNNER, f"a small job failed: {error}")
    finally:
        logging.disable(disabled)
    return Finding("works", LOCAL_RUNNER, "ran a small job")


def _prepared(
    runner: str, prepare: Callable[[PipelineOptions], None], variable: str | None = None
) -> Finding:
    place = os.environ.get(variable, "") if variable else ""
    if urlsplit(place).scheme:
        told = f"{variable} names {place}, which is fetched before a job, and was not tried"
        return Finding("missing", runner, told)
    try:
        prepare(PipelineOptions([f"--runner={runner}"]))
    except FlagError as error:
        return Finding("missing", runner, str(error))
    told = "is installed; jobs need an account" if runner == _DATAFLOW else f"found: {place}"
    return Finding("works", runner, told)
