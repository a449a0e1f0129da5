"""Only a complete run of answers is written, and each directory by one writer."""

import dataclasses
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from tiny import ADD, domain_of, promise

import beam_dp as dp
import beam_dp.transforms.drawing.one_worker as batches_module
from beam_dp.mechanisms.contract import Plan
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.loss import Loss
from beam_dp.releases.answers.files import answers_file, read_rows
from beam_dp.storage.bucket import BucketStore
from beam_dp.transforms import AnswerBatch
from beam_dp.transforms.drawing.one_worker import answer_batches, each_query, numbered_queries
from beam_dp.transforms.drawing.release import ReleasePlannedIntervals, plan_attribute

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


PAIRS = dp.parse_linear_workload("conjunctions:2", domain_of(4, 2, 3))


@pytest.mark.parametrize("delta, name", [(0.0, "laplace"), (1e-9, "gaussian")])
def test_accepts_token_for_the_public_mechanism_name(delta, name, tmp_path):
    plan = dp.plan_workload_answers(PAIRS, promise(ADD, delta), "noisy", f"discrete_{name}")
    assert plan.mechanism == plan.public["mechanism"] == name
    ledger = dp.Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 10.0, 1e-6, "record", ADD)
    token = ledger.spend("people", plan.guarantee, plan.loss, plan.mechanism, plan.public)
    dp.AnswerWorkload(plan, [], token)
    dp.WriteAnswers(tmp_path / "out", plan, token)


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


AGES = dp.Domain((dp.IntegerAttribute("age", 0, 9),))
MARGINALS = dp.marginals(AGES, ways=1)
QUERIES = dp.parse_linear_workload('{"marginal": ["age"]}', AGES)
REPLACED = dp.Guarantee(1.0, 1e-9, dp.Neighboring.REPLACE_ONE, "record", 1)
KEY = dp.KeyColumns("age")
N = 10**6
SKETCH = dp.SparseProject().plan(REPLACED, max_sparsity=3)
INTERVALS = plan_attribute(AGES, "age", REPLACED)
MARGINALS_PLAN = dp.MWEM(num_rounds=1).plan(AGES, MARGINALS, REPLACED, N)
DENSE = dp.plan_private_mw(AGES, REPLACED, N, num_questions=2)
SPARSE = dp.plan_sparse_mw(REPLACED, N, max_sparsity=2, num_questions=2)
ANSWERS = dp.plan_workload_answers(QUERIES, REPLACED, N)

Door = Callable[[Token | None, Path], Any]
# Each with the plan of what it draws.
DOORS: dict[str, tuple[Plan, Door]] = {
    "synthetic": (
        MARGINALS_PLAN,
        lambda token, _: dp.ReleaseSyntheticDatabase(
            AGES, MARGINALS, REPLACED, dp.MWEM(num_rounds=1), N, ledger_token=token
        ),
    ),
    "projection": (SKETCH, lambda token, _: dp.ReleaseProjection(SKETCH, KEY, token)),
    "intervals": (
        INTERVALS,
        lambda token, _: ReleasePlannedIntervals(INTERVALS, token),
    ),
    "online": (DENSE, lambda token, _: dp.AnswerQueries(DENSE, None, ledger_token=token)),
    "sparse online": (SPARSE, lambda token, _: dp.AnswerSparseQueries(SPARSE, KEY, None, token)),
    "linear": (ANSWERS, lambda token, _: dp.AnswerWorkload(ANSWERS, [], token)),
    "written answers": (
        ANSWERS,
        lambda token, folder: dp.WriteAnswers(folder / "out", ANSWERS, token),
    ),
}


def paid(plan: Plan) -> Token:
    return Token("visits", 1, plan.mechanism, plan.promised, plan.loss)


def others(token: Token) -> list[Token]:
    """Tokens that paid for something else: another promise, relation, mechanism or loss."""
    promise = token.guarantee
    relation = dp.Neighboring.ADD_OR_REMOVE_ONE
    return [
        dataclasses.replace(token, guarantee=dataclasses.replace(promise, epsilon=0.5)),
        dataclasses.replace(token, guarantee=dataclasses.replace(promise, neighboring=relation)),
        dataclasses.replace(token, mechanism="another"),
        dataclasses.replace(token, loss=Loss.pure(0.001)),
    ]


@pytest.mark.parametrize("name", DOORS)
def test_accepts_only_the_token_that_paid_for_this_or_none(name, tmp_path):
    plan, door = DOORS[name]
    door(paid(plan), tmp_path)
    door(None, tmp_path)
    for other in others(paid(plan)):
        with pytest.raises(dp.InputError, match="ledger_token: 'visits/1' is not valid"):
            door(other, tmp_path)
