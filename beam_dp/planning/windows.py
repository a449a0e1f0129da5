"""Planning options: tables of the windows of a stream, for questions about sums of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dp.mechanisms.marginals.plan import check_request
from beam_dp.mechanisms.windows import choices
from beam_dp.noise.bound import Distribution
from beam_dp.queries.workload import Workload
from beam_dp.windows.horizon import Horizon
from beam_dp.windows.unit import WindowUnit, whole_promise


@dataclasses.dataclass(frozen=True)
class WindowsOption:
    """One way to measure the windows of a horizon, and the errors that follow.

    ``block``: windows in a block; None if no blocks are measured.
    ``errors``: for each question, asked as early as possible: the root mean squared error of a
    cell, averaged over the workload and the horizon, in records.
    """

    strategy: choices.Strategy
    distribution: Distribution
    block: int | None
    share: float
    errors: Mapping[str, float]
    final_errors: Mapping[str, float]
    mean_error: float

    def to_json(self) -> dict[str, Any]:
        """Returns the option as JSON values."""
        return dataclasses.asdict(self)


def rank_window_strategies(
    workload: Workload,
    horizon: Horizon,
    unit: WindowUnit,
    epsilon: float,
    delta: float,
    *,
    questions: Sequence[str] | None = None,
    distribution: choices.DistributionChoice = "auto",
    block: int = choices.DEFAULT_BLOCK,
    allow_large_delta: bool = False,
) -> list[WindowsOption]:
    """Returns all ways to measure windows, the best for some questions first; reads no data.

    Takes and refuses what ``plan_window_tables`` does. A distribution ``auto`` compares both, and
    ``block`` is compared in addition to divisors of the horizon.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> workload = Workload(read_domain('{"age": 10}'), (("age",),))
        >>> week, people = Horizon(0, "1h", 168, 0), WindowUnit("person_id", 1, 7, 168)
        >>> best = rank_window_strategies(workload, week, people, 1.0, 1e-9)[0]
        >>> best.strategy, {question: round(error, 1) for question, error in best.errors.items()}
        ('independent', {'one': 9.9, 'trailing:24': 48.5, 'running': 90.9})
    """
    promise = whole_promise(horizon, unit, epsilon, delta, allow_large_delta)
    check_request(workload.domain, workload, promise, "noisy")
    if questions is None:
        questions = choices.default_questions(horizon.num_windows)
    found = choices.ranked_choices(
        workload,
        horizon,
        unit,
        promise,
        distribution=distribution,
        block=block,
        questions=questions,
    )
    asked = {text: choices.Question.parse(text, horizon.num_windows) for text in questions}
    return [
        WindowsOption(
            choice.strategy,
            choice.distribution,
            choice.block,
            float(choice.share),
            {text: choice.error(question) for text, question in asked.items()},
            {text: choice.error(question, "end") for text, question in asked.items()},
            choice.mean_error([*asked.values()]),
        )
        for choice in found
    ]
