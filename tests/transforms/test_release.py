"""Releases and their files do not depend on order, size, batches or replays; domains released."""

import collections
import itertools
import random
from pathlib import Path
from typing import Any

import apache_beam as beam
import fakes
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from barriers import remove_barrier
from fakes import guarantee
from noise_sources import NoNoise
from open_domains import CITY, FREQUENT, INCOME, SEX, guarantee as promised, open_domain, residents

import beam_dp as dp
import beam_dp.in_memory as in_memory
import beam_dp.secret.summaries.histogram as marginals_module
import beam_dp.transforms.answers as batches_module
from beam_dp.releases.answers.files import answers_file, read_rows
from beam_dp.secret.summaries.histogram import MarginalsAccumulator
from beam_dp.storage.bucket import BucketStore
from beam_dp.transforms.answers import AnswerBatch, answer_batches, each_query, numbered_queries
from beam_dp.transforms.drawing import one_worker

PEOPLE = [
    {"age": i % 10, "sex": "fm"[i % 2], "smokes": [True, False, None][i % 3], "household": i // 4}
    for i in range(500)
]
HEAVY = PEOPLE[:8] + [dict(PEOPLE[i % 7], household=77) for i in range(1000)]


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

    fakes.outputs({"two draws": two_draws, "half": half, **{name: branch(name) for name in CASES}})
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


@pytest.mark.part
def test_many_small_tables_stay_within_the_limit(monkeypatch):
    """Merged up to 2^16 cells these pass the limit, apart or merged less they do not."""

    def num_counted() -> int:
        return sum(counts.num_cells for counts in MarginalsAccumulator(domain, tables).create()[0])

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


@pytest.mark.parametrize("is_open", [False, True])
def test_records_per_unit_are_chosen_in_memory(tmp_path, is_open) -> None:
    """One payment before three draws, each of which is used once."""
    ledger = dp.Ledger(str(tmp_path / "ledger"))
    ledger.declare("people", 20.0, 1e-9, "person", "add_or_remove_one")
    persons = [max(place // 3, 40) for place in range(2400)]  # one has many records
    table = residents(2400).set_column(0, "person", [persons])
    domain = open_domain() if is_open else dp.read_domain({"attributes": [SEX]})
    release = dp.release(
        table,
        domain,
        dp.marginals(domain, ways=1),
        promised(20.0, max_records_per_unit=20),
        max_records_per_unit="discover",
        output=tmp_path / "out",
        ledger=ledger,
        dataset_id="people",
    )
    place = tmp_path / ("out/domain/records_per_unit" if is_open else "out/records_per_unit")
    counts = dp.read_release(place, kind=dp.IntervalRelease)
    (entry,) = ledger.entries("people")
    earlier = dp.read_release(tmp_path / "out/domain") if is_open else counts
    assert (entry.draw_id, entry.guarantee) == (earlier.draw_id, release.guarantee)
    assert release.records_per_unit.draw_id == counts.draw_id
    assert release.records_per_unit.main.max_records_per_unit == 3
    for each in (counts, earlier, dp.read_release(tmp_path / "out")):
        assert dp.verify_release(each).holds and each.plan["ledger_release"] == "people/1"
    assert ledger.is_state_used(entry, 1) and ledger.is_state_used(entry, 2) == is_open


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


MOST_BYTES = 2**24
NOTHING = ("value", "standard_error", "bound", "route", "updates_left", "questions_left", "error")
DOMAIN = dp.Domain((dp.BooleanAttribute("member"), dp.BooleanAttribute("paid")))
GUARANTEE = dp.Guarantee(1000.0, 0.0, dp.Neighboring.ADD_OR_REMOVE_ONE, "record", 1)


def row(number: int, text: str = "") -> dict[str, Any]:
    return {"id": str(number), "query": text, **dict.fromkeys(NOTHING)}


def test_answers_and_queries_are_sent_in_small_parts_in_order():
    rows = [row(number, "q" * (number % 3000)) for number in range(30_000)]
    parts = answer_batches("run", 7, rows)
    coder = beam.coders.registry.get_coder(AnswerBatch)
    assert len(parts) > 10 and all(len(coder.encode(part)) < MOST_BYTES for part in parts)
    assert [each for part in parts for each in part.answers] == rows
    assert [part[:3] for part in parts] == [("run", number, 7) for number in range(len(parts))]
    assert {part.num_batches for part in parts} == {len(parts)}
    assert answer_batches("run", None, []) == [AnswerBatch("run", 0, None, [], 1)]
    lines = [f"{number} {'q' * (number % 1000)}" for number in range(20_000)]
    elements = numbered_queries(lines)
    assert len(elements) > 3
    assert all(sum(map(len, queries)) < MOST_BYTES for _, queries in elements)
    random.Random(0).shuffle(elements)
    assert list(each_query(elements)) == lines
    assert list(each_query([{"a": 1}, ["b", "c"], ("d", "e"), "f"])) == [
        {"a": 1},
        *"bcdef",
    ]


@pytest.mark.job
@pytest.mark.parametrize("is_complete", [True, False])
def test_writes_only_a_complete_run(tmp_path, is_complete):
    plan = dp.plan_private_mw(DOMAIN, GUARANTEE, 10, num_questions=2)
    parts = [AnswerBatch("0" * 32, number, 10, [row(number)], 3) for number in (2, 0, 1)]
    given = parts if is_complete else parts[1:]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        # A batch that comes twice is one.
        _ = pipeline | beam.Create([*given, given[0]]) | dp.WriteAnswers(tmp_path / "out", plan)
    assert (tmp_path / "out").exists() is is_complete
    if is_complete:
        path = tmp_path / "out" / answers_file("0" * 32)
        assert [each["id"] for each in read_rows(path.read_bytes())] == ["0", "1", "2"]


@pytest.mark.job
def test_run_in_several_batches_is_one_release(tmp_path, monkeypatch):
    monkeypatch.setattr(batches_module, "ELEMENT_TEXT", 1200)  # about two answers
    lines = [f'{{"id": "{number}", "conjunction": {{"paid": true}}}}' for number in range(9)]
    plan = dp.plan_private_mw(DOMAIN, GUARANTEE, "noisy", num_questions=9)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        records = pipeline | "Records" >> beam.Create([{"member": True, "paid": True}] * 50)
        _ = (
            pipeline
            | "Queries" >> beam.Create(numbered_queries(lines))
            | dp.AnswerQueries(plan, records)
            | dp.WriteAnswers(tmp_path / "out", plan)
        )
    answers = dp.read_release(tmp_path / "out")
    rows = list(read_rows((tmp_path / "out" / answers_file(answers.draw_id)).read_bytes()))
    assert [each["id"] for each in rows] == [str(number) for number in range(9)]
    assert all(abs(each["value"] - 50) < 5 for each in rows)


PROMISE = dp.Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
PLAN = dp.plan_private_mw(dp.parse_domain('{"age": 3}'), PROMISE, 10, num_questions=2)
WRITERS = {
    "release": dp.WriteRelease,
    "answers": lambda directory: dp.WriteAnswers(directory, PLAN),
}


def apply(pipeline: beam.Pipeline, writer: str, directory: object) -> None:
    number = len(pipeline.applied_labels)
    given = pipeline | f"Given {number}" >> beam.Create([]).with_output_types(Any)
    _ = given | f"Write {number}" >> WRITERS[writer](directory)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "link").symlink_to(".")
    return tmp_path


def test_writers_take_their_own_directories_only(folder):
    paths = ("out", "out/", "./out", "deep/../out", f"{folder}/out", "link/out")
    pairs = itertools.cycle(itertools.product(WRITERS, WRITERS))
    for path, (first, second) in zip(paths * 2, pairs, strict=False):
        pipeline = beam.Pipeline("FnApiRunner")
        apply(pipeline, first, Path("out"))
        with pytest.raises(dp.InputError, match=r"^output: .* this pipeline writes there already"):
            apply(pipeline, second, path)
    pipeline = beam.Pipeline("FnApiRunner")
    for path in ("out", "deep/out", "Out"):
        apply(pipeline, "release", path)
    apply(beam.Pipeline("FnApiRunner"), "release", "out")
    pipeline = beam.Pipeline("FnApiRunner")
    windowed = (
        pipeline | "Records" >> beam.Create([]) | beam.WindowInto(beam.window.FixedWindows(1))
    )
    with pytest.raises(dp.InputError, match="records"):
        _ = windowed | dp.WriteRelease("out")
    apply(pipeline, "release", "out")


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_refuses_a_second_writer_only_in_the_same_bucket_folder(monkeypatch, scheme):
    monkeypatch.setattr(BucketStore, "check_free", lambda *_: None)
    monkeypatch.setattr(BucketStore, "drafts", lambda self: [])
    pipeline = beam.Pipeline("FnApiRunner")
    for url in ("one/out", "one/out2", "two/out"):
        apply(pipeline, "release", f"{scheme}://{url}")
    with pytest.raises(dp.InputError, match="writes there already"):
        apply(pipeline, "answers", f"{scheme}://two/out/")
