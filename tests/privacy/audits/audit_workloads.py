"""Answers to workloads of linear queries: literals of attributes of three and of two levels.

All of them, also beside explicit values, and all disjunctions of two.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from auditing import (
    DELTA,
    Audit,
    Bug,
    Finding,
    around,
    audited,
    double_scales,
    halve_scales,
    repeated,
    told_apart,
)
from noise_sources import Draw, NoNoise
from run_views import clipped, convolved, log_ratio
from tiny import ADD, REPLACE, domain_of, promise, with_unit, worst_share

from beam_dp.mechanisms.linear_answers import answers as answers_module
from beam_dp.mechanisms.linear_answers.answers import (
    WorkloadAnswersPlan,
    draw_workload_answers,
    plan_workload_answers,
)
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.disjunction import Disjunction
from beam_dp.queries.linear import Product
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sensitivity import WorkloadSensitivity
from beam_dp.testing import audit

RUNS = 4000
NUM_RECORDS = 20
BASE = (12, 5, 0, 0, 3, 1)
LITERALS = parse_linear_workload("conjunctions:1", domain_of(3, 2))
FEW = parse_linear_workload("conjunctions:1", domain_of(2))
_HALF = LinearQueries(LITERALS.domain).explicit([0.5, 0.25, 0.0, 1.0, 0.125, 0.75])
DISJUNCTIONS = parse_linear_workload("disjunctions:2", domain_of(3, 2))
FRACTIONAL = LinearWorkload(LITERALS.domain, (*LITERALS.queries, _HALF))


def audits() -> list[Audit]:
    return [
        audit_of(f"workload {kind}{suffix}", kind, workload, relation)
        for kind in ("laplace", "gaussian")
        for suffix, workload in (
            ("", LITERALS),
            (", explicit", FRACTIONAL),
            (", disjunctions", DISJUNCTIONS),
        )
        for relation in (ADD, REPLACE)
    ]


def audit_of(name: str, kind: str, workload: LinearWorkload, relation: str) -> Audit:
    # So that a few thousand runs see much of it.
    delta = DELTA if kind == "gaussian" else 0.0
    guarantee = promise(relation, delta, 12.0 if delta else 3.0)

    def plan_for(queries: LinearWorkload, promise: Guarantee) -> WorkloadAnswersPlan:
        return plan_workload_answers(queries, promise, NUM_RECORDS, f"discrete_{kind}")  # type: ignore[arg-type]

    checks = {"price": price}
    if workload is LITERALS:
        checks["black box"] = black_box
        if kind == "laplace":  # Gaussian noise lies on too fine a grid to enumerate its law
            checks["law"] = exact_law
    bugs, blinding = bugs_of(name, guarantee)
    case = workload, guarantee, plan_for
    return audited(name, guarantee, checks, bugs, *case, blinding=blinding)


Planner = Callable[[LinearWorkload, Guarantee], WorkloadAnswersPlan]


def draws_of(plan: WorkloadAnswersPlan, counts: np.ndarray) -> list[Draw]:
    """What is handed to the noise."""
    source = NoNoise()
    draw_workload_answers(plan, counts, source)
    return source.draws


def price(workload: LinearWorkload, guarantee: Guarantee, plan_for: Planner) -> Finding:
    """The share of the guarantee that any neighbours spend, also with two records a unit."""
    found = []
    for most in (1, 2):
        mine = promise(guarantee.neighboring.value, guarantee.delta, guarantee.epsilon, most)
        draws = functools.partial(draws_of, plan_for(workload, mine))
        found.append(worst_share(mine, [np.array(BASE), np.zeros(len(BASE))], draws))
    return Finding(min(found) > 0.99 and max(found) <= 1)


def exact_law(_: LinearWorkload, guarantee: Guarantee, plan_for: Planner) -> Finding:
    """The exact law of two answers, clipped, over all neighbours."""
    plan = plan_for(FEW, guarantee)

    def law(data: tuple[int, ...]) -> dict[Any, float]:
        (draw,) = draws_of(plan, with_unit(np.zeros(2, np.int64), data))
        return audit.product_law([clipped(draw, int(value)) for value in draw.exact])

    found = audit.audit_law(law, range(2), guarantee, num_others=2)
    return Finding(found.is_private and found.epsilon > 0.99 * guarantee.epsilon)


def black_box(_: LinearWorkload, guarantee: Guarantee, plan_for: Planner) -> Finding:
    """Whole draws with the production sampler; thresholds of the log-likelihood ratio.

    Of two answers: the more answers share a loss, the more runs it takes to see it.
    """
    plan = plan_for(FEW, guarantee)
    pair = ((1,), ()) if guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE else ((1,), (0,))
    sides = [with_unit(np.array([6, 6]), unit) for unit in pair]
    draws = [draws_of(plan, side) for side in sides]
    source = NoiseSource()

    def outcome(side: np.ndarray) -> int:
        values = draw_workload_answers(plan, side, source).values
        return log_ratio(*draws, [], [np.rint(values * plan.grid).astype(np.int64)])

    low, laws = convolved(*draws)
    known = tuple({low + at: share for at, share in enumerate(one) if share} for one in laws)
    runs = [repeated(functools.partial(outcome, side)) for side in sides]
    return told_apart(runs, guarantee, runs=RUNS, score=float, laws=known)


def with_sensitivity(mutant: Callable[..., WorkloadSensitivity]) -> Bug:
    return around(answers_module, "workload_sensitivity", mutant)


def of_part(keep: Callable[[LinearWorkload], tuple[Any, ...]]) -> Bug:
    return with_sensitivity(
        lambda original, workload, *given: original(
            LinearWorkload(workload.domain, keep(workload)), *given
        )
    )


def is_negated(query: Any) -> bool:
    """Whether a literal is "is not this level"; of two levels, "is the first"."""
    if len(getattr(query, "axes", ())) != 1:
        return False
    (size,) = [query.shape[axis] for axis in query.axes]
    held = [code for start, stop in query.ranges[0] for code in range(start, stop)]
    return len(held) > 1 or (size == 2 and held == [0])


def as_conjunctions(workload: LinearWorkload) -> tuple[Any, ...]:
    """The same literals, as if all had to hold."""
    return tuple(
        Product(each.shape, each.axes, each.ranges) if isinstance(each, Disjunction) else each
        for each in workload
    )


def _swapped_norms(original: Any, *given: Any) -> WorkloadSensitivity:
    """L2 where L1 is needed, and a root forgotten the other way."""
    found = original(*given)
    return dataclasses.replace(found, l1=found.l2 >> 16 << 16, l2_squared=found.l1 << 16)


AS_ADDED = with_sensitivity(
    lambda original, workload, _, most: original(workload, Neighboring.ADD_OR_REMOVE_ONE, most)
)
OF_ONE_RECORD = with_sensitivity(
    lambda original, workload, neighboring, _: original(workload, neighboring, 1)
)
ONLY_FIRST = of_part(lambda workload: workload.queries[:1])
NO_NEGATIONS = of_part(lambda workload: tuple(each for each in workload if not is_negated(each)))


def bugs_of(name: str, guarantee: Guarantee) -> tuple[dict[str, dict[str, Bug]], dict[str, Bug]]:
    """The bugs by check, and those that blind the audit."""
    replaces = guarantee.neighboring is Neighboring.REPLACE_ONE
    price = {
        "sensitivity of one query": ONLY_FIRST,
        "records of a unit forgotten": OF_ONE_RECORD,
    }
    found, blinding = {"price": price}, {}
    if "disjunctions" in name:
        price["disjunctions taken for conjunctions"] = of_part(as_conjunctions)
    else:
        price["negated literals forgotten"] = NO_NEGATIONS
    if "," not in name:
        found["black box"] = {"noise scale halved in the sampler": halve_scales}
    # Some record is in so many disjunctions that a replacement moves no more than its removal.
    if replaces and "disjunctions" not in name:
        price["replace-one run with add-remove noise"] = AS_ADDED
    if name == "workload laplace":
        price["L2 in place of L1"] = with_sensitivity(_swapped_norms)
        blinding["noise doubled in the sampler"] = double_scales
        if replaces:
            found["law"] = {"replacement as an addition: law": AS_ADDED}
    return found, blinding
