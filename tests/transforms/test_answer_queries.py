"""Queries to answers on Beam: every question is answered once, whatever the runner does again."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.testing.test_stream import TestStream as Events
from apache_beam.transforms.window import FixedWindows
from barriers import remove_barrier
from fakes import COLLECTED, DOMAIN, collect, guarantee, outputs, pipeline, seed_noise

from beam_dp.mechanisms.online.private_mw import PrivateMWPlan, plan_private_mw
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.answers.files import read_rows, write_batch
from beam_dp.secret.summaries.shards import write_shard
from beam_dp.transforms.answers import AnswerBatch, WriteAnswers
from beam_dp.transforms.drawing import answer_queries as module
from beam_dp.transforms.drawing.answer_queries import AnswerQueries
from beam_dp.transforms.job_page import PrivateStepError

RECORDS = [{"age": 3, "sex": "f", "smokes": True}] * 900 + [
    {"age": 7, "sex": "m", "smokes": None}
] * 100
FIRST = '{"id": "a", "conjunction": {"age": 3}}'
REPEAT = '{"id": "again", "conjunction": {"age": 3}}'
SECOND = {"id": 2, "interval": {"attribute": "age", "low": 5, "high": 9}}
BAD = '{"id": "bad", "conjunction": {"aeg": 3}}'
NOT_IN_DOMAIN = '{"conjunction": {"age": 12}}'
NAN = '{"values": [NaN' + ", 0" * (DOMAIN.num_cells - 1) + "]}"
REFUSED = [BAD, NOT_IN_DOMAIN, NAN, "{", "7", '{"id": [1], "prefix": 2}', {"parity": {}}]


def plan(**named: Any) -> PrivateMWPlan:
    """An epsilon with which the uniform start is seen to be wrong."""
    promise = Guarantee(20.0, 0, "add_or_remove_one", "record", 1)
    named = {"num_records": 1000, "num_questions": 10, "max_updates": 3, **named}
    return plan_private_mw(DOMAIN, promise, named.pop("num_records"), **named)


class Unbounded(beam.PTransform):
    """Says that a collection has no end, so that answers come from state."""

    def expand(self, elements):
        passed = elements | beam.Map(lambda element: element)
        passed.is_bounded = False
        return passed


@pytest.fixture(autouse=True)
def draws(monkeypatch) -> list[str]:
    """The ids of draws, whose noise has a seed."""
    return seed_noise(monkeypatch)


def answering(queries: Any, is_stream: bool, records: Any = RECORDS, **named: Any) -> Any:
    """A branch that answers queries, from state if it says that they have no end."""

    def branch(p: Any) -> Any:
        asked = p | "Queries" >> beam.Create(queries, reshuffle=False)
        asked = asked | Unbounded() if is_stream else asked
        return asked | AnswerQueries(plan(**named), p | "Records" >> beam.Create(records))

    return branch


def answer(queries: Any, *, repeats: int = 0, is_stream: bool = False, **named: Any) -> Any:
    return outputs({"answers": answering(queries, is_stream, **named)}, repeats)["answers"]


def rows_of(batches: list[AnswerBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.answers]


OUTSIDE = [{"age": 99, "sex": "f", "smokes": True}] * 5
AGES = [json.dumps({"conjunction": {"age": age}}) for age in range(10)]


@pytest.mark.job
def test_answers_queries_of_batches_and_streams_alike(monkeypatch):
    """In order; invalid ones cost no budget; a run gets the counts of records inside the domain."""
    held = []
    original = module.PrivateMW

    def spy(plan, histogram, noise, *rest, **named):
        held.append(histogram.counts.copy())
        return original(plan, histogram, noise, *rest, **named)

    monkeypatch.setattr(module, "PrivateMW", spy)
    kinds = (False, True)
    in_order = [[FIRST, *REFUSED, REPEAT, SECOND]]
    found = outputs(
        {
            **{f"order {each}": answering(in_order, each, RECORDS + OUTSIDE) for each in kinds},
            **{f"empty {each}": answering([FIRST], each, []) for each in kinds},
            **{
                f"noisy {each}": answering([FIRST, SECOND], each, num_records="noisy")
                for each in kinds
            },
            "no queries": answering([], is_stream=False),
            "last update": answering([AGES], is_stream=False, max_updates=1),
        }
    )
    for each in kinds:
        check_order(found[f"order {each}"])
        (batch,) = found[f"empty {each}"]
        assert batch.answers[0]["error"] is None
        assert len({batch.num_records for batch in found[f"noisy {each}"]}) == 1
    assert [batch.answers for batch in found["no queries"]] == [[]]
    (batch,) = found["last update"]
    routes = [row["route"] for row in batch.answers]
    assert "exhausted" in routes and routes.count("update") == 1
    assert set(routes[routes.index("update") + 1 :]) == {"exhausted"}
    assert batch.answers[-1]["updates_left"] == 0 and batch.answers[-1]["value"] is not None
    # Not histograms of the test's own: what runs are given is what the records say.
    tables = [counts.reshape(DOMAIN.shape) for counts in held if counts.any()]
    assert len(held) == 8 and len(tables) == 6
    for table in tables:
        assert table.sum() == 1000 and table[3, 0].max() == 900 and table[7, 1].max() == 100


def check_order(batches: list[AnswerBatch]) -> None:
    (batch,) = batches
    rows = batch.answers
    assert [row["id"] for row in rows] == ["a", "bad", *[None] * 6, "again", "2"]
    assert rows[0]["route"] == "update" and abs(rows[0]["value"] - 900) <= rows[0]["bound"]
    assert rows[0]["updates_left"] == 2 and rows[0]["questions_left"] == 9
    for row in rows[1:8]:
        assert row["error"] and "\n" not in row["error"] and row["value"] is None
        assert row["route"] is None and row["updates_left"] == 2 and row["questions_left"] == 9
    assert "'aeg' is not an attribute" in rows[1]["error"] and "'age'" in rows[1]["error"]
    assert rows[8] == {**rows[0], "id": "again"}
    assert rows[9]["questions_left"] == 8 and rows[9]["error"] is None
    assert batch.num_records == 1000 and batch.number == 0


@pytest.mark.job
def test_replayed_bundle_of_a_stream_answers_once(draws):
    """FnApiRunner does each bundle three times and keeps the state and the output of one."""
    batches = answer([[FIRST], [SECOND, REPEAT]], repeats=2, is_stream=True, num_records="noisy")
    assert len({batch.run_id for batch in batches}) == 1
    assert len({batch.num_records for batch in batches}) == 1
    batches = set_of(batches)  # who collects is done three times, too
    assert [batch.number for batch in batches] == list(range(len(batches)))
    assert len(set(draws)) > len(batches)  # it was done again
    by_id = {row["id"]: row for row in rows_of(batches)}
    assert by_id["a"]["value"] == by_id["again"]["value"]
    assert by_id["a"]["updates_left"] == 2 and by_id["2"]["questions_left"] == 8


class CrashError(Exception):
    """What the first attempt dies of."""


class FailsOnce(beam.DoFn):
    """Takes what it is given to the outside world, and fails after the first time."""

    def __init__(self, after: int) -> None:
        self.after = after

    def process(self, batch):
        SEEN.append(batch)
        if len(SEEN) == self.after:
            raise CrashError
        yield batch


SEEN: list[AnswerBatch] = []


def stream(p: beam.Pipeline, panes: list[list[Any]]) -> Any:
    events = Events()
    for number, pane in enumerate(panes):
        events = events.advance_watermark_to(10 * number).add_elements(pane)
    return p | events.advance_watermark_to_infinity()


def streaming_pipeline() -> beam.Pipeline:
    """On the one local runner that knows TestStream, and retries a bundle that failed."""
    return beam.Pipeline(BundleBasedDirectRunner())


PANES = [[FIRST], [BAD, SECOND], [REPEAT, '{"conjunction": {"sex": "f"}}'], [NAN], [FIRST]]


def check_stream(batches: list[AnswerBatch]) -> None:
    batches = sorted(set_of(batches), key=lambda batch: batch.number)
    assert len({batch.run_id for batch in batches}) == 1
    assert [batch.number for batch in batches] == list(range(len(batches)))
    assert len(batches) >= len(PANES) - 1
    rows = rows_of(batches)
    assert sorted(str(row["id"]) for row in rows) == ["2", "None", "None", "a", "a", "again", "bad"]
    firsts = [row["value"] for row in rows if row["id"] in ("a", "again")]
    assert len(firsts) == 3 and len(set(firsts)) == 1
    assert [row["id"] for row in rows if row["error"]] == ["bad", None]
    assert rows[-1]["questions_left"] == 7  # three different queries


def set_of(batches: list[AnswerBatch]) -> list[AnswerBatch]:
    """One of each that was seen several times, which must then be equal."""
    found: dict[tuple[str, int], AnswerBatch] = {}
    for batch in batches:
        assert found.setdefault((batch.run_id, batch.number), batch) == batch
    return list(found.values())


def answered(p: beam.Pipeline, **named: Any) -> Any:
    """The answers to the queries of a stream, which are in windows of their own."""
    held = p | "Records" >> beam.Create(RECORDS)
    asked = stream(p, PANES) | "Into windows" >> beam.WindowInto(FixedWindows(10))
    return asked | AnswerQueries(plan(**named), held)


@pytest.mark.job
@pytest.mark.parametrize("after", [1, 3])
def test_reader_that_fails_once_sees_the_same_answers(after):
    SEEN.clear()
    with streaming_pipeline() as p:
        _ = answered(p, num_records="noisy") | beam.ParDo(FailsOnce(after)) | collect("stream")
    assert len(SEEN) > len(COLLECTED["stream"])
    check_stream(SEEN)
    check_stream(COLLECTED["stream"])


@pytest.mark.job
def test_run_restored_from_its_state_gives_the_same_answers(monkeypatch):
    """Without what the object keeps, every batch starts from the state."""
    rebuilt = []
    original = module.saved_runs.run_from_log

    def spy(*arguments):
        rebuilt.append(original(*arguments))
        return rebuilt[-1]

    monkeypatch.setattr(module.saved_runs, "run_from_log", spy)
    with streaming_pipeline() as p:
        _ = answered(p) | collect("stream")
    check_stream(COLLECTED["stream"])
    assert rebuilt and rebuilt[-1].updates_left <= 2
    spent = rebuilt[-1].plan.max_updates - rebuilt[-1].updates_left
    assert spent == sum(
        row["route"] == "update"
        for row in {row["query"]: row for row in rows_of(COLLECTED["stream"])}.values()
    )
    # A model that learned that 900 of 1,000 are three years old does not predict a tenth.
    assert rebuilt[-1].weights.reshape(10, -1)[3].sum() > 0.2


class Kept:
    """A state cell, or a bag, that a test can set back as a runner does."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def read(self) -> Any:
        return self.value

    def write(self, value: Any) -> None:
        self.value = value

    def add(self, entry: str) -> None:
        self.value = [*self.value, entry]


