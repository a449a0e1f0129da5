"""Records outside the domain, units by their records, and values of open columns: each once."""

import pathlib
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from fakes import DOMAIN, NoPrivacy, guarantee, outputs
from noise_sources import NoNoise

import beam_dp as dp
from beam_dp.privacy.discovery import record_levels
from beam_dp.secret.encoding.open_values import OpenColumns
from beam_dp.secret.summaries.sparse_counts import ValueCounts, counted_values
from beam_dp.transforms.counting.count_keys import (
    CountUnits,
    CountValues,
    counts_of_values,
    levels_of_shards,
)
from beam_dp.transforms.drawing import one_worker

GOOD = {"age": 3, "sex": "f", "smokes": None}
IMPOSSIBLE = DOMAIN.with_impossible([{"age": [[0, 4]], "smokes": [True]}])


class Exact(NoNoise):
    """No noise, in a draw of a name of its own."""

    def draw_id(self) -> str:
        return np.random.default_rng().bytes(16).hex()


@pytest.fixture(autouse=True)
def without_noise(monkeypatch) -> None:
    monkeypatch.setattr(one_worker, "NoiseSource", Exact)


def counting(
    domain: dp.Domain = DOMAIN,
    promise: dp.Guarantee | None = None,
    mechanism: Any = None,
    **more: Any,
) -> dp.ReleaseSyntheticDatabase:
    workload, mechanism = dp.marginals(domain, ways=1), mechanism or dp.Laplace()
    given = {"count_left_out": True, **more}
    return dp.ReleaseSyntheticDatabase(domain, workload, promise or guarantee(), mechanism, **given)


def of(unit: Any, number: int, **changed: Any) -> list[dict[str, Any]]:
    return [{**GOOD, **changed, "household": unit}] * number


AGES = dp.Domain((dp.IntegerAttribute("age", 0, 9, nullable=True, other=False),))
CASES: dict[str, tuple[list[Any], Any]] = {
    "each once": (
        [
            GOOD,
            {**GOOD, "age": 10},
            {**GOOD, "age": None, "sex": "x", "smokes": "perhaps"},
            {**GOOD, "sex": "x", "smokes": "perhaps"},
            {**GOOD, "smokes": "yes"},
            {**GOOD, "smokes": True},
            {"nothing": 1},
        ],
        counting(IMPOSSIBLE),
    ),
    "all possible": ([{**GOOD, "smokes": True}], counting()),
    "of units": (
        [
            *of("bad", 600, age=99),
            *of("bad", 400, sex="x"),
            *of("bad", 3),
            *of("other", 1, sex="x"),
            *of(None, 50, age=99),  # belongs to no unit: nothing would bound it
        ],
        counting(promise=guarantee("household", 3)),
    ),
    "none": ([], counting(IMPOSSIBLE)),
    "not counted": ([{**GOOD, "age": 99}], counting(count_left_out=False)),
    "exact": ([GOOD, {**GOOD, "age": 99}], counting(mechanism=NoPrivacy())),
    "intervals": (
        [{"age": 3}, {"age": None}, {"age": 70}, {"age": "x"}, {}],
        dp.ReleaseIntervals(AGES, "age", guarantee(), count_left_out=True),
    ),
}


def released(folder: pathlib.Path, cases: Any = CASES, bundle_repeat: int = 0) -> dict[str, Any]:
    outputs(
        {
            name: lambda p, name=name, records=records, release=release: (
                p
                | (beam.Create(records) if isinstance(records, list) else records)
                | release
                | dp.WriteRelease(folder / name)
            )
            for name, (records, release) in cases.items()
        },
        bundle_repeat,
    )
    return {name: dp.read_release(folder / name) for name in cases}


@pytest.mark.job
def test_counts_records_that_are_left_out(tmp_path):
    """Once, at the first attribute that fails, or as impossible; at most k of a unit."""
    found = released(tmp_path)
    each_once = found["each once"].left_out
    assert dict(each_once.counts) == {"age": 3, "sex": 1, "smokes": 1}
    assert (each_once.impossible, each_once.total) == (1, 6)
    assert (found["all possible"].left_out.impossible, found["all possible"].left_out.total) == (
        None,
        0,
    )
    of_units = found["of units"]
    assert (of_units.left_out.total, of_units.left_out.counts["smokes"]) == (4, 0)
    assert of_units.num_records == 3  # those outside push out none of those inside
    none = found["none"].left_out
    assert dict(none.counts) == {"age": 0, "sex": 0, "smokes": 0} and none.impossible == 0
    assert found["not counted"].left_out is None
    assert "left_out" not in (tmp_path / "not counted" / "card.json").read_text()
    exact = found["exact"]
    assert (exact.num_records, exact.left_out.total, exact.guarantee) == (1, 1, guarantee())
    intervals = found["intervals"]
    assert isinstance(intervals, dp.IntervalRelease) and intervals.guarantee == guarantee()
    assert dict(intervals.left_out.counts) == {"age": 2}
    assert intervals.left_out.budget["release"]["epsilon"] == 0.95


@pytest.mark.job
@pytest.mark.parametrize("unit", ["record", "household"])
def test_counts_lines_that_are_no_records_once_if_the_record_is_the_unit(tmp_path, unit):
    lines = "1,3,f,\n\n2,3\n3,3,f,,\n4,99,f,\n5,3,x,\n" + '6,"3,f,\n'
    (tmp_path / "a.csv").write_text(f"household,age,sex,smokes\n{lines}")
    case = dp.ReadRecords(str(tmp_path / "a.csv")), counting(promise=guarantee(unit, 1))
    release = released(tmp_path, {"a": case}, bundle_repeat=2)["a"]
    expected = {"age": 4 if unit == "record" else 1, "sex": 1, "smokes": 0}
    assert dict(release.left_out.counts) == expected
    assert release.num_records == 1


