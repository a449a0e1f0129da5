"""Windows: exact tables, as in batch and by hand, whatever a stream does; each is drawn once."""

from __future__ import annotations

import itertools
import operator
import pathlib
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import limited_panes
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from fakes import outputs, pipeline
from hypothesis import given, settings, strategies as st
from limited_panes import IN_ORDER

import beam_dp as dp
from beam_dp.releases.windows.horizon_files import block_directory, window_directory
from beam_dp.secret.encoding.contributions import select_records
from beam_dp.secret.encoding.units import unit_fingerprints
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.count_windows import CountWindows
from beam_dp.transforms.windows import WindowsPlan

DOMAIN = dp.Domain((dp.IntegerAttribute("a", 0, 3), dp.IntegerAttribute("b", 0, 1)))
HORIZON = dp.Horizon(100, 10, 12, 5)
RECORDS = dp.WindowUnit("record", 1, 1, 1)
LONG = dp.Domain((dp.IntegerAttribute("a", 0, 300_000),))
NUM_PARTITIONS = 2
Panes = list[tuple[int, list[int], int, int]]  # number, counts, end of Beam's window, which pane
# Of this process, in which both runners run.
PANES: defaultdict[dp.WindowUnit, Panes] = defaultdict(list)
SHARDS: list[tuple[int, list[tuple[int, bytes]]]] = []


class Keep(beam.DoFn):
    def __init__(self, unit: dp.WindowUnit) -> None:
        self.unit = unit

    def process(self, pane, window=beam.DoFn.WindowParam, info=beam.DoFn.PaneInfoParam):
        number, shards = pane
        counts = HistogramAccumulator(DOMAIN).from_shards(shards).counts.tolist()
        PANES[self.unit].append((number, counts, int(window.end), info.index))


def keep_shards(pane):
    SHARDS.append((pane[0], list(pane[1])))


@st.composite
def schedules(draw: st.DrawFn) -> list[list[dict[str, int]]]:
    """Rows as they arrive, second by second: in order or not, some too late, some from the future,
    some outside the domain; windows may stay empty, and time may jump over several."""
    now, arriving = 90, []
    for jump in draw(st.lists(st.integers(1, 40), min_size=2, max_size=10)):
        now += jump
        event = st.integers(now - 30, now + 3)
        row = st.builds(
            lambda a, b, event, person, now=now: {
                "a": a, "b": b, "event": event, "arrival": now, "person": person
            },
            st.integers(-1, 3), st.integers(0, 1), event, st.integers(0, 4),
        )  # fmt: skip
        arriving.append(draw(st.lists(row, max_size=20)))
    return arriving


@st.composite
def units(draw: st.DrawFn) -> dp.WindowUnit:
    protected = draw(st.integers(1, HORIZON.num_windows))
    most = draw(st.integers(1, protected))
    return dp.WindowUnit("person", draw(st.integers(1, 3)), most, protected)


def window_of(row: dict[str, int]) -> int | None:
    """The window that a row counts in, if it does."""
    number = (row["event"] - HORIZON.start) // HORIZON.window
    if not 0 <= number < HORIZON.num_windows or row["a"] < 0:
        return None
    return number if row["event"] <= row["arrival"] < HORIZON.closes(number) else None


def panes_of(counts: Counter[tuple[int, int]]) -> Panes:
    return [
        (number, [counts[number, cell] for cell in range(8)], HORIZON.closes(number), 0)
        for number in range(HORIZON.num_windows)
    ]


def by_hand(arriving: list[list[dict[str, int]]], unit: dp.WindowUnit = RECORDS) -> Panes:
    held: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, row in enumerate(row for rows in arriving for row in rows):
        number = window_of(row)
        if number is not None:
            who = place if unit is RECORDS else row["person"]
            held[who][number].append(2 * row["a"] + row["b"])
    counts: Counter[tuple[int, int]] = Counter()
    for who, windows in held.items():
        kept: list[int] = []
        for number, cells in sorted(windows.items()):
            recent = [each for each in kept if each > number - unit.protected_windows]
            if len(recent) < unit.max_windows_per_unit:
                kept.append(number)
                counts.update((number, cell) for cell in lowest(who, cells, unit))
    return panes_of(counts)


def lowest(person: int, cells: list[int], unit: dp.WindowUnit) -> list[int]:
    """The records of one unit alone that are used."""
    units, _ = unit_fingerprints(pa.array([person] * len(cells)))
    words, ones = [np.array(cells, "<u4")], np.ones(len(cells), np.int64)
    stay = select_records(units, words, ones, unit.max_records_per_unit, None)
    return [cells[place] for place in stay]


def counted(
    source: Any, units: Sequence[dp.WindowUnit] = (RECORDS,), runner: str | None = None
) -> list[Panes]:
    """What one pass counts for each kind of unit."""
    PANES.clear()
    options = PipelineOptions([f"--runner={runner}", "--streaming"])
    with pipeline() if runner is None else beam.Pipeline(options=options) as p:
        records = p | source
        for place, unit in enumerate(units):
            count = CountWindows(
                DOMAIN, HORIZON, unit, "event", "arrival", NUM_PARTITIONS, unit_costs=None
            )
            _ = records | f"Count {place}" >> count | f"Keep {place}" >> beam.ParDo(Keep(unit))
    return [sorted(PANES[unit]) for unit in units]


