"""Rows of a release on Flink, where a task manager is killed between the draw and the sink."""

import json
import pathlib
import threading

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from engines import faults, moments
from job_pages import DOMAIN, PEOPLE, released, write_row
from patience import HANG_SECONDS, wait_for

import beam_dp as dp


def write_rows(folder: pathlib.Path, flags: list[str]) -> None:
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        written = released("intervals", pipeline | beam.Create(PEOPLE), folder / "out")
        rows = written | dp.IntervalRows(domain=DOMAIN, attribute="age")
        _ = rows | beam.Map(write_row, folder)


@pytest.mark.engines
@pytest.mark.part
@pytest.mark.parametrize("moment", [moments.DRAWN, moments.AFTER_CARD, moments.BEFORE_TIDYING])
def test_rows_of_one_draw_reach_the_sink_after_a_kill(tmp_path, cluster, waiting, moment):
    job = threading.Thread(target=write_rows, args=(tmp_path, cluster.flags()), daemon=True)
    waiting.arm(moment)
    job.start()
    try:
        faults.kill(cluster, faults.TASK_MANAGER, wait_for(moment, waiting.reached))
        waiting.let_go()
        job.join(timeout=HANG_SECONDS)
    finally:
        waiting.let_go()
        faults.repair(cluster)
        draws = waiting.draws()
        waiting.disarm()
    rows = [json.loads(path.read_text()) for path in tmp_path.glob("row-*")]
    assert {row["low"] for row in rows} == set(range(10))
    assert {row["draw_id"] for row in rows} == {dp.read_release(tmp_path / "out").draw_id}
    assert len(draws) > 1  # the test is not blind: noise was drawn again
