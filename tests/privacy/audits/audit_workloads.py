"""Answers to workloads of linear queries: literals of attributes of three and of two levels.

All of them, also beside explicit values, and all disjunctions of two.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from auditing import (
    DELTA,
    Audit,
    Bug,
    Finding,
    around,
    audited,
    derived,
    follows,
    halve_noise_of,
    replaced,
)
from noise_sources import Scripted
from subjects import Subject, counts_beside, price, records_per_unit
from tiny import ADD, REPLACE, domain_of, neighbours, promise, units, with_unit
from top_choice_laws import top_law

from beam_dp.mechanisms import choosing as choice_module
from beam_dp.mechanisms.choosing import METHODS, choose_top
from beam_dp.mechanisms.linear_answers import answers as answers_module, top_queries as top_module
from beam_dp.mechanisms.linear_answers.answers import draw_workload_answers, plan_workload_answers
from beam_dp.mechanisms.linear_answers.top_queries import (
    draw_top_queries,
    plan_top_queries,
)
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.disjunction import Disjunction
from beam_dp.queries.linear import Product
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sensitivity import WorkloadSensitivity
from beam_dp.testing import audit

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


# The queries with the largest answers: what is drawn for them, and the law of the choice.

RUNS = 5000
NUM_RECORDS, TOP = 20, 2
SCORES = np.array([4, 3, 3, 0])
# A record of the first code makes the first two larger and no other.
CODES = parse_linear_workload("conjunctions:1", domain_of(4))
_SHARES = LinearQueries(CODES.domain).explicit([0.5, 0.25, 0.0, 1.0])
WITH_SHARES = LinearWorkload(CODES.domain, (*CODES.queries, _SHARES))


def audits_of_top() -> list[Audit]:
    found = []
    for method, delta in (*((method, 0.0) for method in METHODS), ("exponential", DELTA)):
        for relation in (ADD, REPLACE):
            name = f"top queries, {method}" + (", delta" if delta else "")
            case = method, promise(relation, delta, 3.0)
            checks = {"law": law_of_top, "sampler": sampler, "price": spent_by_top}
            if method == "geometric":  # whose draws do not tell what they choose among
                del checks["price"]
            found.append(audited(name, case[1], checks, bugs_of(*case), *case, dear=()))
    return found


def subject_of_top(workload: LinearWorkload, guarantee: Guarantee, method: str) -> Subject:
    """The same queries are chosen whatever the counts."""
    held = units(workload.domain.num_cells, guarantee.max_records_per_unit)
    return Subject(
        guarantee,
        lambda promised: plan_top_queries(workload, promised, NUM_RECORDS, TOP, method),  # type: ignore[arg-type]
        lambda plan, counts, noise: draw_top_queries(plan, np.array(counts), noise),
        lambda: counts_beside(((0,) * 4,), neighbours(held, guarantee.neighboring.value)),
        least=0.95,
        sources=[functools.partial(Scripted, [n, 0]) for n in range(len(workload))],
    )


def spent_by_top(method: str, guarantee: Guarantee) -> Finding:
    """The price, also with two records a unit."""
    cases = itertools.product((CODES, WITH_SHARES), records_per_unit(guarantee))
    return Finding(all(price(subject_of_top(*case, method)).passes for case in cases))


def law_of_top(method: str, promised: Guarantee) -> Finding:
    """The exact law of the choice on all neighbours, for what answers leave of a pure promise."""
    relation = promised.neighboring.value
    guarantee = promise(relation, 0.0, 3.0)
    plan = plan_top_queries(CODES, guarantee, NUM_RECORDS, TOP, method)  # type: ignore[arg-type]
    left = guarantee.epsilon - TOP * plan.grid / plan.scale
    # In whole records: on the grid of the choice there are too many values to add up.
    whole = dataclasses.replace(plan.top_choice, scale=plan.choice_scale / plan.choice_grid)

    def law(data: tuple[int, ...]) -> audit.Law:
        return top_law(plan.exact(with_unit(np.zeros(4), data), 1).tolist(), whole)

    found = audit.audit_law(law, range(4), promise(relation, 0.0, left))
    return Finding(found.is_private and found.epsilon > 0.6 * left)


def sampler(method: str, _: Guarantee) -> Finding:
    """Choices with the production noise against the law, ties included."""
    choice = choice_module.TopChoice(method, TOP, 2, 2.0)  # type: ignore[arg-type]
    source = NoiseSource()
    drawn = [tuple(choose_top(SCORES, choice, source)) for _ in range(RUNS)]
    return follows(drawn, top_law(SCORES.tolist(), choice))


def change_choices(change: Callable[[Any, int], Any]) -> Bug:
    """Another scale of the choice, from that scale and c."""

    def mutant(original: Any, guarantee: Guarantee, number: int, *others: Any) -> Any:
        for each in original(guarantee, number, *others):
            yield dataclasses.replace(each, scale=change(each.scale, number))

    return around(top_module, "top_choices", mutant)


def with_width(width: Callable[[Guarantee], int]) -> Bug:
    return replaced(top_module, "_width", lambda guarantee, grid: width(guarantee) * grid)


# As if all answers moved the same way, which a replacement does not do.
one_way = with_width(lambda guarantee: guarantee.max_records_per_unit)
records_forgotten = with_width(lambda guarantee: guarantee.neighboring.num_moved)
# The choice gets all of the budget, and answers their share once more.
free_answers = around(
    top_module, "top_choices", lambda original, *given: original(*given[:-1], Fraction(1))
)
answers_of_one = around(
    top_module, "_answers", lambda original, promise, _, *rest: original(promise, 1, *rest)
)
# Of equal sums the last one first.
without_ties = around(
    choice_module.np,
    "argsort",
    lambda original, values, kind: len(values) - 1 - original(values[::-1], kind=kind),
)


def bugs_of(method: str, guarantee: Guarantee) -> dict[str, dict[str, Bug]]:
    of_choices = {
        "scale of one choice": change_choices(lambda scale, number: scale / number),
        "choice with half of its noise": change_choices(lambda scale, _: scale / 2),
        "answers for free": free_answers,
    }
    if guarantee.neighboring is Neighboring.REPLACE_ONE:
        of_choices["replacement as an addition"] = one_way
    name = {"exponential": "select"}.get(method, method)
    runs = {"noise halved in the sampler": halve_noise_of(name)}
    if method == "geometric":
        return {"law": of_choices, "sampler": runs | {"the other order of ties": without_ties}}
    of_choices |= derived(guarantee, draws=2, without=("one draw for all cells",))
    of_choices["records of a unit forgotten"] = records_forgotten
    of_choices["answers with the noise of one"] = answers_of_one
    return {"price": of_choices, "sampler": runs}
