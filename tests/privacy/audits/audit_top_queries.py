"""The queries with the largest answers: what is drawn for them, and the law of the choice."""

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
    replaced,
    shrink_noise_of,
)
from noise_sources import Scripted
from subjects import Subject, counts_beside, price, records_per_unit
from tiny import ADD, REPLACE, domain_of, neighbours, promise, units, with_unit
from top_choice_laws import top_law

import beam_dp as dp
from beam_dp.mechanisms import choosing as choice_module, top_queries as top_module
from beam_dp.mechanisms.choosing import METHODS, choose_top
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.testing import audit

RUNS = 5000
NUM_RECORDS, TOP = 20, 2
SCORES = np.array([4, 3, 3, 0])
# A record of the first code makes the first two larger and no other.
LITERALS = dp.parse_linear_workload("conjunctions:1", domain_of(4))
_HALF = dp.LinearQueries(LITERALS.domain).explicit([0.5, 0.25, 0.0, 1.0])
FRACTIONAL = dp.LinearWorkload(LITERALS.domain, (*LITERALS.queries, _HALF))


def audits() -> list[Audit]:
    found = []
    for method, delta in (*((method, 0.0) for method in METHODS), ("exponential", DELTA)):
        for relation in (ADD, REPLACE):
            name = f"top queries, {method}" + (", delta" if delta else "")
            case = method, promise(relation, delta, 3.0)
            checks = {"law": exact_law, "sampler": sampler, "price": spent}
            if method == "geometric":  # whose draws do not tell what they choose among
                del checks["price"]
            found.append(audited(name, case[1], checks, bugs_of(*case), *case, dear=()))
    return found


def subject(workload: dp.LinearWorkload, guarantee: dp.Guarantee, method: str) -> Subject:
    """The same queries are chosen whatever the counts."""
    held = units(workload.domain.num_cells, guarantee.max_records_per_unit)
    return Subject(
        guarantee,
        lambda promised: dp.plan_top_queries(workload, promised, NUM_RECORDS, TOP, method),  # type: ignore[arg-type]
        lambda plan, counts, noise: dp.draw_top_queries(plan, np.array(counts), noise),
        lambda: counts_beside(((0,) * 4,), neighbours(held, guarantee.neighboring.value)),
        least=0.95,
        sources=[functools.partial(Scripted, [n, 0]) for n in range(len(workload))],
    )


def spent(method: str, guarantee: dp.Guarantee) -> Finding:
    """The price, also with two records a unit."""
    cases = itertools.product((LITERALS, FRACTIONAL), records_per_unit(guarantee))
    return Finding(all(price(subject(*case, method)).passes for case in cases))


def exact_law(method: str, promised: dp.Guarantee) -> Finding:
    """The exact law of the choice on all neighbours, for what answers leave of a pure promise."""
    relation = promised.neighboring.value
    guarantee = promise(relation, 0.0, 3.0)
    plan = dp.plan_top_queries(LITERALS, guarantee, NUM_RECORDS, TOP, method)  # type: ignore[arg-type]
    left = guarantee.epsilon - TOP * plan.grid / plan.scale
    # In whole records: on the grid of the choice there are too many values to add up.
    whole = dataclasses.replace(plan.top_choice, scale=plan.choice_scale / plan.choice_grid)

    def law(data: tuple[int, ...]) -> audit.Law:
        return top_law(plan.exact(with_unit(np.zeros(4), data), 1).tolist(), whole)

    found = audit.audit_law(law, range(4), promise(relation, 0.0, left))
    return Finding(found.is_private and found.epsilon > 0.6 * left)


def sampler(method: str, _: dp.Guarantee) -> Finding:
    """Choices with the production noise against the law, ties included."""
    choice = choice_module.TopChoice(method, TOP, 2, 2.0)  # type: ignore[arg-type]
    source = NoiseSource()
    drawn = [tuple(choose_top(SCORES, choice, source)) for _ in range(RUNS)]
    return follows(drawn, top_law(SCORES.tolist(), choice))


def change_choices(change: Callable[[Any, int], Any]) -> Bug:
    """Another scale of the choice, from that scale and c."""

    def mutant(original: Any, guarantee: dp.Guarantee, number: int, *others: Any) -> Any:
        for each in original(guarantee, number, *others):
            yield dataclasses.replace(each, scale=change(each.scale, number))

    return around(top_module, "top_choices", mutant)


def with_width(width: Callable[[dp.Guarantee], int]) -> Bug:
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


def bugs_of(method: str, guarantee: dp.Guarantee) -> dict[str, dict[str, Bug]]:
    of_choices = {
        "scale of one choice": change_choices(lambda scale, number: scale / number),
        "choice with half of its noise": change_choices(lambda scale, _: scale / 2),
        "answers for free": free_answers,
    }
    if guarantee.neighboring is dp.Neighboring.REPLACE_ONE:
        of_choices["replacement as an addition"] = one_way
    name = {"exponential": "select"}.get(method, method)
    runs = {"noise halved in the sampler": shrink_noise_of(name)}
    if method == "geometric":
        return {"law": of_choices, "sampler": runs | {"the other order of ties": without_ties}}
    of_choices |= derived(guarantee, draws=2, without=("one draw for all cells",))
    of_choices["records of a unit forgotten"] = records_forgotten
    of_choices["answers with the noise of one"] = answers_of_one
    return {"price": of_choices, "sampler": runs}