def counted() -> list[tuple[int, bytes]]:
    counts = np.zeros(DOMAIN.num_cells, np.int64)
    counts[3 * DOMAIN.num_cells // 10] = 900
    return [(0, write_shard(counts))]


@pytest.fixture
def started() -> tuple[Any, Kept, Kept]:
    """A step on a worker, and the two cells of its state."""
    step = module._AnswerStream(module._Starter(plan(), None))
    step.setup()
    return step, Kept(None), Kept([])


def test_step_whose_saved_state_was_set_back_continues_from_that_state(started):
    """A bundle failed after it had answered: its state is set back, and the object lives on."""
    step, head, log = started
    (first,) = step.process(("run", [FIRST]), counted(), head, log)
    before = head.value, log.value
    list(step.process(("run", [SECOND]), counted(), head, log))
    head.value, log.value = before
    (again,) = step.process(("run", [REPEAT]), counted(), head, log)
    assert again.number == 1 and again.run_id == first.run_id
    # SECOND was never asked; FIRST was.
    assert again.answers == [{**first.answers[0], "id": "again"}]
    assert again.answers[0]["questions_left"] == 9


def test_step_continues_from_the_saved_state_after_a_failure(started, monkeypatch):
    step, head, log = started
    (first,) = step.process(("run", [FIRST]), counted(), head, log)
    before = head.value, log.value
    with monkeypatch.context() as patch:
        original = module.saved_runs.answer_line

        def fail_after(*arguments):
            original(*arguments)
            raise CrashError

        patch.setattr(module.saved_runs, "answer_line", fail_after)
        with pytest.raises(PrivateStepError):
            list(step.process(("run", [SECOND]), counted(), head, log))
    head.value, log.value = before
    (again,) = step.process(("run", [REPEAT]), counted(), head, log)
    assert again.answers == [{**first.answers[0], "id": "again"}]


def test_saved_state_is_plain_and_belongs_to_its_settings(started):
    step, head, log = started
    list(step.process(("run", [FIRST]), counted(), head, log))
    assert json.loads(json.dumps(head.value)) == list(head.value)
    assert set(head.value[3]) == {"settings", "total", "sparse"}
    # A stream that a newer version takes over, which chooses other noise for the same plan.
    list(step.process(("run", [FIRST]), counted(), head, log))
    step.setup()  # another worker
    *rest, state = head.value
    head.value = (*rest, {**state, "settings": {**state["settings"], "threshold": 1}})
    before = head.value, log.value
    with pytest.raises(PrivateStepError):
        list(step.process(("run", [SECOND]), counted(), head, log))
    assert (head.value, log.value) == before
    head.value = (*rest, state)
    (again,) = step.process(("run", [REPEAT]), counted(), head, log)
    assert again.answers[0]["questions_left"] == 9


@pytest.mark.job
def test_stream_in_several_panes_is_one_run_written_batch_by_batch(tmp_path):
    with streaming_pipeline() as p:
        answers = answered(p, num_records="noisy")
        _ = answers | WriteAnswers(tmp_path, plan(num_records="noisy"))
        _ = answers | collect("stream")
    check_stream(COLLECTED["stream"])
    files = sorted(tmp_path.iterdir())
    batches = sorted(COLLECTED["stream"], key=lambda batch: batch.number)
    assert [row for path in files for row in read_rows(path.read_bytes())] == rows_of(batches)
    assert np.unique([path.name[:40] for path in files]).size == 1
    # Of two attempts at a batch the first is kept.
    first = batches[0]
    other = [{**row, "value": 1.0} for row in first.answers]
    assert not write_batch(other, first.run_id, 0, tmp_path)
    assert list(read_rows(files[0].read_bytes())) == first.answers


MIN_RAM = "beam:resources:min_ram_bytes:v1"
RESHUFFLE = "beam:transform:reshuffle:v1"
PLAN = plan_private_mw(DOMAIN, guarantee(), 1000, num_questions=10)


def graph_of_a_stream() -> beam_runner_api_pb2.Components:
    p = pipeline()
    asked = p | "Queries" >> beam.Create(['{"prefix": 2}'])
    asked.is_bounded = False
    held = p | "Records" >> beam.Create([{"age": 3}])
    answers = asked | "Answers" >> AnswerQueries(PLAN, held)
    assert not answers.is_bounded
    _ = answers | "Read" >> beam.Map(lambda batch: None)
    return p.to_runner_api().components


def steps(components: beam_runner_api_pb2.Components) -> dict[str, Any]:
    return {step.unique_name: step for step in components.transforms.values()}


def sole_reader(by_name: dict[str, Any], name: str) -> str:
    """The one outermost step that reads what a step says."""
    (output,) = by_name[name].outputs.values()
    readers = {
        reader
        for reader, step in by_name.items()
        if output in step.inputs.values() and not reader.startswith(f"{name}/")
    }
    outermost = {reader for reader in readers if reader.rpartition("/")[0] not in readers}
    (reader,) = outermost
    return reader


def test_reshuffle_separates_answers_from_their_readers(monkeypatch):
    by_name = steps(graph_of_a_stream())
    barrier = sole_reader(by_name, "Answers/Answer")
    assert barrier == "Answers/Keep the answers"
    assert by_name[barrier].spec.urn == RESHUFFLE
    assert sole_reader(by_name, barrier) == "Read"
    remove_barrier(monkeypatch)
    by_name = steps(graph_of_a_stream())
    barrier = sole_reader(by_name, "Answers/Answer")
    assert by_name[barrier].spec.urn != RESHUFFLE


def test_answering_step_and_its_reshuffle_request_memory():
    components = graph_of_a_stream()
    hints = {
        name: components.environments[step.environment_id].resource_hints.get(MIN_RAM)
        for name, step in steps(components).items()
        if step.environment_id
    }
    asking = {name: int(memory) for name, memory in hints.items() if memory is not None}
    # What has another hint is in another stage: all of the barrier has that of the step.
    expected = {name for name in hints if name.startswith(("Answers/Answer", "Answers/Keep the"))}
    assert set(asking) == expected and len(expected) > 2
    assert set(asking.values()) == {worker_bytes(PLAN, DOMAIN.num_cells)}
