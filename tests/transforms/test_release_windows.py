"""Releases of windows: each in its folder, drawn once, whatever is run again."""

from __future__ import annotations

import itertools
import operator
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from fakes import outputs, pipeline

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.windows.plan import plan_window_databases, plan_window_tables
from beam_dp.queries.workload import marginals
from beam_dp.releases.kinds import read_release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.windows.horizon_files import block_directory, read_windows, window_directory
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.drawing.release_windows import (
    ReleaseWindows,
    WindowsPlan,
    begin_windows,
)
from beam_dp.windows.horizon import Horizon, WindowUnit

DOMAIN = Domain((IntegerAttribute("a", 0, 3), IntegerAttribute("b", 0, 1)))
HORIZON = Horizon(100, 10, 6, 5)
RECORDS = WindowUnit("record", 1, 1, 1)
WORKLOAD = marginals(DOMAIN, ways=2)
# Next to no noise.
SURE = plan_window_tables(WORKLOAD, HORIZON, RECORDS, 2e4, 0.0, strategy="levels", block=3)
ROWS = [
    {"a": number % 4, "b": number % 2, "t": 100 + 7 * number % 60, "arrival": 100 + 7 * number % 60}
    for number in range(50)
] + [{"a": 1, "b": 1, "t": 131, "arrival": 145}, {"a": 1, "b": 1, "t": 131, "arrival": 144}]

ARRIVAL = operator.itemgetter("arrival")


def tables() -> np.ndarray:
    """The last row but one came too late."""
    counts = np.zeros((6, 4, 2))
    for row in ROWS[:-2] + ROWS[-1:]:
        counts[(row["t"] - 100) // 10, row["a"], row["b"]] += 1
    return counts


def begin(plan: WindowsPlan, directory: pathlib.Path, **changed: Any) -> str:
    given = {"event_time": "t", "arrival": "arrival", "replayable": True, **changed}
    return begin_windows(plan, directory, **given)


def run(plan: WindowsPlan, directory: pathlib.Path, rows: Sequence[dict[str, Any]] = ROWS) -> None:
    release = ReleaseWindows(plan, directory, begin(plan, directory), "t", "arrival")
    with pipeline() as p:
        _ = p | beam.Create(rows) | release


def draws(directory: pathlib.Path) -> dict[str, str]:
    """The draw of each release, by its folder."""
    cards = sorted(directory.rglob("card.json"))
    return {str(card.parent): read_release(card.parent).draw_id for card in cards}


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> pathlib.Path:
    found = tmp_path_factory.mktemp("windows") / "out"
    run(SURE, found)
    return found


@pytest.mark.job
def test_releases_every_window_and_block(directory):
    release = read_windows(directory)
    assert release.released == tuple(range(6))
    for number, counts in enumerate(tables()):
        (answer,) = release.answer(WORKLOAD, slice(number, number + 1))
        np.testing.assert_allclose(answer.values, counts, atol=0.01)
    (answer,) = release.answer(WORKLOAD, slice(1, 5))
    np.testing.assert_allclose(answer.values, tables()[1:5].sum(axis=0), atol=0.01)
    for number in range(2):
        block = read_release(block_directory(directory, 3, number))
        np.testing.assert_allclose(
            block.tables[WORKLOAD.marginals[0]], tables()[3 * number :][:3].sum(axis=0), atol=0.01
        )
    assert not list(directory.rglob(".draft-*"))


@pytest.mark.job
def test_replay_draws_no_window_twice(directory, tmp_path):
    copy = tmp_path / "out"
    shutil.copytree(directory, copy)
    before = draws(copy)
    assert len(before) == 8
    run(SURE, copy)
    assert draws(copy) == before


@pytest.mark.job
def test_draws_only_missing_windows(directory, tmp_path):
    copy = tmp_path / "out"
    shutil.copytree(directory, copy)
    before = draws(copy)
    gone = {window_directory(copy, 4), block_directory(copy, 3, 1)}
    for folder in gone:
        shutil.rmtree(folder)
    run(SURE, copy)
    after = draws(copy)
    assert {folder for folder, draw in after.items() if before[folder] != draw} == gone
    assert read_windows(copy).released == tuple(range(6))


@pytest.mark.job
def test_completes_committed_release_whose_payload_is_still_in_a_draft(tmp_path):
    """The state left by a writer that was killed between the card and the payload."""
    run(SURE, tmp_path / "out")
    before = draws(tmp_path / "out")
    folder = pathlib.Path(window_directory(tmp_path / "out", 2))
    (payload,) = folder.glob("tables-*.avro")
    draft = folder / ".draft-left"
    draft.mkdir()
    payload.rename(draft / payload.name)
    run(SURE, tmp_path / "out")
    assert draws(tmp_path / "out") == before


@pytest.mark.job
def test_stream_releases_the_same_as_a_batch(tmp_path):
    stream = test_stream.TestStream()
    for arrival, rows in itertools.groupby(sorted(ROWS, key=ARRIVAL), key=ARRIVAL):
        now = Timestamp(arrival)
        stream = stream.advance_watermark_to(now)
        stream = stream.add_elements([TimestampedValue(row, now) for row in rows])
    options = PipelineOptions(["--runner=BundleBasedDirectRunner", "--streaming"])
    horizon_id = begin(SURE, tmp_path / "out")
    with beam.Pipeline(options=options) as p:
        _ = (
            p
            | stream.advance_watermark_to_infinity()
            | ReleaseWindows(SURE, tmp_path / "out", horizon_id, "t", "arrival")
        )
    release = read_windows(tmp_path / "out")
    found = [release.answer(WORKLOAD, slice(n, n + 1))[0].values for n in range(6)]
    np.testing.assert_allclose(found, tables(), atol=0.01)
    assert len(draws(tmp_path / "out")) == 8


@pytest.mark.job
def test_releases_synthetic_database_of_each_window(tmp_path):
    plan = plan_window_databases(Laplace(), WORKLOAD, HORIZON, RECORDS, 1e3, 0.0)
    run(plan, tmp_path / "out")
    for number, counts in enumerate(tables()):
        found = read_release(window_directory(tmp_path / "out", number))
        assert isinstance(found, SyntheticDatabase)
        np.testing.assert_allclose(found.answer(WORKLOAD)[0].values, counts, atol=1)


@pytest.mark.job
def test_identical_records_of_a_unit_count_up_to_the_limit_per_window():
    unit = WindowUnit("u", 200, 2, 6)
    rows = [
        {"a": 1, "b": 1, "t": t, "arrival": t, "u": 7} for t in (101, 131, 151) for _ in range(200)
    ]
    mechanisms = {
        "mwem": MWEM(max_unit_cost=2),
        "gaussian": Gaussian(max_unit_cost=3),
        "planned": MWEM(max_unit_cost="planned"),
    }
    plans = {
        name: plan_window_databases(each, WORKLOAD, HORIZON, unit, 1.0, 1e-6)
        for name, each in mechanisms.items()
    }
    found = outputs(
        {
            name: lambda p, plan=plan: (
                p
                | beam.Create(rows)
                | ReleaseWindows(plan, "unused", "0" * 32, "t", "arrival").count
            )
            for name, plan in plans.items()
        }
    )
    for name, plan in plans.items():
        expected = int(plan.window.public["max_unit_cost"])
        assert expected < 200
        counts = {
            number: HistogramAccumulator(DOMAIN).from_shards(shards).counts.sum()
            for number, shards in found[name]
        }
        assert counts == {0: expected, 1: 0, 2: 0, 3: expected, 4: 0, 5: 0}, name
