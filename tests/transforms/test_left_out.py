"""Records outside the domain, counted with noise: each once, at most k a unit, in the same draw."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from fakes import DOMAIN, NoPrivacy, guarantee, pipeline
from noise_sources import NoNoise

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.records import encode_all_records, encode_records
from beam_dp.mechanisms.marginals.measure_all import Laplace
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import marginals
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.kinds import read_release
from beam_dp.releases.left_out import LeftOut
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.transforms import ReleaseIntervals, ReleaseSyntheticDatabase, WriteRelease
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


def released(
    records: Sequence[Any],
    directory: pathlib.Path,
    *,
    domain: Domain = DOMAIN,
    promise: Guarantee | None = None,
    bundle_repeat: int = 0,
) -> LeftOut:
    with pipeline(bundle_repeat) as p:
        _ = (
            p
            | beam.Create(records)
            | ReleaseSyntheticDatabase(
                domain,
                marginals(domain, ways=1),
                promise or guarantee(),
                Laplace(),
                count_left_out=True,
            )
            | WriteRelease(directory)
        )
    release = read_release(directory)
    assert isinstance(release, SyntheticDatabase)
    assert release.left_out is not None
    return release.left_out


@pytest.mark.job
def test_counts_record_once_at_its_first_failing_attribute(tmp_path):
    records = [
        GOOD,
        {**GOOD, "age": 10},
        {**GOOD, "age": None, "sex": "x", "smokes": "perhaps"},
        {**GOOD, "sex": "x", "smokes": "perhaps"},
        {**GOOD, "smokes": "yes"},
        {**GOOD, "smokes": True},
        {"nothing": 1},
    ]
    found = released(records, tmp_path / "out", domain=IMPOSSIBLE)
    assert dict(found.counts) == {"age": 3, "sex": 1, "smokes": 1}
    assert found.impossible == 1
    assert found.total == 6


@pytest.mark.job
def test_domain_without_impossible_combinations_has_no_impossible_count(tmp_path):
    found = released([{**GOOD, "smokes": True}], tmp_path / "out")
    assert found.impossible is None
    assert found.total == 0


@pytest.mark.job
def test_counts_at_most_k_left_out_records_of_a_unit(tmp_path):
    def of(unit: Any, record: dict[str, Any], number: int) -> list[dict[str, Any]]:
        return [{**record, "household": unit}] * number

    records = [
        *of("bad", {**GOOD, "age": 99}, 600),
        *of("bad", {**GOOD, "sex": "x"}, 400),
        *of("bad", GOOD, 3),
        *of("other", {**GOOD, "sex": "x"}, 1),
        *of(None, {**GOOD, "age": 99}, 50),  # belongs to no unit: nothing would bound it
    ]
    promise = guarantee("household", 3)
    found = released(records, tmp_path / "out", promise=promise)
    assert found.total == 4
    assert found.counts["smokes"] == 0
    release = read_release(tmp_path / "out")
    assert isinstance(release, SyntheticDatabase)
    assert release.num_records == 3  # those outside push out none of those inside


@pytest.mark.job
def test_release_of_no_records_has_the_same_shape(tmp_path):
    found = released([], tmp_path / "none", domain=IMPOSSIBLE)
    assert dict(found.counts) == {"age": 0, "sex": 0, "smokes": 0}
    assert found.impossible == 0


@pytest.mark.job
def test_release_without_count_left_out_has_no_count(tmp_path):
    with pipeline() as p:
        release = ReleaseSyntheticDatabase(
            DOMAIN, marginals(DOMAIN, ways=1), guarantee(), Laplace()
        )
        _ = p | beam.Create([{**GOOD, "age": 99}]) | release | WriteRelease(tmp_path / "out")
    assert read_release(tmp_path / "out").left_out is None  # type: ignore[union-attr]
    assert "left_out" not in (tmp_path / "out" / "card.json").read_text()


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
    found = released([], tmp_path / "out", domain=domain, bundle_repeat=2)
    assert draws == [1, 2, 3]
    release = read_release(tmp_path / "out")
    assert isinstance(release, SyntheticDatabase)
    assert release.num_records == 20 * found.counts["age"]


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


@pytest.mark.job
def test_interval_release_counts_values_without_a_level(tmp_path):
    domain = Domain((IntegerAttribute("age", 0, 9, nullable=True, other=False),))
    records: list[Any] = [{"age": 3}, {"age": None}, {"age": 70}, {"age": "x"}, {}]
    with pipeline() as p:
        release = ReleaseIntervals(domain, "age", guarantee(), count_left_out=True)
        _ = p | beam.Create(records) | release | WriteRelease(tmp_path / "out")
    found = read_release(tmp_path / "out")
    assert isinstance(found, IntervalRelease)
    assert found.left_out is not None
    assert dict(found.left_out.counts) == {"age": 2}
    assert found.guarantee == guarantee()
    assert found.left_out.budget["release"]["epsilon"] == 0.95


@pytest.mark.job
def test_release_counts_left_out_records_separately(tmp_path):
    with pipeline() as p:
        release = ReleaseSyntheticDatabase(
            DOMAIN, marginals(DOMAIN, ways=1), guarantee(), NoPrivacy(), count_left_out=True
        )
        _ = p | beam.Create([GOOD, {**GOOD, "age": 99}]) | release | WriteRelease(tmp_path / "out")
    found = read_release(tmp_path / "out")
    assert isinstance(found, SyntheticDatabase) and found.left_out is not None
    assert (found.num_records, found.left_out.total) == (1, 1)
    assert found.guarantee == guarantee()
