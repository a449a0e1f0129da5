"""The queries with the largest answers: what is drawn for them, and the law of the choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from audit_cases import DELTA, Audit, Mutant, Patch, halve_scales
from audit_choices import halve_noise_of
from audit_views import Finding, promised
from noise_sources import Draw, Scripted
from tiny import ADD, REPLACE, domain_of, neighbours, promise, share_spent, units, with_unit
from top_choice_laws import top_law

from beam_dp.mechanisms import choosing as choice_module
from beam_dp.mechanisms.choosing import METHODS, choose_top
from beam_dp.mechanisms.linear_answers import top_queries as top_module
from beam_dp.mechanisms.linear_answers.top_queries import (
    TopQueriesPlan,
    draw_top_queries,
    plan_top_queries,
)
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.testing import audit

RUNS = 3000
NUM_RECORDS, TOP = 20, 2
SCORES = np.array([4, 3, 3, 0])
# A record of the first code makes the first two larger and no other.
LITERALS = parse_linear_workload("conjunctions:1", domain_of(4))
_HALF = LinearQueries(LITERALS.domain).explicit([0.5, 0.25, 0.0, 1.0])
FRACTIONAL = LinearWorkload(LITERALS.domain, (*LITERALS.queries, _HALF))


def top_query_audits() -> list[Audit]:
    cases = [*((method, 0.0) for method in METHODS), ("exponential", DELTA)]
    return [
        audited(method, promised(relation, delta))
        for method, delta in cases
        for relation in (ADD, REPLACE)
    ]


def audited(method: str, guarantee: Guarantee) -> Audit:
    relation = guarantee.neighboring.value
    name = f"top queries, {method}" + (", delta" if guarantee.delta else "")
    checks: dict[str, Callable[[], Finding]] = {
        "law": lambda: exact_law(method, relation),
        "sampler": lambda: sampler(method),
    }
    if method != "geometric":  # whose draws do not tell what they choose among
        checks["price"] = lambda: price(method, guarantee)
    return Audit(name, guarantee, checks, mutants_of(method, guarantee))


def draws_of(plan: TopQueriesPlan, counts: np.ndarray, script: int) -> list[Draw]:
    """What is handed to the noise where the same queries are chosen whatever the counts."""
    source = Scripted([script, 0])
    draw_top_queries(plan, counts, source)
    return source.draws


def price(method: str, guarantee: Guarantee) -> Finding:
    """The share of the guarantee that any neighbours spend, also with two records a unit."""
    found = []
    for workload in (LITERALS, FRACTIONAL):
        for most in (1, 2):
            mine = promise(guarantee.neighboring.value, guarantee.delta, guarantee.epsilon, most)
            plan = plan_top_queries(workload, mine, NUM_RECORDS, TOP, method)  # type: ignore[arg-type]
            held, worst = units(4, most), 0.0
            for script in range(len(workload)):
                draws = {
                    each: draws_of(plan, with_unit(np.zeros(4), each), script) for each in held
                }
                for one, other in neighbours(held, guarantee.neighboring.value):
                    worst = max(worst, share_spent(mine, draws[one], draws[other]))
            found.append(worst)
    return Finding(min(found) > 0.95 and max(found) <= 1)


def exact_law(method: str, relation: str) -> Finding:
    """The exact law of the choice on all neighbours, for what answers leave of a pure promise."""
    guarantee = promised(relation)
    plan = plan_top_queries(LITERALS, guarantee, NUM_RECORDS, TOP, method)  # type: ignore[arg-type]
    left = guarantee.epsilon - TOP * plan.grid / plan.scale
    # In whole records: on the grid of the choice there are too many values to add up.
    whole = dataclasses.replace(plan.top_choice, scale=plan.choice_scale / plan.choice_grid)

    def law(data: tuple[int, ...]) -> audit.Law:
        return top_law(plan.exact(with_unit(np.zeros(4), data), 1).tolist(), whole)

    found = audit.audit_law(law, range(4), promise(relation, 0.0, left))
    return Finding(found.is_private and found.epsilon > 0.6 * left)


def sampler(method: str) -> Finding:
    """Choices with the production noise against the law, ties included."""
    choice = choice_module.TopChoice(method, TOP, 2, 2.0)  # type: ignore[arg-type]
    source = NoiseSource()
    drawn = [tuple(choose_top(SCORES, choice, source)) for _ in range(RUNS)]
    return Finding(audit.audit_sampler(drawn, top_law(SCORES.tolist(), choice)).passes)


def change_choices(change: Callable[[Any, int], Any]) -> Callable[[Patch], None]:
    """Another scale of the choice, from that scale and c."""
    original = top_module.top_choices

    def mutant(guarantee: Guarantee, number: int, *others: Any) -> Any:
        for each in original(guarantee, number, *others):
            yield dataclasses.replace(each, scale=change(each.scale, number))

    return lambda patch: patch.setattr(top_module, "top_choices", mutant)


def one_way(patch: Patch) -> None:
    """As if all answers moved the same way, which a replacement does not do."""
    patch.setattr(
        top_module, "_width", lambda guarantee, grid: guarantee.max_records_per_unit * grid
    )


def records_forgotten(patch: Patch) -> None:
    patch.setattr(
        top_module, "_width", lambda guarantee, grid: guarantee.neighboring.num_moved * grid
    )


def free_answers(patch: Patch) -> None:
    """The choice gets all of the budget, and answers their share once more."""
    original = top_module.top_choices

    def mutant(*given: Any) -> Any:
        yield from original(*given[:-1], Fraction(1))

    patch.setattr(top_module, "top_choices", mutant)


def answers_of_one(patch: Patch) -> None:
    original = top_module._answers
    patch.setattr(top_module, "_answers", lambda promise, _, *rest: original(promise, 1, *rest))


def without_ties(patch: Patch) -> None:
    """Of equal sums the last one first."""
    original = np.argsort
    patch.setattr(
        choice_module.np,
        "argsort",
        lambda values, kind: len(values) - 1 - original(values[::-1], kind=kind),
    )


def mutants_of(method: str, guarantee: Guarantee) -> dict[str, Mutant]:
    check = "law" if method == "geometric" else "price"
    for_one = change_choices(lambda scale, number: scale / number)
    found = {
        "scale of one choice": Mutant(for_one, check),
        "choice with half of its noise": Mutant(change_choices(lambda scale, _: scale / 2), check),
        "answers for free": Mutant(free_answers, check),
    }
    if guarantee.neighboring is Neighboring.REPLACE_ONE:
        found["replacement as an addition"] = Mutant(one_way, check)
    if method == "geometric":
        found["the other order of ties"] = Mutant(without_ties, "sampler")
        found["noise halved in the sampler"] = Mutant(halve_scales, "sampler")
        return found
    found["records of a unit forgotten"] = Mutant(records_forgotten, "price")
    found["answers with the noise of one"] = Mutant(answers_of_one, "price")
    name = "select" if method == "exponential" else method
    found["noise halved in the sampler"] = Mutant(halve_noise_of(name), "sampler")
    return found
