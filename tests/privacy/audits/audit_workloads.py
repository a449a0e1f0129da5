"""Answers to workloads of linear queries: literals of attributes of three and of two levels.

All of them, also beside explicit values, and all disjunctions of two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from audit_cases import DELTA, Audit, Mutant, Patch, double_scales, halve_scales
from audit_views import Finding, clipped, convolved, from_black_box, log_ratio, promised
from noise_sources import Draw, NoNoise
from tiny import ADD, REPLACE, domain_of, neighbours, promise, share_spent, units, with_unit

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
from beam_dp.queries.sensitivity import WorkloadSensitivity, workload_sensitivity
from beam_dp.testing import audit

RUNS = 4000
NUM_RECORDS = 20
BASE = (12, 5, 0, 0, 3, 1)
LITERALS = parse_linear_workload("conjunctions:1", domain_of(3, 2))
FEW = parse_linear_workload("conjunctions:1", domain_of(2))
_HALF = LinearQueries(LITERALS.domain).explicit([0.5, 0.25, 0.0, 1.0, 0.125, 0.75])
DISJUNCTIONS = parse_linear_workload("disjunctions:2", domain_of(3, 2))
FRACTIONAL = LinearWorkload(LITERALS.domain, (*LITERALS.queries, _HALF))


def workload_audits() -> list[Audit]:
    return [
        audited(f"workload {kind}{suffix}", kind, workload, relation)
        for kind in ("laplace", "gaussian")
        for suffix, workload in (
            ("", LITERALS),
            (", explicit", FRACTIONAL),
            (", disjunctions", DISJUNCTIONS),
        )
        for relation in (ADD, REPLACE)
    ]


def audited(name: str, kind: str, workload: LinearWorkload, relation: str) -> Audit:
    # So that a few thousand runs see much of it.
    delta = DELTA if kind == "gaussian" else 0.0
    guarantee = promised(relation, delta, 12.0 if delta else 3.0)

    def plan_for(queries: LinearWorkload, promise: Guarantee) -> WorkloadAnswersPlan:
        return plan_workload_answers(queries, promise, NUM_RECORDS, f"discrete_{kind}")  # type: ignore[arg-type]

    checks = {"price": lambda: price(workload, guarantee, plan_for)}
    if workload is LITERALS:
        checks["black box"] = lambda: black_box(guarantee, plan_for)
        if kind == "laplace":  # Gaussian noise lies on too fine a grid to enumerate its law
            checks["law"] = lambda: exact_law(guarantee, plan_for)
    return Audit(name, guarantee, checks, mutants_of(name, guarantee))


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
        plan = plan_for(workload, mine)
        worst = 0.0
        held = units(workload.domain.num_cells, most)
        for base in (np.array(BASE), np.zeros(len(BASE), np.int64)):
            draws = {unit: draws_of(plan, with_unit(base, unit)) for unit in held}
            for one, other in neighbours(held, guarantee.neighboring.value):
                worst = max(worst, share_spent(mine, draws[one], draws[other]))
        found.append(worst)
    return Finding(min(found) > 0.99 and max(found) <= 1)


def exact_law(guarantee: Guarantee, plan_for: Planner) -> Finding:
    """The exact law of two answers, clipped, over all neighbours."""
    plan = plan_for(FEW, guarantee)

    def law(data: tuple[int, ...]) -> dict[Any, float]:
        (draw,) = draws_of(plan, with_unit(np.zeros(2, np.int64), data))
        return audit.product_law([clipped(draw, int(value)) for value in draw.exact])

    found = audit.audit_law(law, range(2), guarantee, num_others=2)
    return Finding(found.is_private and found.epsilon > 0.99 * guarantee.epsilon)


def black_box(guarantee: Guarantee, plan_for: Planner) -> Finding:
    """Whole draws with the production sampler; thresholds of the log-likelihood ratio.

    Of two answers: the more answers share a loss, the more runs it takes to see it.
    """
    plan = plan_for(FEW, guarantee)
    pair = ((1,), ()) if guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE else ((1,), (0,))
    sides = [with_unit(np.array([6, 6]), unit) for unit in pair]
    draws = [draws_of(plan, side) for side in sides]
    source = NoiseSource()

    def sampler(side: int) -> Callable[[int], list[int]]:
        def sample(runs: int) -> list[int]:
            outcomes = []
            for _ in range(runs):
                values = draw_workload_answers(plan, sides[side], source).values
                seen = np.rint(values * plan.grid).astype(np.int64)
                outcomes.append(log_ratio(*draws, [], [seen]))
            return outcomes

        return sample

    low, laws = convolved(*draws)
    found = audit.audit_black_box(
        sampler(0),
        sampler(1),
        guarantee.epsilon,
        guarantee.delta,
        runs=RUNS,
        score=float,
        laws=tuple({low + at: share for at, share in enumerate(one) if share} for one in laws),
    )
    return from_black_box(found)


Sensitivity = Callable[[LinearWorkload, Any, int], WorkloadSensitivity]


def with_sensitivity(mutant: Sensitivity) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(answers_module, "workload_sensitivity", mutant)


def of_part(keep: Callable[[LinearWorkload], tuple[Any, ...]]) -> Callable[[Patch], None]:
    def mutant(workload: LinearWorkload, neighboring: Any, most: int) -> WorkloadSensitivity:
        part = LinearWorkload(workload.domain, keep(workload))
        return workload_sensitivity(part, neighboring, most)

    return with_sensitivity(mutant)


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


def as_added(workload: LinearWorkload, _: Any, most: int) -> WorkloadSensitivity:
    return workload_sensitivity(workload, Neighboring.ADD_OR_REMOVE_ONE, most)


def of_one_record(workload: LinearWorkload, neighboring: Any, _: int) -> WorkloadSensitivity:
    return workload_sensitivity(workload, neighboring, 1)


def swap_norms(patch: Patch) -> None:
    """L2 where L1 is needed, and a root forgotten the other way."""

    def mutant(workload: LinearWorkload, neighboring: Any, most: int) -> WorkloadSensitivity:
        found = workload_sensitivity(workload, neighboring, most)
        return dataclasses.replace(found, l1=found.l2 >> 16 << 16, l2_squared=found.l1 << 16)

    patch.setattr(answers_module, "workload_sensitivity", mutant)


def mutants_of(name: str, guarantee: Guarantee) -> dict[str, Mutant]:
    only_first = of_part(lambda workload: workload.queries[:1])
    no_negations = of_part(
        lambda workload: tuple(each for each in workload if not is_negated(each))
    )
    found = {
        "sensitivity of one query": Mutant(only_first, "price"),
        "records of a unit forgotten": Mutant(with_sensitivity(of_one_record), "price"),
    }
    if "disjunctions" in name:
        found["disjunctions taken for conjunctions"] = Mutant(of_part(as_conjunctions), "price")
    else:
        found["negated literals forgotten"] = Mutant(no_negations, "price")
    if "," not in name:
        found["noise scale halved in the sampler"] = Mutant(halve_scales, "black box")
    # Some record is in so many disjunctions that a replacement moves no more than its removal.
    if guarantee.neighboring is Neighboring.REPLACE_ONE and "disjunctions" not in name:
        found["replace-one run with add-remove noise"] = Mutant(with_sensitivity(as_added), "price")
    if name == "workload laplace":
        found["L2 in place of L1"] = Mutant(swap_norms, "price")
        found["noise doubled in the sampler"] = Mutant(double_scales, "black box", blinds=True)
        if guarantee.neighboring is Neighboring.REPLACE_ONE:
            found["replacement as an addition: law"] = Mutant(with_sensitivity(as_added), "law")
    return found
