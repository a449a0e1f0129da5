"""From records to a directory, with a mechanism that adds no noise."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import logging
import pickle
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from barriers import remove_barrier
from fakes import (
    COLLECTED,
    DOMAIN,
    DRAWS,
    WORKLOAD,
    NoPrivacy,
    NoPrivacyPlan,
    collect,
    guarantee,
    pipeline,
)
from jobs import write_table

import beam_dp.summaries.histogram as marginals_module
import beam_dp.transforms.drawing.release as release_module
from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.noise.source import NoiseSource
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.kinds import read_release
from beam_dp.releases.synthetic_database.records import distinct_records
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import (
    MarginalsAccumulator,
)
from beam_dp.transforms import (
    EncodeRecords,
    LimitContributions,
    ReadRecords,
    ReleaseSyntheticDatabase,
    Summarise,
    WriteRelease,
)
from beam_dp.transforms.drawing import one_worker

PEOPLE = [
    {"age": i % 10, "sex": "fm"[i % 2], "smokes": [True, False, None][i % 3], "household": i // 4}
    for i in range(500)
]


def released(directory: Path) -> collections.Counter:
    found: collections.Counter = collections.Counter()
    for batch in read_release(directory).records():
        found.update(zip(*batch.values(), strict=True))
    return found


def as_counter(people: list[dict[str, Any]]) -> collections.Counter:
    return collections.Counter((p["age"], p["sex"], p["smokes"]) for p in people)


def run(
    people: list[Any],
    directory: Path,
    *,
    bundle_repeat: int = 0,
    domain: Domain = DOMAIN,
    workload: Workload = WORKLOAD,
    unit: str = "record",
    k: int = 1,
) -> None:
    with pipeline(bundle_repeat) as p:
        _ = (
            p
            | beam.Create(people)
            | ReleaseSyntheticDatabase(domain, workload, guarantee(unit, k), NoPrivacy())
            | WriteRelease(directory)
        )


@pytest.mark.mostly_slow(one_in=2)
@pytest.mark.parametrize("people", [PEOPLE, PEOPLE[:1], []], ids=["many", "one", "none"])
@pytest.mark.parametrize("unit", ["record", "household"])
def test_exact_release_contains_the_records(tmp_path, people, unit):
    run(people, tmp_path / "out", unit=unit, k=1 if unit == "record" else 4)
    assert released(tmp_path / "out") == as_counter(people)


@pytest.mark.slow
def test_release_of_no_records_has_the_same_shape(tmp_path):
    run([], tmp_path / "none")
    run(PEOPLE, tmp_path / "many")
    for directory in ("none", "many"):
        draw = read_release(tmp_path / directory).draw_id
        names = [path.name.replace(draw, "") for path in (tmp_path / directory).iterdir()]
        assert sorted(names) == ["card.json", "hypothesis-.avro", "records--00000-of-00001.avro"]


@pytest.mark.slow
def test_unit_with_many_records_keeps_k_of_them(tmp_path):
    people = PEOPLE[:8] + [dict(PEOPLE[i % 7], household=77) for i in range(1000)]
    run(people, tmp_path / "out", unit="household", k=3)
    found = released(tmp_path / "out")
    assert found.total() == 3 + 3 + 3
    assert not found - as_counter(people)


@pytest.mark.slow
@pytest.mark.parametrize(
    "domain",
    [
        Domain((IntegerAttribute("age", 0, 9),)),
        Domain((IntegerAttribute("age", 4, 4),)),
        Domain((IntegerAttribute("age", 4, 4), BooleanAttribute("none"))),
    ],
    ids=["one attribute", "one cell", "an attribute that no record has"],
)
def test_releases_the_smallest_domains(tmp_path, domain):
    run(PEOPLE, tmp_path / "out", domain=domain, workload=marginals(domain, ways=1))
    kept = [p["age"] for p in PEOPLE if p["age"] == 4 or domain.num_cells == 10]
    expected = collections.Counter((age,) for age in kept) if "none" not in domain else {}
    assert released(tmp_path / "out") == expected


@pytest.mark.slow
def test_replayed_bundles_see_one_release(tmp_path):
    DRAWS.clear()
    with pipeline(bundle_repeat=2) as p:
        release = (
            p
            | beam.Create(PEOPLE)
            | ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy())
        )
        _ = release | collect("seen")
        _ = release | WriteRelease(tmp_path / "out")
    assert len(set(DRAWS)) == 3  # the replay did redraw
    assert len({draw_id for draw_id, _ in COLLECTED["seen"]}) == 1
    assert released(tmp_path / "out") == as_counter(PEOPLE)
    assert len(list((tmp_path / "out").iterdir())) == 3  # and left no draft


@pytest.mark.slow
def test_without_the_reshuffle_replayed_bundles_see_two_draws(monkeypatch):
    remove_barrier(monkeypatch)
    with pipeline(bundle_repeat=2) as p:
        _ = (
            p
            | beam.Create(PEOPLE)
            | ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy())
            | collect("seen")
        )
    assert len({draw_id for draw_id, _ in COLLECTED["seen"]}) == 3


@pytest.mark.slow
def test_writes_only_one_of_two_draws(tmp_path):
    with pipeline() as p:
        people = p | beam.Create(PEOPLE)
        arguments = (DOMAIN, WORKLOAD, guarantee(), NoPrivacy())
        one = people | "One" >> ReleaseSyntheticDatabase(*arguments)
        two = people | "Two" >> ReleaseSyntheticDatabase(*arguments)
        _ = (one, two) | beam.Flatten() | WriteRelease(tmp_path / "out") | collect("written")
    assert set(COLLECTED["written"]) == {str(tmp_path / "out")}
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_does_not_write_an_incomplete_draw(tmp_path):
    with pipeline() as p:
        _ = p | beam.Create([("0" * 32, (0, 2, b"half"))]) | WriteRelease(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_one_pipeline_can_write_two_labelled_releases(tmp_path):
    with pipeline() as p:
        people = p | beam.Create(PEOPLE)
        for name in ("one", "two"):
            release = ReleaseSyntheticDatabase(
                DOMAIN, WORKLOAD, guarantee("household", 4), NoPrivacy()
            )
            release_of_name = people | f"Release {name}" >> release
            _ = release_of_name | f"Write {name}" >> WriteRelease(tmp_path / name)
    assert released(tmp_path / "one") == released(tmp_path / "two") == as_counter(PEOPLE)


@pytest.mark.slow
def test_sends_large_release_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(one_worker, "RELEASE_SHARD_BYTES", 100)
    run(PEOPLE, tmp_path / "out")
    assert released(tmp_path / "out") == as_counter(PEOPLE)


def test_constructors_refuse_too_many_cells_and_used_directory(tmp_path):
    with pytest.raises(InputError, match="domain"):
        ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy(max_cells=3))
    (tmp_path / "card.json").write_text("{}")
    with pytest.raises(InputError, match="output"):
        WriteRelease(tmp_path)


@pytest.mark.slow
def test_logs_no_warning_about_fallback_coders(tmp_path, caplog):
    with caplog.at_level(logging.DEBUG):
        run(PEOPLE, tmp_path / "out", unit="household", k=2)
    assert "fallback" not in caplog.text.lower()
    assert "deterministic" not in caplog.text.lower()


@pytest.mark.slow
def test_logs_contain_no_records(tmp_path, caplog):
    people = [{"age": "tell-tale", "sex": object, "smokes": "tell-tale", "household": "tell-tale"}]
    with caplog.at_level(logging.DEBUG):
        run(people * 7, tmp_path / "out", unit="household", k=2)
    assert "tell-tale" not in "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("beam_dp")
    )
    progress = [r.getMessage() for r in caplog.records if r.name == "beam_dp.progress"]
    assert progress == ["draw"]


def test_no_noise_source_is_pickled():
    transform = ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy())
    drawing = functools.partial(
        release_module._released_database,
        transform.mechanism,
        transform.plan,
        transform.accumulator,
    )
    draw = one_worker.Draw(drawing)
    assert NoiseSource.__name__.encode() not in pickle.dumps(draw)


BINARY = Domain(tuple(BooleanAttribute(f"a{i}") for i in range(20)))
HUGE = Domain(tuple(IntegerAttribute(f"a{i}", 0, 999) for i in range(9)))
SIZES = (9, 16, 7, 15, 6, 5, 2, 42)
EIGHT = Domain(tuple(IntegerAttribute(f"a{i}", 0, size - 1) for i, size in enumerate(SIZES)))


@pytest.mark.parametrize(
    ("domain", "tables", "as_cells", "num_sent"),
    [
        (BINARY, [("a0", "a1")], False, 4),
        (BINARY, marginals(BINARY, ways=3).marginals, True, 1140 * 8),
        (BINARY, [BINARY.names], True, 2**20),
        (BINARY, [BINARY.names, BINARY.names[1:]], True, 2**20),
        (HUGE, marginals(HUGE, ways=2).marginals, False, 36 * 10**6),
        (EIGHT, marginals(EIGHT, ways=2).marginals, False, 3982),
        (EIGHT, [EIGHT.names], True, 38_102_400),
    ],
    ids=["pair", "triples", "all_cells", "nested", "no_index", "pairs_of_eight", "eight"],
)
def test_public_sizes_determine_the_counted_and_sent_tables(domain, tables, as_cells, num_sent):
    accumulator = MarginalsAccumulator(domain, tables)
    assert accumulator.as_cells == as_cells
    assert accumulator.num_cells == num_sent
    num_counted = sum(counts.num_cells for counts in accumulator.create())
    assert num_counted <= max(3 * 2**24, num_sent)


def test_refuses_tables_with_too_many_cells():
    with pytest.raises(InputError, match="cells"):
        MarginalsAccumulator(HUGE, [HUGE.names])


LEVELS = ("HS", "BA", "MA", "PhD")
WIDE = Domain(
    tuple(
        (
            IntegerAttribute(f"c{i}", 0, 8),
            CategoricalAttribute(f"c{i}", LEVELS, other=True),
            NumericAttribute(f"c{i}", (0, 1.5, 2, 7), nullable=True),
            BooleanAttribute(f"c{i}", nullable=True),
        )[i % 4]
        for i in range(35)
    )
).with_impossible([{"c0": [[0, 1]], "c1": ["HS", "other"]}, {"c2": [None], "c3": [True]}])
TABLES = list(itertools.combinations(WIDE.names[:7] + WIDE.names[33:], 3))


def table(num_records: int = 400) -> tuple[pa.Table, list[np.ndarray]]:
    """Records of units of five equal records each, and the codes of those in the domain."""
    rng = np.random.default_rng(3)
    codes = [np.repeat(rng.integers(0, size, num_records // 5), 5) for size in WIDE.shape]
    columns = {
        attribute.name: pa.array(attribute.decode(column))
        for attribute, column in zip(WIDE, codes, strict=True)
    }
    columns["unit"] = pa.array([f"u{i // 5}" for i in range(num_records)])
    bad = (codes[0] <= 1) & ((codes[1] == 0) | (codes[1] == 4))
    bad |= (codes[2] == 3) & (codes[3] == 1)
    assert 0 < bad.sum() < num_records // 2
    return pa.table(columns), [column[~bad] for column in codes]


def summarised(source: Any, unit: str, k: int, name: str) -> MarginalsAccumulator:
    accumulator = MarginalsAccumulator(WIDE, TABLES)
    assert not accumulator.as_cells
    with pipeline() as p:
        encoded = p | source | EncodeRecords(WIDE, unit, as_cells=False)
        if unit != "record":
            encoded = encoded | LimitContributions(WIDE, k, cost_limit=None)
        _ = encoded | Summarise(accumulator) | collect(name)
    return accumulator


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["csv", "avro", "parquet", "dicts"])
@pytest.mark.parametrize(("unit", "k"), [("record", 1), ("unit", 2), ("unit", 5)])
def test_every_source_counts_every_record_inside_the_domain(tmp_path, file_format, unit, k):
    assert not WIDE.has_index
    people, codes = table()
    if file_format == "dicts":
        source: Any = beam.Create(people.to_pylist())
    else:
        source = ReadRecords(write_table(tmp_path, people, file_format))
    name = f"wide {file_format} {unit} {k}"
    found = summarised(source, unit, k, name).from_shards(COLLECTED[name])
    # The five records of a unit are equal: k of them stay.
    weight = 1 if unit == "record" else k / 5
    for names in TABLES:
        expected = np.zeros(WIDE.restrict(names).shape)
        np.add.at(expected, tuple(codes[axis] for axis in WIDE.axes(names)), weight)
        np.testing.assert_allclose(found.tables[names], expected, atol=1e-9)


@dataclasses.dataclass(frozen=True)
class Independent(NoPrivacy):
    """Releases records with the exact marginals of one attribute each."""

    max_cells: int = 10**40
    name: str = "independent"

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Any, num_records: Any
    ) -> NoPrivacyPlan:
        tables = tuple((name,) for name in domain.names)
        return dataclasses.replace(
            super().plan(domain, workload, guarantee, num_records), summary_tables=tables
        )

    def release(
        self, plan: NoPrivacyPlan, marginals: Any, noise: Any, progress: Any = None
    ) -> SyntheticDatabase:
        tables = [marginals.tables[name,] for name in plan.domain.names]
        codes, counts = distinct_records(
            plan.domain, [np.repeat(np.arange(len(table)), table) for table in tables]
        )
        return SyntheticDatabase(
            domain=plan.domain, workload=plan.workload, guarantee=plan.guarantee,
            mechanism=self.name, num_records=int(counts.sum()), num_records_is_public=True,
            codes=codes, counts=counts, potentials=[], draw_id=noise.draw_id(),
        )  # fmt: skip


@pytest.mark.slow
def test_writes_and_reads_release_of_a_wide_domain(tmp_path):
    people, codes = table()
    workload = marginals(WIDE, ways=1)
    with pipeline() as p:
        _ = (
            p
            | beam.Create(people.to_pylist())
            | ReleaseSyntheticDatabase(WIDE, workload, guarantee("unit", 5), Independent())
            | WriteRelease(tmp_path / "out")
        )
    release = read_release(tmp_path / "out")
    assert release.domain == WIDE
    for axis, attribute in enumerate(WIDE):
        expected = np.bincount(codes[axis], minlength=attribute.size)
        assert release.record_marginal((attribute.name,)).tolist() == expected.tolist()
    (pair,) = release.answer(Workload(WIDE, (("c0", "c1"),)))
    assert not pair.values[:2, [0, 4]].any() and pair.values[2:].all()


def test_rejects_tables_that_do_not_fit_and_names_the_largest():
    with pytest.raises(InputError) as caught:
        MarginalsAccumulator(WIDE, [("c0", "c1"), WIDE.names[:14], WIDE.names[:2]])
    assert str(caught.value) == (
        "workload: 'c0,c1,c2,c3,c4,c5,c6,c7,c8,c9,c10,c11,c12,c13' is not valid: with 7,085,880,000"
        " cells is the largest of tables of 7,085,880,000 cells, and together they must have at"
        " most 2^28 = 268,435,456"
    )


@pytest.mark.slow
def test_many_small_tables_stay_within_the_limit(monkeypatch):
    """Merged up to 2^16 cells these pass the limit, apart or merged less they do not."""

    def num_counted() -> int:
        return sum(counts.num_cells for counts in MarginalsAccumulator(domain, tables).create())

    domain = Domain(tuple(BooleanAttribute(f"a{i}") for i in range(60)))
    tables = list(itertools.islice(itertools.combinations(domain.names, 3), 0, None, 5))
    assert num_counted() > 2**22
    monkeypatch.setattr(marginals_module, "MAX_CELLS", 2**20)
    assert num_counted() <= 2**20
