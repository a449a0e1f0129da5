"""The graph of a stream of answers: where its stages end, and how much memory it needs.

A local runner shows neither: it fuses less than others, and has one worker.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.portability.api import beam_runner_api_pb2
from barriers import remove_barrier
from fakes import DOMAIN, guarantee, pipeline

from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.transforms import AnswerQueries

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


def test_reshuffle_separates_answers_from_their_readers():
    by_name = steps(graph_of_a_stream())
    barrier = sole_reader(by_name, "Answers/Answer")
    assert barrier == "Answers/Keep the answers"
    assert by_name[barrier].spec.urn == RESHUFFLE
    assert sole_reader(by_name, barrier) == "Read"


def test_detects_missing_reshuffle(monkeypatch):
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
