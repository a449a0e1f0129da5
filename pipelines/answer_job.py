"""Jobs of answers: their warnings, payment and pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apache_beam as beam

from beam_dp.mechanisms import PrivateMWPlan, SparseMWPlan
from beam_dp.mechanisms.linear_answers.answers import WorkloadAnswersPlan
from beam_dp.mechanisms.online.saved_runs import Payment
from beam_dp.privacy.ledger import Ledger, Token
from beam_dp.queries.lines import QueryLine
from beam_dp.releases import SyntheticDatabase
from beam_dp.transforms import (
    AnswerQueries,
    AnswerSparseQueries,
    AnswerWorkload,
    KeyColumns,
    WriteAnswers,
)
from beam_dp.transforms.drawing.answer_batches import numbered_queries

_SHOWN_REFUSALS = 5


@dataclass(frozen=True)
class Job:
    """Everything that flags say, as values that have been checked one by one."""

    input: str
    input_format: str | None
    lines: tuple[str, ...]
    asked: tuple[QueryLine, ...]
    refusals: tuple[str, ...]
    plan: PrivateMWPlan | SparseMWPlan | WorkloadAnswersPlan
    start: SyntheticDatabase | None
    columns: KeyColumns | None
    state: Path | None
    resume: Path | None
    payment: Payment | None
    ledger_url: str | None = field(repr=False)
    ledger: Ledger | None
    dataset_id: str
    output: str
    validate_only: bool
    beam_flags: tuple[str, ...]


def add_answers(
    job: Job,
    records: beam.PCollection[Any],
    token: Token | None = None,
    save_in: Path | None = None,
) -> beam.PCollection[str]:
    """Adds the answers about some records, and their writing; returns the directory.

    Raises:
        InputError: the records, the output or a combination of parameters is refused.
    """
    pipeline = records.pipeline
    if isinstance(job.plan, PrivateMWPlan):
        lines = pipeline | "Queries" >> beam.Create(numbered_queries(job.lines))
        answers = lines | "Answer" >> AnswerQueries(
            job.plan,
            records,
            job.start,
            token,
            save_in=None if job.state is None else save_in or job.state,
            resume=job.resume,
            ledger=job.ledger_url,
        )
    elif isinstance(job.plan, SparseMWPlan):
        assert job.columns is not None
        lines = pipeline | "Queries" >> beam.Create(numbered_queries(job.lines))
        answers = lines | "Answer" >> AnswerSparseQueries(job.plan, job.columns, records, token)
    else:
        answer = AnswerWorkload(job.plan, job.asked, token)
        answers = records | "Answer" >> answer
    number = None if job.payment is None else job.payment.state_number
    return answers | "Write" >> WriteAnswers(job.output, job.plan, token, number)


def spend(ledger: Ledger, job: Job) -> Token:
    """Pays for the answers.

    Raises:
        InputError: if the ledger refuses; then nothing was spent.
    """
    plan = job.plan
    return ledger.spend(job.dataset_id, plan.guarantee, plan.loss, plan.mechanism, plan.public)


def warnings_of(job: Job) -> list[str]:
    """Returns what to tell before queries are answered: which are refused, and a useless bound."""
    warnings = [f"--queries: {refusal}" for refusal in job.refusals[:_SHOWN_REFUSALS]]
    if len(job.refusals) > _SHOWN_REFUSALS:
        warnings.append(f"--queries: {len(job.refusals)} lines are refused")
    if job.plan.is_vacuous:
        warnings.append(
            "the bound on errors is no better than the number of records;"
            " more records or a larger --epsilon help"
        )
    return warnings
