"""The log of a run of ``PrivateMW``, from which the run is restored.

The log is public and short: a query, its answer, and how far the hypothesis moved. The secret part
is the state of the sparse vector, a few integers. No dense array is ever kept.

Unlike what a run hands over, a checkpoint does not end it. It is for a stream alone, whose state
commits together with the answers that led to it, or neither does.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from beam_dp.mechanisms.online.private_mw import OnlineMW, PrivateAnswer, PrivateMW, SavedRun
from beam_dp.mechanisms.online.private_mw_plan import PrivateMWPlan, Start, start_weights
from beam_dp.mechanisms.sparse_vector.mechanisms import SparseState
from beam_dp.noise.source import NoiseSource
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.lines import QueryReader, read_line
from beam_dp.queries.reader import LinearQueries
from beam_dp.summaries.histogram import Histogram

Row = dict[str, Any]


def answer_line(run: OnlineMW[Any], queries: QueryReader, line: Any) -> tuple[Row, str | None]:
    """Answers one query as users write it; a bad one gets an error for an answer.

    Privacy: what a query says is public, so that its refusal may say it too. A refused query
    asks nothing of the data.

    Returns:
        A row of ``releases.files.answers``, and an entry of the log if the query is new.
    """
    asked = read_line(queries, line)
    row: Row = {"id": asked.id, "query": asked.text, "error": asked.error}
    if asked.query is None:
        nothing = dict.fromkeys(("value", "standard_error", "bound", "route"))
        left = {"updates_left": run.updates_left, "questions_left": run.questions_left}
        return {**row, **nothing, **left}, None
    query = asked.query
    num_answered = run.num_answered
    answer = run.answer(query)
    row |= dataclasses.asdict(answer)
    if run.num_answered == num_answered:
        return row, None
    entry = {
        "query": query.to_json(),
        "answer": dataclasses.asdict(answer),
        "step": run.step(query),
    }
    return row, json.dumps(entry, allow_nan=False)


def checkpoint(run: PrivateMW) -> dict[str, Any]:
    """Returns the state that ``run_from_log`` needs in addition to the log; in part secret.

    Privacy: of the run and all that go on from its checkpoints, one may show answers.
    """
    return {
        "settings": run.settings.to_json(),
        "total": run.settings.total,
        "sparse": run._sparse._checkpoint(),
    }


def run_from_log(
    plan: PrivateMWPlan,
    histogram: Histogram,
    noise: NoiseSource,
    start: Start | None,
    state: Mapping[str, Any],
    log: Iterable[str],
) -> PrivateMW:
    """Returns the run that wrote a log.

    ``histogram``: the same exact counts.
    ``start``: the release that the run started from, if any.

    Privacy: nothing is spent. Two runs that go on from one state would each spend the budget.
    """
    queries = LinearQueries(plan.domain)
    log_weights = start_weights(plan, start)
    answers: list[tuple[LinearQuery, PrivateAnswer]] = []
    for text in log:
        entry = json.loads(text)
        query = queries.from_json(entry["query"])
        answers.append((query, PrivateAnswer(**entry["answer"])))
        if entry["step"]:
            query.add_to(log_weights, entry["step"])
    sparse = SparseState(state["sparse"])
    saved = SavedRun(state["settings"], state["total"], tuple(answers), sparse, None, log_weights)
    return PrivateMW(plan, histogram, noise, saved=saved)
