"""The transform from records to noisy answers of a known workload."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam

from beam_dp.checks import check_is
from beam_dp.errors import InputError
from beam_dp.mechanisms.linear_answers.answers import LinearAnswersPlan, WorkloadAnswersPlan
from beam_dp.mechanisms.linear_answers.top_queries import TopQueriesPlan
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.ledger.entries import Token
from beam_dp.queries.lines import QueryLine
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.summarise import CountCells
from beam_dp.transforms.drawing.one_worker import draw_once
from beam_dp.transforms.elements import AnswerBatch, Row, answer_batches


class AnswerWorkload(beam.PTransform):
    """Answers a workload of linear queries at once, or those of them with the largest answers.

    Privacy: ``plan.guarantee``, as ``draw_workload_answers`` and ``draw_top_queries`` say. Noise
    is drawn once, by one step behind which a ``Reshuffle`` stands; a draw that is done again has
    another ``run_id``, and ``WriteAnswers`` commits one.

    Args:
        plan: from ``plan_workload_answers`` or ``plan_top_queries``.
        lines: what was asked; every query is in the plan's workload, refused ones get an error.
        ledger_token: from ``Ledger.spend``, for just this.

    Raises:
        InputError: if a query is not in the workload, or the token paid for something else; when
            applied, if the records are windowed or unbounded, or lack a column.

    Output: ``AnswerBatch`` elements of a few MB, by their numbers in the order of the lines; the
    largest answers in the order in which they were chosen, and then refused lines.
    """

    def __init__(
        self,
        plan: LinearAnswersPlan,
        lines: Sequence[QueryLine],
        ledger_token: Token | None = None,
    ) -> None:
        super().__init__()
        check_is("plan", plan, WorkloadAnswersPlan, TopQueriesPlan)
        self.plan = plan.paid_by(ledger_token)
        nothing = dict.fromkeys(
            ("value", "standard_error", "bound", "route", "updates_left", "questions_left")
        )
        stated = {
            "standard_error": plan.standard_error,
            "bound": plan.bound(),
            "route": "measured",
        }
        places = {query: place for place, query in enumerate(plan.workload)}
        self.rows: list[tuple[Row, int | None]] = []
        for line in lines:
            row = {"id": line.id, "query": line.text, **nothing, "error": line.error}
            if line.query is None:
                self.rows.append((row, None))
            elif line.query not in places:
                raise InputError("query", line.text, "must be in the workload of the plan")
            else:
                self.rows.append((row | stated, places[line.query]))

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[AnswerBatch]:
        """Counts, draws."""
        plan, domain = self.plan, self.plan.workload.domain
        count = CountCells(domain, plan.guarantee, unit_costs=plan.unit_costs)
        shards = records | "Count" >> count
        answers = functools.partial(_answers, plan, self.rows)
        min_ram = worker_bytes(plan, domain.num_cells)
        return draw_once(records.pipeline, answers, [shards], min_ram, AnswerBatch)


def _answers(
    plan: LinearAnswersPlan,
    asked: list[tuple[Row, int | None]],
    noise: NoiseSource,
    shards: Iterable[tuple[int, bytes]],
) -> list[AnswerBatch]:
    histogram = HistogramAccumulator(plan.workload.domain).from_shards(shards)
    values = plan.answered(histogram.counts, noise)
    told = [each for each in asked if each[1] is None or each[1] in values]
    if isinstance(plan, TopQueriesPlan):
        # By rank; others stay as they were asked.
        ranks: dict[int | None, int] = {place: rank for rank, place in enumerate(values)}
        told.sort(key=lambda each: ranks.get(each[1], len(ranks)))
    rows = [row if place is None else {**row, "value": values[place]} for row, place in told]
    public = None if plan.num_records == "noisy" else plan.num_records
    return answer_batches(noise.draw_id(), public, rows)