def in_a_stream(
    arriving: list[list[dict[str, int]]], units: Sequence[dp.WindowUnit]
) -> list[Panes]:
    """The watermark follows arrivals; it says nothing of the future."""
    stream = test_stream.TestStream()
    for rows in arriving:
        if rows:
            now = Timestamp(rows[0]["arrival"])
            stream = stream.advance_watermark_to(now)
            stream = stream.add_elements([TimestampedValue(row, now) for row in rows])
    return counted(stream.advance_watermark_to_infinity(), units, "BundleBasedDirectRunner")


def compare(arriving: list[list[dict[str, int]]], unit: dp.WindowUnit) -> None:
    """The tables of a stream and of a batch, of records and of units, counted one by one."""
    units = RECORDS, unit
    expected = [by_hand(arriving, each) for each in units]
    assert in_a_stream(arriving, units) == expected
    batch = beam.Create([row for rows in arriving for row in rows][::-1])
    assert counted(batch, units) == expected


@pytest.mark.job
@pytest.mark.parametrize(
    "num_schedules",
    [2, pytest.param(14, marks=pytest.mark.part), pytest.param(100, marks=pytest.mark.release)],
)
def test_stream_and_batch_give_the_same_tables(num_schedules):
    arriving = schedules().filter(lambda arriving: sum(map(len, arriving)) > 9)
    settings(max_examples=num_schedules)(given(arriving, units())(compare))()


@pytest.mark.job
def test_batches_count_like_rows_and_empty_windows_have_tables():
    arriving = [
        [{"a": n % 4, "b": n % 2, "event": 95 + n, "arrival": 100 + n, "person": n}]
        for n in range(100)
    ]
    rows = [row for part in arriving for row in part]
    batch = pa.RecordBatch.from_pylist(rows)
    batches = beam.Create([batch.slice(0, 50), batch.slice(50)])
    assert counted(batches) == [by_hand(arriving)]
    expected = [(number, [0] * 8, HORIZON.closes(number), 0) for number in range(12)]
    row = {"a": 0, "b": 0, "event": 99, "arrival": 99}
    assert counted(beam.Create([row])) == [expected]


@pytest.mark.job
def test_counts_tables_of_several_blocks():
    horizon = dp.Horizon(0, 10, 2, 0)
    rows = [{"a": a, "t": t} for a, t in ((0, 3), (300_000, 4), (299_999, 15), (300_000, 4))]
    SHARDS.clear()
    with pipeline() as p:
        _ = (
            p
            | beam.Create(rows)
            | CountWindows(LONG, horizon, RECORDS, "t", "t", unit_costs=None)
            | beam.Map(keep_shards)
        )
    found = {}
    for number, shards in SHARDS:
        assert {block for block, _ in shards} == {0, 2}
        counts = HistogramAccumulator(LONG).from_shards(shards).counts
        found[number] = {int(cell): int(counts[cell]) for cell in np.flatnonzero(counts)}
    assert found == {0: {0: 1, 300_000: 2}, 1: {299_999: 1}}


# Also of the future, too late, beyond the horizon, and outside the domain.
EVENTS = st.integers(-5, 65)
ROWS = st.lists(
    st.builds(
        lambda person, cell, event, delay: (person, cell, event, event + delay),
        st.integers(0, 4),
        st.integers(-1, 3),
        EVENTS,
        st.integers(-2, 18),
    ),
    max_size=40,
)
LIMITS = st.integers(1, 6).flatmap(
    lambda protected: st.builds(
        lambda k, c: dp.WindowUnit("person", k, c, protected),
        st.integers(1, 3),
        st.integers(1, protected),
    )
)


@settings(max_examples=40)
@given(rows=ROWS, unit=LIMITS, order=st.permutations(IN_ORDER), bundles=st.integers(1, 3))
def test_tables_do_not_depend_on_order_of_panes_and_records(rows, unit, order, bundles):
    expected = limited_panes.counted(rows, unit, IN_ORDER)
    np.testing.assert_array_equal(limited_panes.counted(rows[::-1], unit, order, bundles), expected)


@settings(max_examples=60)
@given(rows=ROWS, unit=LIMITS, person=st.integers(0, 4))
def test_unit_changes_at_most_c_windows_by_at_most_k_records(rows, unit, person):
    others = [row for row in rows if row[0] != person]
    moved = limited_panes.counted(rows, unit, IN_ORDER) - limited_panes.counted(
        others, unit, IN_ORDER
    )
    assert (moved >= 0).all()
    by_window = moved.sum(axis=1)
    assert by_window.max() <= unit.max_records_per_unit
    for start in range(limited_panes.HORIZON.num_windows):
        span = by_window[start : start + unit.protected_windows]
        assert np.count_nonzero(span) <= unit.max_windows_per_unit


