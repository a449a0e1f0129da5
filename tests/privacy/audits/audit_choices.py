"""Audits of what chooses among candidates: the selections, and SmallDB with each of its samplers.

The law is enumerated from what the mechanism computes, on all neighbours of tiny data; the sampler,
with the production noise, is compared with a law that is written down here independently.
"""

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, islice
from typing import Any

import numpy as np
from auditing import (
    Audit,
    Bug,
    Finding,
    Patch,
    around,
    audited,
    follows,
    replaced,
    shrink_noise_of,
)
from tiny import ADD, REPLACE, domain_of, promise
from top_choice_laws import LAWS, PICKS

import beam_dp as dp
from beam_dp.mechanisms import choosing as choose
from beam_dp.mechanisms.small_db import (
    choice as multiset_choice,
    enumerated as multisets_enumerated,
    nested as multisets_nested,
    searched as multisets_searched,
)
from beam_dp.mechanisms.small_db.small_db import SmallDB, SmallDBPlan
from beam_dp.privacy.noise import source as noise_module
from beam_dp.privacy.noise.bound import exp_above
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear_workload import LinearWorkload, query_matrix
from beam_dp.testing import audit

RUNS = 5000
# With 3,000 sequences drawn in place of multisets looked right once in 500 times.
SAMPLER_RUNS = 12_000
# Scores of three codes: one record moves them both ways. The zero row is a record that is absent.
SIGNED = np.array([[1, -1, 0], [-1, 1, 0], [-1, -1, 1]])
SCORES = np.array([4, 3, 3, 0])


def selection_law(name: str, relation: str) -> Finding:
    rows = np.vstack([SIGNED, np.zeros(3, int)])
    moved = np.abs(SIGNED).max() if relation == ADD else np.abs(rows[:, None] - rows).max()
    scale = choose.selection_scale(int(moved), 1.0)

    def law(data: tuple[int, ...]) -> audit.Law:
        return LAWS[name](SIGNED[list(data)].sum(axis=0).astype(int).tolist(), scale)

    found = audit.audit_law(law, (0, 1, 2), promise(relation))
    return Finding(found.is_private and found.epsilon > 0.5)


def selection_sampler(name: str, _: str) -> Finding:
    pick, noise = PICKS[name], NoiseSource()
    drawn = [pick(SCORES, 1, 1.0, noise) for _ in range(RUNS)]
    return follows(drawn, LAWS[name](SCORES.tolist(), 2.0))


def halve_selection_scale(patch: Patch) -> None:
    original = choose.selection_scale
    for module in (choose, multiset_choice):
        patch.setattr(module, "selection_scale", lambda *given: original(*given) / 2)


SELECTION_BUGS: dict[str, dict[str, Bug]] = {
    "exponential_mechanism": {"noise scale halved in the sampler": shrink_noise_of("select")},
    "permute_and_flip": {
        "coins too sharp": around(
            noise_module, "exp_bounds", lambda original, x, bits: original(2 * x, bits)
        ),
        "visits in a fixed order": replaced(NoiseSource, "below", lambda self, bound: 0),
    },
    "geometric_noisy_max": {"noise scale halved in the sampler": shrink_noise_of("geometric")},
}

# Two cells have the same answers to every query, so that multisets and sequences differ.
TABLES = {
    "nested": [[1, 0, 0, 0], [1, 1, 1, 0]],
    "enumeration": [[1, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 0]],
    "search": [[1, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 0]],
}
SIZE, NUM_RECORDS = 3, 5
EPSILON = 3.0
BASE = (3, 1, 0, 1)


def audits() -> list[Audit]:
    found = []
    for relation in (ADD, REPLACE):
        for name, apply in SELECTION_BUGS.items():
            checks = {"law": selection_law, "sampler": selection_sampler}
            bugs = {"law": {"factor 1/2 forgotten": halve_selection_scale}, "sampler": apply}
            case = name, relation
            found.append(audited(name.replace("_", " "), promise(relation), checks, bugs, *case))
        guarantee = promise(relation, epsilon=EPSILON)
        for sampler in TABLES:
            checks = {"law": small_db_law, "sampler": small_db_sampler}
            bugs = {
                "law": {
                    "factor 1/2 forgotten": halve_selection_scale,
                    "size of the database forgotten": sharpened(SIZE),
                    "scores divided by the exact number of records": use_exact_number,
                    "scores rounded as short floats": round_scores,
                },
                "sampler": {
                    "sequences for multisets": draw_sequences,
                    "coins always heads": SMALL_DB_BUGS[sampler],
                },
            }
            found.append(
                audited(f"small_db, {sampler}", guarantee, checks, bugs, sampler, guarantee)
            )
    return found


def plan_of(sampler: str, guarantee: dp.Guarantee) -> SmallDBPlan:
    domain = domain_of(4)
    make = dp.LinearQueries(domain)
    workload = LinearWorkload(domain, tuple(make.explicit(row) for row in TABLES[sampler]))
    mechanism = SmallDB(size=SIZE, sampler=sampler)  # type: ignore[arg-type]
    return mechanism.plan(domain, workload, guarantee, NUM_RECORDS)


