"""Releases and their files do not depend on order, size, batches or replays; domains released."""

import collections
import itertools
import logging
from pathlib import Path
from typing import Any

import apache_beam as beam
import fakes
import pyarrow as pa
import pytest
from barriers import remove_barrier
from fakes import guarantee
from noise_sources import NoNoise
from open_domains import CITY, FREQUENT, INCOME, SEX, guarantee as promised, open_domain, residents

import beam_dp as dp
import beam_dp.in_memory as in_memory
import beam_dp.summaries.histogram as marginals_module
from beam_dp.summaries.histogram import MarginalsAccumulator
from beam_dp.transforms.drawing import one_worker

PEOPLE = [
    {"age": i % 10, "sex": "fm"[i % 2], "smokes": [True, False, None][i % 3], "household": i // 4}
    for i in range(500)
]
HEAVY = PEOPLE[:8] + [dict(PEOPLE[i % 7], household=77) for i in range(1000)]
TELL_TALE = [{"age": "tell-tale", "sex": object, "smokes": "tell-tale", "household": "tell-tale"}]


def released(directory: Path) -> collections.Counter:
    found: collections.Counter = collections.Counter()
    for batch in dp.read_release(directory).records():
        found.update(zip(*batch.values(), strict=True))
    return found


def as_counter(people: list[dict[str, Any]]) -> collections.Counter:
    return collections.Counter((p["age"], p["sex"], p["smokes"]) for p in people)


def released_by(unit: str = "record", k: int = 1, domain: dp.Domain = fakes.DOMAIN) -> Any:
    workload = fakes.WORKLOAD if domain is fakes.DOMAIN else dp.marginals(domain, ways=1)
    mechanism: Any = fakes.NoPrivacy()
    return dp.ReleaseSyntheticDatabase(domain, workload, guarantee(unit, k), mechanism)


SMALLEST = {
    "one attribute": dp.Domain((dp.IntegerAttribute("age", 0, 9),)),
    "one cell": dp.Domain((dp.IntegerAttribute("age", 4, 4),)),
    "no record has it": dp.Domain((dp.IntegerAttribute("age", 4, 4), dp.BooleanAttribute("none"))),
}
# Records, and the release of them; each is a branch of one pipeline.
CASES: dict[str, tuple[list[Any], Any]] = {
    **{
        f"{name} of a {unit}": (people, released_by(unit, 1 if unit == "record" else 4))
        for name, people in {"many": PEOPLE, "one": PEOPLE[:1], "none": []}.items()
        for unit in ("record", "household")
    },
    "heavy": (HEAVY, released_by("household", 3)),
    "tell-tale": (TELL_TALE * 7, released_by("household", 2)),
    **{name: (PEOPLE, released_by(domain=domain)) for name, domain in SMALLEST.items()},
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("released")

    def branch(name: str) -> Any:
        people, release = CASES[name]
        return lambda p: p | beam.Create(people) | release | dp.WriteRelease(folder / name)

    def two_draws(p: Any) -> Any:
        people = p | beam.Create(PEOPLE)
        draws = [people | name >> released_by() for name in ("One", "Two")]
        return draws | beam.Flatten() | dp.WriteRelease(folder / "two draws")

    def half(p: Any) -> Any:
        given = beam.Create([("0" * 32, (0, 2, b"half"))])
        return p | given | dp.WriteRelease(folder / "half a draw")

    logged: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = logged.append  # type: ignore[method-assign]
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        fakes.outputs(
            {"two draws": two_draws, "half": half, **{name: branch(name) for name in CASES}}
        )
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    text = "\n".join(f"{each.name}: {each.getMessage()}" for each in logged)
    (folder / "log").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.job
def test_releases_contain_the_records_that_units_may_have(directory):
    for name in CASES:
        if name.startswith(("many", "one of", "none")):
            assert released(directory / name) == as_counter(CASES[name][0]), name
    assert released(directory / "two draws") == as_counter(PEOPLE)
    found = released(directory / "heavy")
    assert found.total() == 3 + 3 + 3
    assert not found - as_counter(HEAVY)
    for name, domain in SMALLEST.items():
        kept = [p["age"] for p in PEOPLE if p["age"] == 4 or domain.num_cells == 10]
        expected = collections.Counter((age,) for age in kept) if "none" not in domain else {}
        assert released(directory / name) == expected, name


@pytest.mark.job
def test_releases_of_any_records_have_the_same_files(directory):
    """Also of none; and of two draws only one is written, of half a draw nothing."""
    for name in ("none of a record", "many of a record", "two draws"):
        draw = dp.read_release(directory / name).draw_id
        names = [path.name.replace(draw, "") for path in (directory / name).iterdir()]
        assert sorted(names) == ["card.json", "hypothesis-.avro", "records--00000-of-00001.avro"]
    assert not (directory / "half a draw").exists()


@pytest.mark.job
def test_logs_contain_no_records_and_no_warning_about_fallback_coders(directory):
    lines = (directory / "log").read_text("utf-8").splitlines()
    progress = [each for each in lines if each.startswith("beam_dp.progress: ")]
    # Releases without noise tell of their only step.
    assert progress == ["beam_dp.progress: draw"] * (len(CASES) + 2)
    ours = [each for each in lines if each.startswith("beam_dp")]
    assert "tell-tale" not in "\n".join(ours)
    text = "\n".join(lines).lower()
    assert "fallback" not in text and "deterministic" not in text


@pytest.mark.job
def test_replayed_bundles_see_one_release(tmp_path, monkeypatch):
    """Also one that is sent in shards."""
    fakes.DRAWS.clear()
    monkeypatch.setattr(one_worker, "RELEASE_SHARD_BYTES", 100)
    with fakes.pipeline(bundle_repeat=2) as p:
        release = p | beam.Create(PEOPLE) | released_by()
        _ = release | fakes.collect("seen")
        _ = release | dp.WriteRelease(tmp_path / "out")
    assert len(set(fakes.DRAWS)) == 3  # the replay did redraw
    assert len({draw_id for draw_id, _ in fakes.COLLECTED["seen"]}) == 1
    assert len({shard[0] for _, shard in fakes.COLLECTED["seen"]}) > 1
    assert released(tmp_path / "out") == as_counter(PEOPLE)
    assert len(list((tmp_path / "out").iterdir())) == 3  # and left no draft


@pytest.mark.job
def test_without_the_reshuffle_replayed_bundles_see_two_draws(monkeypatch):
    remove_barrier(monkeypatch)
    found = fakes.outputs(
        {"seen": lambda p: p | beam.Create(PEOPLE) | released_by()}, bundle_repeat=2
    )
    assert len({draw_id for draw_id, _ in found["seen"]}) == 3


BINARY = dp.Domain(tuple(dp.BooleanAttribute(f"a{i}") for i in range(20)))
HUGE = dp.Domain(tuple(dp.IntegerAttribute(f"a{i}", 0, 999) for i in range(9)))
SIZES = (9, 16, 7, 15, 6, 5, 2, 42)
EIGHT = dp.Domain(tuple(dp.IntegerAttribute(f"a{i}", 0, size - 1) for i, size in enumerate(SIZES)))


@pytest.mark.parametrize(
    ("domain", "tables", "as_cells", "num_sent"),
    [
        (BINARY, [("a0", "a1")], False, 4),
        (BINARY, dp.marginals(BINARY, ways=3).marginals, True, 1140 * 8),
        (BINARY, [BINARY.names], True, 2**20),
        (BINARY, [BINARY.names, BINARY.names[1:]], True, 2**20),
        (HUGE, dp.marginals(HUGE, ways=2).marginals, False, 36 * 10**6),
        (EIGHT, dp.marginals(EIGHT, ways=2).marginals, False, 3982),
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


@pytest.mark.part
def test_many_small_tables_stay_within_the_limit(monkeypatch):
    """Merged up to 2^16 cells these pass the limit, apart or merged less they do not."""

    def num_counted() -> int:
        return sum(counts.num_cells for counts in MarginalsAccumulator(domain, tables).create())

    domain = dp.Domain(tuple(dp.BooleanAttribute(f"a{i}") for i in range(60)))
    tables = list(itertools.islice(itertools.combinations(domain.names, 3), 0, None, 5))
    assert num_counted() > 2**22
    monkeypatch.setattr(marginals_module, "MAX_CELLS", 2**20)
    assert num_counted() <= 2**20


TABLE = residents()


def workload(domain: dp.Domain | dp.OpenDomain) -> dp.Workload:
    return dp.marginals(domain, ways=2)


def run(table: pa.Table, release: beam.PTransform, folder: str, beside: str | None = None) -> None:
    with beam.Pipeline() as pipeline:
        batches = pipeline | beam.Create(table.to_batches(max_chunksize=200))
        _ = batches | release | dp.WriteRelease(folder, beside)


def released_domain(noise: NoNoise, table: pa.Table = TABLE) -> dp.DomainRelease:
    plan = dp.plan_domain(open_domain(), promised(100.0))
    batches = table.to_batches()
    return plan.release(in_memory.counted_values(plan.columns, plan.whole, batches), noise)


@pytest.mark.job
def test_a_pipeline_finds_what_is_found_in_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(one_worker, "NoiseSource", NoNoise)
    plan = dp.plan_domain(open_domain(), promised(100.0))
    run(TABLE, dp.ReleaseDomain(plan), str(tmp_path / "out"))
    found = dp.read_release(tmp_path / "out", kind=dp.DomainRelease)
    expected = released_domain(NoNoise())
    assert found.domain == expected.domain
    for one, other in zip(found.found, expected.found, strict=True):
        assert one.counts.tolist() == other.counts.tolist()


def test_records_outside_the_declared_columns_do_not_count(monkeypatch) -> None:
    sex = ["F"] * 1499 + ["other"]
    rome = ["Atlantis"] * 1499 + ["Rome"]
    table = TABLE.set_column(1, "city", [rome]).set_column(2, "sex", [sex])
    draws = NoNoise()
    found = released_domain(draws, table)
    assert found.found[0].values == ()
    # Neither the city of a record outside nor the public value is counted.
    assert sum(draw.exact.size for draw in draws.draws[:1]) == 0


def test_a_table_in_memory_is_released_with_an_open_domain(tmp_path) -> None:
    ledger = dp.Ledger(str(tmp_path / "ledger"))
    ledger.declare("people", 1.0, 1e-9, "person", "add_or_remove_one")
    domain = open_domain()
    release = dp.release(
        TABLE,
        domain,
        workload(domain),
        promised(),
        output=tmp_path / "out",
        ledger=ledger,
        dataset_id="people",
    )
    found = dp.read_release(tmp_path / "out/domain", kind=dp.DomainRelease)
    assert dp.read_release(tmp_path / "out").draw_id == release.draw_id
    assert release.domain == found.domain
    assert set(found.found[0].values) == set(FREQUENT)
    assert release.discovered == found.discovered
    (entry,) = ledger.entries("people")
    assert entry.draw_id == found.draw_id
    assert dp.verify_release(release).holds


def test_streams_and_pure_bins_are_released_in_memory():
    domain = open_domain(CITY, SEX)
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(100))
    release = dp.release(reader, domain, workload(domain), promised(5.0), count_left_out=True)
    assert abs(release.num_records - 1500) < 150
    assert release.left_out is not None
    assert dp.verify_release(release).holds
    domain = open_domain(INCOME, SEX)
    release = dp.release(TABLE, domain, workload(domain), promised(2.0, 0.0), domain_share=0.3)
    assert release.guarantee.delta == 0
    verified = dp.verify_release(release)
    assert verified.holds
    assert 1.99 < verified.epsilon <= 2.0
