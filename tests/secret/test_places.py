"""Where numbers lie within their bins, and the sums of that."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import beam_dp as dp
from beam_dp.flags.shared import MAX_RECORDS
from beam_dp.releases.synthetic_database.bin_sums import GRID
from beam_dp.secret.encoding.levels import PlaceLevels
from beam_dp.secret.encoding.records import encode_places, encode_records
from beam_dp.secret.summaries.histogram import MAX_TOTAL, MarginalsAccumulator

UNIT = PlaceLevels.PLACES
EDGES = (-10.0, 0.0, 2.5, 100.0)
VALUES = [-10, -10.5, -1e300, 0, 1.25, 2.5, 99.9, 100, 1e9, 7, float("nan"), float("inf"), None]


def column(**fields: Any) -> dp.NumericAttribute:
    return dp.NumericAttribute("x", EDGES, **fields)


def placed(attribute: dp.NumericAttribute, values: Any) -> list[int]:
    domain = dp.Domain((attribute,), placed=(attribute,))
    (places,) = encode_places(domain, pa.record_batch([values], ["x"]))
    return places.tolist()


def place(value: float | None) -> float:
    """The same by hand: in the middle without a finite number."""
    if value is None or not np.isfinite(value):
        return UNIT / 2
    number = min(max(value, EDGES[0]), EDGES[-1])
    bins = itertools.pairwise(EDGES)
    low, high = next(pair for pair in bins if number < pair[1] or pair[1] == EDGES[-1])
    return UNIT * (number - low) / (high - low)


FORMS = {
    "floats": lambda: pa.array(VALUES, pa.float64()),
    "texts": lambda: pa.array([None if value is None else str(value) for value in VALUES]),
    "dictionary": lambda: pa.array(VALUES, pa.float64()).dictionary_encode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fields", [{}, {"clip": True}, {"nullable": True, "other": True}])
def test_places_are_those_of_clipped_numbers_in_any_form(form, fields):
    places = placed(column(**fields), FORMS[form]())
    assert places == pytest.approx([place(value) for value in VALUES], abs=1)
    assert all(0 <= number <= UNIT for number in places)


def test_places_of_integers_and_of_whole_numbers_reach_both_ends_of_a_bin():
    whole = dp.NumericAttribute("x", (0, 1, 5, 8), whole=True)
    places = placed(whole, pa.array([0, 1, 2, 4, 5, 8, 2**62], pa.int64()))
    assert places == [UNIT // 2, 0, round(UNIT / 3), UNIT, 0, UNIT, UNIT]
    wide = dp.NumericAttribute("x", (-1.7e308, 1.7e308))
    assert {*placed(wide, pa.array([-1.7e308, 0.0, 1.7e308]))} <= {0, UNIT // 2}  # of no width


@pytest.mark.parametrize("as_units", [False, True])
def test_sums_are_exact_for_any_split_and_leave_out_null_other_and_records_outside(as_units):
    x = column(other=True, nullable=True)
    domain = dp.Domain((x, dp.IntegerAttribute("a", 0, 1)), placed=(x,))
    rng = np.random.default_rng(1)
    values, ones = rng.normal(20, 40, 1000), rng.integers(0, 3, 1000)  # 2 is outside
    table = pa.table({"x": values, "a": ones, "who": np.arange(1000)})
    accumulator = MarginalsAccumulator(domain, [("x", "a")])
    shards: list[Any] = []
    for part in table.to_batches(max_chunksize=300):
        unit = "who" if as_units else "record"
        batch = encode_records(domain, unit, accumulator.as_cells, part)
        shards += accumulator.to_shards(accumulator.add_batch(accumulator.create(), batch))
    sums = accumulator.from_shards(shards).bin_sums
    inside = (values >= EDGES[0]) & (values <= EDGES[-1]) & (ones < 2)
    bins = np.searchsorted(EDGES[1:-1], values, "right")
    less = np.rint([place(value) for value in values]) - UNIT / 2
    exact = [less[inside & (bins == number)].sum() for number in range(3)]
    assert sums.tolist() == pytest.approx(exact, abs=100) and sums.dtype == np.int64


def test_sums_stay_within_64_bits_for_any_public_number_of_records():
    assert MAX_RECORDS * UNIT // 2 < MAX_TOTAL and UNIT == GRID
    x = column()
    accumulator = MarginalsAccumulator(dp.Domain((x,), placed=(x,)), [("x",)])
    counts, sums = accumulator.create()
    state = counts, sums + np.array([2**62, -(2**62), 5])
    sums = accumulator.from_shards(accumulator.to_shards(state)).bin_sums
    assert sums.tolist() == [MAX_TOTAL, -MAX_TOTAL, 5]