def law_of(losses: dict[tuple[int, ...], int], scale: float) -> audit.Law:
    least = min(losses.values())
    weights = {cells: math.exp((least - loss) / scale) for cells, loss in losses.items()}
    total = sum(weights.values())
    return {cells: weight / total for cells, weight in weights.items()}


def stated_law(table: Any, counts: Any, scale: float = 2 * SIZE / EPSILON) -> audit.Law:
    """From the definition, in a few lines of its own."""
    queries, counts = np.array(table), np.asarray(counts)
    return law_of(
        {
            cells: int(
                np.abs(
                    SIZE * (queries @ counts) - NUM_RECORDS * queries[:, list(cells)].sum(axis=1)
                ).max()
            )
            for cells in combinations_with_replacement(range(len(counts)), SIZE)
        },
        scale,
    )


def small_db_law(sampler: str, guarantee: dp.Guarantee) -> Finding:
    """The law that follows from what the mechanism hands to its sampler."""
    plan = plan_of(sampler, guarantee)
    cells, mechanism = choice_of(plan, sampler, EPSILON)

    def law(data: tuple[int, ...]) -> audit.Law:
        handed = mechanism.law(np.bincount(data, minlength=len(cells)))
        kinds = {int(c): kind for kind, each in enumerate(handed.members) for c in each}
        losses = {}
        for chosen in combinations_with_replacement(cells.tolist(), SIZE):
            answers = handed.answers[:, [kinds[c] for c in chosen]].sum(axis=1)
            losses[chosen] = max(
                abs(target - int(answer))
                for target, answer in zip(handed.targets, answers, strict=True)
            )
        return law_of(losses, float(handed.scale))

    found = audit.audit_law(law, range(4), guarantee, num_others=5)
    return Finding(found.is_private and found.epsilon > 0.4 * EPSILON)


def choice_of(plan: SmallDBPlan, sampler: Any, epsilon: float) -> tuple[Any, Any]:
    """The cells, and the choice of a multiset of them."""
    cells, matrix, denominator = query_matrix(plan.queries)
    given = matrix, epsilon, NUM_RECORDS, SIZE, denominator
    return cells, multiset_choice.MultisetChoice(*given, sampler=sampler)


def small_db_sampler(sampler: str, _: dp.Guarantee) -> Finding:
    plan = plan_of(sampler, promise(ADD, epsilon=EPSILON))
    outcomes = list(islice(released(plan, sampler, BASE, NoiseSource()), SAMPLER_RUNS))
    return follows(outcomes, stated_law(TABLES[sampler], BASE))


def released(
    plan: SmallDBPlan, sampler: str, counts: Any, noise: NoiseSource
) -> Iterator[tuple[int, ...]]:
    """Draws of one sampler, whose preparation takes longer than a draw."""
    _, mechanism = choice_of(plan, sampler, plan.parameters.selection_epsilon)
    drawing = multiset_choice._SAMPLERS[sampler](mechanism.law(np.array(counts)))
    while True:
        yield tuple(drawing.draw(noise).tolist())


def sharpened(factor: int) -> Bug:
    return around(
        multiset_choice, "selection_scale", lambda original, *given: original(*given) / factor
    )


def _exact_number(original: Any, self: Any, counts: Any) -> Any:
    law = original(self, counts)
    # As if one record moved the score by 1 / N, where it moves it by 1 / n.
    share = Fraction(max(int(counts.sum()), 1), self.num_records)
    return dataclasses.replace(law, scale=law.scale * share)


def _rounded_scores(original: Any, self: Any, counts: Any) -> Any:
    law = original(self, counts)
    return dataclasses.replace(law, targets=tuple(each // 8 * 8 for each in law.targets))


use_exact_number = around(multiset_choice.MultisetChoice, "law", _exact_number)
round_scores = around(multiset_choice.MultisetChoice, "law", _rounded_scores)


def draw_sequences(patch: Patch) -> None:
    def mutant(cells: Any, size: int, noise: NoiseSource) -> list[int]:
        return [int(cells[noise.below(len(cells))]) for _ in range(size)]

    for module in (multisets_enumerated, multisets_nested, multisets_searched):
        patch.setattr(module, "draw_cells", mutant)


def keep_from_loose_bounds(module: Any, name: str, loose: Any) -> Bug:
    """Upper bounds are too large, and what they allow too much is not taken back."""

    def mutate(patch: Patch) -> None:
        patch.setattr(module, name, loose)
        patch.setattr(NoiseSource, "coin", lambda self, bounds: True)

    return mutate


SMALL_DB_BUGS = {
    "enumeration": keep_from_loose_bounds(multisets_enumerated, "_BITS", 1),
    "nested": keep_from_loose_bounds(
        multisets_nested, "exp_above", lambda x, bits: exp_above(x / 2, bits)
    ),
    "search": keep_from_loose_bounds(
        multisets_searched, "exp_above", lambda x, bits: exp_above(x / 2, bits)
    ),
}
