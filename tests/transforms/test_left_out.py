"""Records outside the domain, counted with noise: each once, at most k a unit, in the same draw."""

from __future__ import annotations

import pathlib
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from fakes import DOMAIN, NoPrivacy, guarantee, outputs
from noise_sources import NoNoise

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.records import encode_all_records, encode_records
from beam_dp.mechanisms.marginals.measure_all import Laplace
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import marginals
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.kinds import read_release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.transforms import ReadRecords, ReleaseIntervals, ReleaseSyntheticDatabase, WriteRelease
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
    domain: Domain = DOMAIN, promise: Guarantee | None = None, mechanism: Any = None, **more: Any
) -> ReleaseSyntheticDatabase:
    workload, mechanism = marginals(domain, ways=1), mechanism or Laplace()
    given = {"count_left_out": True, **more}
    return ReleaseSyntheticDatabase(domain, workload, promise or guarantee(), mechanism, **given)


def of(unit: Any, number: int, **changed: Any) -> list[dict[str, Any]]:
    return [{**GOOD, **changed, "household": unit}] * number


AGES = Domain((IntegerAttribute("age", 0, 9, nullable=True, other=False),))
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
        ReleaseIntervals(AGES, "age", guarantee(), count_left_out=True),
    ),
}


def released(folder: pathlib.Path, cases: Any = CASES, bundle_repeat: int = 0) -> dict[str, Any]:
    outputs(
        {
            name: lambda p, name=name, records=records, release=release: (
                p
                | (beam.Create(records) if isinstance(records, list) else records)
                | release
                | WriteRelease(folder / name)
            )
            for name, (records, release) in cases.items()
        },
        bundle_repeat,
    )
    return {name: read_release(folder / name) for name in cases}


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
    assert isinstance(intervals, IntervalRelease) and intervals.guarantee == guarantee()
    assert dict(intervals.left_out.counts) == {"age": 2}
    assert intervals.left_out.budget["release"]["epsilon"] == 0.95


@pytest.mark.job
@pytest.mark.parametrize("unit", ["record", "household"])
def test_counts_lines_that_are_no_records_once_if_the_record_is_the_unit(tmp_path, unit):
    lines = "1,3,f,\n\n2,3\n3,3,f,,\n4,99,f,\n5,3,x,\n" + '6,"3,f,\n'
    (tmp_path / "a.csv").write_text(f"household,age,sex,smokes\n{lines}")
    case = ReadRecords(str(tmp_path / "a.csv")), counting(promise=guarantee(unit, 1))
    release = released(tmp_path, {"a": case}, bundle_repeat=2)["a"]
    expected = {"age": 4 if unit == "record" else 1, "sex": 1, "smokes": 0}
    assert dict(release.left_out.counts) == expected
    assert release.num_records == 1


@pytest.mark.job
def test_replayed_step_writes_one_draw(tmp_path, monkeypatch):
    """The n-th draw answers 10 n in every cell of the table and n in the count."""
    domain = Domain((IntegerAttribute("age", 0, 1),))
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
    assert isinstance(release, SyntheticDatabase)
    assert release.num_records == 20 * release.left_out.counts["age"]


@pytest.mark.parametrize("unit", ["record", "household"])
@pytest.mark.parametrize("as_cells", [True, False])
def test_counting_left_out_records_does_not_change_the_records_inside(unit, as_cells):
    generator = np.random.default_rng(3)
    batch = pa.record_batch(
        {
            "age": pa.array(generator.integers(-3, 13, 400)),
            "sex": pa.array(np.array(["f", "m", "x"])[generator.integers(0, 3, 400)]),
            "smokes": pa.array([None, True, False, None] * 100),
            "household": pa.array([None if i % 7 == 0 else i // 3 for i in range(400)]),
        }
    )
    alone = encode_records(IMPOSSIBLE, unit, as_cells, batch)
    inside, left_out = encode_all_records(IMPOSSIBLE, unit, as_cells, batch)
    cells = [np.asarray(each.cell_index(IMPOSSIBLE)).tolist() for each in (alone, inside)]
    assert cells[0] == cells[1]
    num_of_units = sum(1 for i in range(400) if unit == "record" or i % 7)
    assert len(cells[0]) + len(left_out.cell_index(IMPOSSIBLE)) == num_of_units
    if unit == "record":
        assert inside.units is left_out.units is None
    else:
        assert alone.units is not None and inside.units is not None and left_out.units is not None
        assert (alone.units == inside.units).all()
        assert left_out.units.shape == (2, len(left_out.cell_index(IMPOSSIBLE)))