SIX_WINDOWS = dp.Horizon(100, 10, 6, 5)
WORKLOAD = dp.marginals(DOMAIN, ways=2)
# Next to no noise.
SURE = dp.plan_window_tables(WORKLOAD, SIX_WINDOWS, RECORDS, 2e4, 0.0, strategy="levels", block=3)
RELEASED_ROWS = [
    {"a": number % 4, "b": number % 2, "t": 100 + 7 * number % 60, "arrival": 100 + 7 * number % 60}
    for number in range(50)
] + [{"a": 1, "b": 1, "t": 131, "arrival": 145}, {"a": 1, "b": 1, "t": 131, "arrival": 144}]

ARRIVAL = operator.itemgetter("arrival")


def tables() -> np.ndarray:
    """The last row but one came too late."""
    counts = np.zeros((6, 4, 2))
    for row in RELEASED_ROWS[:-2] + RELEASED_ROWS[-1:]:
        counts[(row["t"] - 100) // 10, row["a"], row["b"]] += 1
    return counts


def begin(plan: WindowsPlan, directory: pathlib.Path, **changed: Any) -> str:
    given = {"event_time": "t", "arrival": "arrival", "replayable": True, **changed}
    return dp.begin_windows(plan, directory, **given)


def run(
    plan: WindowsPlan, directory: pathlib.Path, rows: Sequence[dict[str, Any]] = RELEASED_ROWS
) -> None:
    release = dp.ReleaseWindows(plan, directory, begin(plan, directory), "t", "arrival")
    with pipeline() as p:
        _ = p | beam.Create(rows) | release


def draws(directory: pathlib.Path) -> dict[str, str]:
    """The draw of each release, by its folder."""
    cards = sorted(directory.rglob("card.json"))
    return {str(card.parent): dp.read_release(card.parent).draw_id for card in cards}


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> pathlib.Path:
    found = tmp_path_factory.mktemp("windows") / "out"
    run(SURE, found)
    return found


@pytest.mark.job
def test_releases_every_window_and_block(directory):
    release = dp.read_windows(directory)
    assert release.released == tuple(range(6))
    for number, counts in enumerate(tables()):
        (answer,) = release.answer(WORKLOAD, slice(number, number + 1))
        np.testing.assert_allclose(answer.values, counts, atol=0.01)
    (answer,) = release.answer(WORKLOAD, slice(1, 5))
    np.testing.assert_allclose(answer.values, tables()[1:5].sum(axis=0), atol=0.01)
    for number in range(2):
        block = dp.read_release(block_directory(directory, 3, number))
        np.testing.assert_allclose(
            block.tables[WORKLOAD.marginals[0]], tables()[3 * number :][:3].sum(axis=0), atol=0.01
        )
    assert not list(directory.rglob(".draft-*"))


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
    assert dp.read_windows(copy).released == tuple(range(6))


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
    for arrival, rows in itertools.groupby(sorted(RELEASED_ROWS, key=ARRIVAL), key=ARRIVAL):
        now = Timestamp(arrival)
        stream = stream.advance_watermark_to(now)
        stream = stream.add_elements([TimestampedValue(row, now) for row in rows])
    options = PipelineOptions(["--runner=BundleBasedDirectRunner", "--streaming"])
    horizon_id = begin(SURE, tmp_path / "out")
    with beam.Pipeline(options=options) as p:
        _ = (
            p
            | stream.advance_watermark_to_infinity()
            | dp.ReleaseWindows(SURE, tmp_path / "out", horizon_id, "t", "arrival")
        )
    release = dp.read_windows(tmp_path / "out")
    found = [release.answer(WORKLOAD, slice(n, n + 1))[0].values for n in range(6)]
    np.testing.assert_allclose(found, tables(), atol=0.01)
    assert len(draws(tmp_path / "out")) == 8


@pytest.mark.job
def test_releases_synthetic_database_of_each_window(tmp_path):
    plan = dp.plan_window_databases(dp.Laplace(), WORKLOAD, SIX_WINDOWS, RECORDS, 1e3, 0.0)
    run(plan, tmp_path / "out")
    for number, counts in enumerate(tables()):
        found = dp.read_release(window_directory(tmp_path / "out", number))
        assert isinstance(found, dp.SyntheticDatabase)
        np.testing.assert_allclose(found.answer(WORKLOAD)[0].values, counts, atol=1)


@pytest.mark.job
def test_identical_records_of_a_unit_count_up_to_the_limit_per_window():
    unit = dp.WindowUnit("u", 200, 2, 6)
    rows = [
        {"a": 1, "b": 1, "t": t, "arrival": t, "u": 7} for t in (101, 131, 151) for _ in range(200)
    ]
    mechanisms = {
        "mwem": dp.MWEM(max_unit_cost=2),
        "gaussian": dp.Gaussian(max_unit_cost=3),
        "planned": dp.MWEM(max_unit_cost="planned"),
    }
    plans = {
        name: dp.plan_window_databases(each, WORKLOAD, SIX_WINDOWS, unit, 1.0, 1e-6)
        for name, each in mechanisms.items()
    }
    found = outputs(
        {
            name: lambda p, plan=plan: (
                p
                | beam.Create(rows)
                | dp.ReleaseWindows(plan, "unused", "0" * 32, "t", "arrival").count
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
