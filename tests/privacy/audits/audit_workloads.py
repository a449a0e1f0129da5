"""Answers to workloads of linear queries: literals of attributes of three and of two levels.

All of them, also beside explicit values, and all disjunctions of two.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from auditing import DELTA, Audit, Bug, Finding, around, audited, derived
from subjects import Subject, counts_beside, price, records_per_unit
from tiny import ADD, REPLACE, domain_of, neighbours, promise, units

from beam_dp.mechanisms.linear_answers import answers as answers_module
from beam_dp.mechanisms.linear_answers.answers import draw_workload_answers, plan_workload_answers
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.disjunction import Disjunction
from beam_dp.queries.linear import Product
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sensitivity import WorkloadSensitivity

NUM_RECORDS = 20
BASES = (12, 5, 0, 0, 3, 1), (0,) * 6
LITERALS = parse_linear_workload("conjunctions:1", domain_of(3, 2))
_HALF = LinearQueries(LITERALS.domain).explicit([0.5, 0.25, 0.0, 1.0, 0.125, 0.75])
DISJUNCTIONS = parse_linear_workload("disjunctions:2", domain_of(3, 2))
FRACTIONAL = LinearWorkload(LITERALS.domain, (*LITERALS.queries, _HALF))


def subject(workload: LinearWorkload, guarantee: Guarantee) -> Subject:
    kind = "discrete_gaussian" if guarantee.delta else "discrete_laplace"
    relation = guarantee.neighboring.value
    held = units(workload.domain.num_cells, guarantee.max_records_per_unit)
    return Subject(
        guarantee,
        lambda promised: plan_workload_answers(workload, promised, NUM_RECORDS, kind),  # type: ignore[arg-type]
        lambda plan, counts, noise: draw_workload_answers(plan, np.array(counts), noise),
        lambda: counts_beside(BASES, neighbours(held, relation)),
        least=0.99,
    )


def spent(workload: LinearWorkload, guarantee: Guarantee) -> Finding:
    """The price, also with two records a unit."""
    cases = records_per_unit(guarantee)
    return Finding(all(price(subject(workload, each)).passes for each in cases))


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


def odd_bugs(name: str) -> dict[str, Bug]:
    """The bugs that only such a workload could have, which its price must see."""
    price = {"sensitivity of one query": ONLY_FIRST, "records of a unit forgotten": OF_ONE_RECORD}
    if "disjunctions" in name:
        price["disjunctions taken for conjunctions"] = of_part(as_conjunctions)
    else:
        price["negated literals forgotten"] = NO_NEGATIONS
    if name == "workload laplace":
        price["L2 in place of L1"] = with_sensitivity(_swapped_norms)
    return price


def audit_of(kind: str, suffix: str, workload: LinearWorkload, relation: str) -> Audit:
    delta = DELTA if kind == "gaussian" else 0.0
    guarantee = promise(relation, delta, 12.0 if delta else 3.0)
    name = f"workload {kind}{suffix}"
    # Some record is in so many disjunctions that a replacement moves no more than its removal.
    without = ("replace-one run with add-remove noise",) if "disjunctions" in name else ()
    checks = {"price": spent}
    bugs = {"price": derived(guarantee, draws=1, without=without) | odd_bugs(name)}
    return audited(name, guarantee, checks, bugs, workload, guarantee)


def audits() -> list[Audit]:
    kinds = (("", LITERALS), (", explicit", FRACTIONAL), (", disjunctions", DISJUNCTIONS))
    return [
        audit_of(kind, *each, relation)
        for kind, each, relation in itertools.product(
            ("laplace", "gaussian"), kinds, (ADD, REPLACE)
        )
    ]