@pytest.mark.job
def test_replayed_step_writes_one_draw(tmp_path, monkeypatch):
    """The n-th draw answers 10 n in every cell of the table and n in the count."""
    domain = dp.Domain((dp.IntegerAttribute("age", 0, 1),))
    draws: list[int] = []

    class Numbered(Exact):
        def laplace(self, values: np.ndarray, scale: float) -> np.ndarray:
            is_count = values.shape == (1,)
            if is_count:
                draws.append(len(draws) + 1)
            return np.full_like(values, draws[-1] if is_count else 10 * (len(draws) + 1))

    monkeypatch.setattr(one_worker, "NoiseSource", Numbered)
    release = released(tmp_path, {"out": ([], counting(domain))}, bundle_repeat=2)["out"]
    assert draws == [1, 2, 3]
    assert isinstance(release, dp.SyntheticDatabase)
    assert release.num_records == 20 * release.left_out.counts["age"]


DECLARED = dp.Domain((dp.IntegerAttribute("age", 0, 99),))
NOTHING = dp.Domain(())
COLUMNS = OpenColumns(
    DECLARED,
    (
        dp.CategoricalAttribute("city", ("city 1",), other=True, nullable=True),
        dp.CategoricalAttribute("town", ("x",), other=True, case="ignore"),
    ),
    (dp.NumericAttribute("income", tuple(map(float, range(401))), clip=True),),
)
MOST = 20
SIZE = 300
BY_RECORD = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
BY_PERSON = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 2)


def table() -> pa.Table:
    generator = np.random.default_rng(3)
    persons: list[Any] = [str(each % 200) for each in generator.zipf(1.5, SIZE)]
    persons[:100] = ["heavy"] * 100
    persons[100:110] = [None] * 10
    cities: list[Any] = [f"city {n}" * (1 + n % 3) for n in generator.zipf(1.4, SIZE) % 50]
    cities[::11] = [None] * len(cities[::11])
    return pa.table(
        {
            "person": persons,
            "age": generator.integers(0, 150, SIZE),
            "city": cities,
            "town": [f"{'T' if n % 2 else 't'}own" for n in generator.integers(0, 9, SIZE)],
            "income": generator.exponential(90.0, SIZE),
        }
    )


def levels_by_hand(declared: dp.Domain) -> list[int]:
    """The records of each unit, and the last level that begins there or before."""
    records: dict[str, int] = {}
    for row in table().to_pylist():
        if row["person"] is not None and (declared is NOTHING or row["age"] <= 99):
            records[row["person"]] = records.get(row["person"], 0) + 1
    counts = [0] * len(record_levels(MOST))
    for number in records.values():
        counts[max(n for n, start in enumerate(record_levels(MOST)) if start <= number)] += 1
    return counts


def plain(found: ValueCounts) -> dict[str, Any]:
    texts = {
        name: dict(zip(texts.to_pylist(), sums.tolist(), strict=True))
        for name, (texts, sums) in found.texts.items()
    }
    return texts | {name: sums.tolist() for name, sums in found.leaves.items()}


STEPS: dict[str, Any] = {
    "units": lambda: CountUnits(DECLARED, "person", MOST),
    "units of any record": lambda: CountUnits(NOTHING, "person", MOST),
    "values": lambda: CountValues(COLUMNS, BY_RECORD),
    "values of persons": lambda: CountValues(COLUMNS, BY_PERSON),
}


def counted_in_memory(step: str) -> Any:
    batches = table().to_batches(max_chunksize=70)
    if step.startswith("units"):
        declared = DECLARED if step == "units" else NOTHING
        return levels_by_hand(declared)
    promise = BY_RECORD if step == "values" else BY_PERSON
    return plain(counted_values(COLUMNS, promise, batches))


def read(step: str, shards: list[Any]) -> Any:
    if step.startswith("units"):
        return levels_of_shards(MOST, shards).tolist()
    return plain(counts_of_values(COLUMNS, shards))


def test_table_has_heavy_units_and_many_values():
    assert counted_in_memory("units")[-1] >= 1 and len(counted_in_memory("values")["city"]) > 20


def counted(batches: dict[str, list[Any]], bundle_repeat: int = 0) -> dict[str, list[Any]]:
    """What each step counts of each list of batches, each time that it is read."""
    found = outputs(
        {
            f"{step}, {name}": lambda p, step=step, given=given: (
                p | beam.Create(given) | STEPS[step]() | beam.combiners.ToList()
            )
            for step in STEPS
            for name, given in batches.items()
        },
        bundle_repeat,
    )
    return {
        f"{step}, {name}": [read(step, shards) for shards in found[f"{step}, {name}"]]
        for step in STEPS
        for name in batches
    }


@pytest.mark.job
def test_units_and_values_are_counted_as_in_memory_and_once():
    small = [table().slice(start, 21) for start in range(0, SIZE, 21)]
    found = counted({"batches": small, "nothing": [table().slice(0, 0)]})
    for step in STEPS:
        assert found[f"{step}, batches"] == [counted_in_memory(step)], step
    assert found["units, nothing"] == [[0] * len(record_levels(MOST))]
    found = counted({"rows": table().to_pylist()}, bundle_repeat=2)
    for step in STEPS:
        results = found[f"{step}, rows"]
        assert results == [counted_in_memory(step)] * len(results), step
