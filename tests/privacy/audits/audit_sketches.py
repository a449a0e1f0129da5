"""Audits of the sketches and the stability histogram, and the mutants that they must catch.

"price": what neighbours spend, over everything that one unit can hold, where all elements collide.
"law": the exact output law. "clipped": what neighbours spend after units were clipped to the norm
of their own sketch.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import auditing
import numpy as np
from auditing import (
    Audit,
    Bug,
    Finding,
    around,
    audited,
    derived,
    replaced,
)
from noise_sources import Draw, NoNoise
from numpy.typing import NDArray
from sketch_laws import (
    LARGE_DELTA,
    Record,
    batch_of,
    colliding_key,
    histogram_law,
    largest_share,
    promise,
    seeded_key,
    summary_of,
)
from tiny import ADD, REPLACE, share_spent

import beam_dp as dp
from beam_dp.mechanisms.sketches import mechanisms as mechanisms_module
from beam_dp.mechanisms.sketches.plan import SparseMechanism, SparsePlan
from beam_dp.secret.encoding.batch import KeyBatch, merged_keys
from beam_dp.secret.summaries.projection import within_squared_norm
from beam_dp.testing.audit import audit_law
from beam_dp.transforms import sketches as limit_keys_module

RECORDS = [(element, weight) for element in range(3) for weight in (0, 2)]
WEIGHT = 2
ROWS = 3


def plan_for(mechanism: SparseMechanism, guarantee: dp.Guarantee) -> SparsePlan:
    promised = auditing.planned_for(guarantee)
    key = colliding_key(ROWS)
    return mechanism.plan(promised, max_sparsity=4, max_weight=WEIGHT, hash_key=key)


def price(mechanism: SparseMechanism, guarantee: dp.Guarantee) -> Finding:
    """What is spent; where there is a histogram every element has records of other units."""
    plan = plan_for(mechanism, guarantee)
    others = [(element, WEIGHT) for element in range(3)] if plan.histogram is not None else []
    share = largest_share(plan, guarantee, RECORDS, others)
    return Finding(least_share(mechanism) <= share <= 1 + 1e-9)


def law(mechanism: SparseMechanism, guarantee: dp.Guarantee) -> Finding:
    plan = plan_for(mechanism, guarantee)
    records = [(0, WEIGHT), (1, WEIGHT), (1, 1)]
    found = audit_law(lambda data: histogram_law(plan, data, 2), records, guarantee, num_others=1)
    # Not a threshold more than is needed.
    return Finding(found.is_private and found.delta > guarantee.delta * math.exp(-1))


def with_unit_weight(weight: Any) -> Bug:
    return around(mechanisms_module, "unit_weight", weight)


def _without_collisions(_: Any, guarantee: dp.Guarantee, max_weight: int) -> float:
    """A unit's k elements are taken to be in cells of their own: sqrt(k) for k."""
    moved = 1 if guarantee.neighboring == ADD else 2
    return moved * math.sqrt(guarantee.max_records_per_unit) * max_weight


def with_threshold(threshold: Any) -> Bug:
    return around(mechanisms_module, "stability_threshold", threshold)


def _with_whole_epsilon(original: Any, self: Any, guarantee: dp.Guarantee, max_weight: int) -> Any:
    epsilon = guarantee.epsilon / 0.7
    whole = dataclasses.replace(guarantee, epsilon=epsilon, allow_large_delta=True)
    return original(self, whole, max_weight)


COLLISIONS_FORGOTTEN = with_unit_weight(_without_collisions)
WEIGHT_FORGOTTEN = with_unit_weight(lambda original, guarantee, _: original(guarantee, 1))
OF_THE_HISTOGRAM = {
    "threshold one too low": with_threshold(lambda original, *given: original(*given) - 1),
    "threshold of one element for k": with_threshold(
        lambda original, scale, delta, most, weight: original(scale, delta, 1, weight)
    ),
    # The boundary: what is one below the threshold is released as well.
    "one below the threshold released": around(
        mechanisms_module,
        "HistogramNoise",
        lambda original, scale, threshold: original(scale, threshold - 1),
    ),
}


def with_scale_over(factor: float) -> Bug:
    return replaced(mechanisms_module, "checked_scale", lambda guarantee, scale: scale / factor)


PURE, DELTA = 0.0, 1e-6
LAPLACE = dp.CountSketch(projection_width=ROWS, num_rows=ROWS)
GAUSSIAN = dp.CountSketch(projection_width=ROWS, num_rows=ROWS, noise="gaussian")
TIGHT = dp.SparseProject(ROWS, num_blocks=ROWS)
TEXTBOOK = dp.SparseProject(64, "dense", calibration="textbook")
DENSE = dp.SparseProject(64, "dense")
HISTOGRAM = dp.StabilityHistogram()
HYBRID = dp.HybridSketch(projection_width=ROWS, num_rows=ROWS)


def least_share(mechanism: SparseMechanism) -> float:
    """The published scale is several times what its own composition needs.

    No two dense columns of 64 rows are opposite. All else spends what is promised.
    """
    return {TEXTBOOK: 0.08, DENSE: 0.6}.get(mechanism, 0.99)


# The noises of Laplace rows, and of counts, are looked at one by one. All dense rows may move
# alike. A histogram has no empty cells.
WITHOUT = dict.fromkeys((LAPLACE, HYBRID, TEXTBOOK, DENSE), ("one draw for all cells",))
WITHOUT[HISTOGRAM] = ("one draw for all cells", "empty cells skipped")


def bugs_of(mechanism: SparseMechanism, guarantee: dp.Guarantee) -> dict[str, dict[str, Bug]]:
    price = derived(
        guarantee,
        draws=2 if mechanism is HYBRID else 1,
        least=least_share(mechanism),
        without=WITHOUT.get(mechanism, ()),
    )
    found = {"price": price}
    if mechanism is TEXTBOOK:
        price["noise that forgets the rows"] = with_scale_over(8)
    elif mechanism is HYBRID:
        price["all of epsilon for the sketch as well"] = around(
            dp.CountSketch, "_noise", _with_whole_epsilon
        )
    else:
        price["largest weight forgotten"] = WEIGHT_FORGOTTEN
        if mechanism is not HISTOGRAM:
            price["collisions of a unit's elements forgotten"] = COLLISIONS_FORGOTTEN
    if mechanism is LAPLACE:
        price["one row's sensitivity"] = with_scale_over(ROWS)
    if mechanism is HISTOGRAM:
        found["law"] = OF_THE_HISTOGRAM
    return found


CASES: dict[str, tuple[SparseMechanism, float, tuple[str, ...]]] = {
    "count sketch, laplace": (LAPLACE, PURE, ("price",)),
    "count sketch, gaussian": (GAUSSIAN, DELTA, ("price",)),
    "sparse project": (TIGHT, DELTA, ("price",)),
    "sparse project, dense": (DENSE, DELTA, ("price",)),
    "sparse project textbook": (TEXTBOOK, DELTA, ("price",)),
    "stability histogram": (HISTOGRAM, LARGE_DELTA, ("price", "law")),
    "hybrid sketch": (HYBRID, LARGE_DELTA, ("price",)),
}


def audits() -> list[Audit]:
    """Every sparse mechanism, with two records of weight two in a unit, under either relation."""
    all_checks, found = {"price": price, "law": law}, []
    for name, (mechanism, delta, chosen) in CASES.items():
        for relation in (ADD, REPLACE):
            guarantee = promise(relation, 2, delta, 1.0 if delta else 3.0)
            checks = {check: all_checks[check] for check in chosen}
            bugs = bugs_of(*(case := (mechanism, guarantee)))
            dear = ("law",) if relation == REPLACE else ()
            found.append(audited(name, guarantee, checks, bugs, *case, dear=dear))
    return found + clipping_audits()


# A unit of four records that sum to eight at most, and to a norm of three once clipped.
EPSILON, MOST = 1.0, 4
CLIPPED = dp.CountSketch(ROWS, ROWS, noise="gaussian", unit_norm=3.0)


def clipped(mechanism: SparseMechanism, guarantee: dp.Guarantee) -> Finding:
    """Over all that a unit can hold, two units in a batch, where elements collide and do not."""
    shares = []
    for width, key in ((ROWS, colliding_key(ROWS)), (4 * ROWS, seeded_key(1))):
        plan = dataclasses.replace(mechanism, projection_width=width).plan(
            guarantee, max_sparsity=4, max_weight=WEIGHT, hash_key=key
        )
        records = [(element, weight) for element in range(3) for weight in (1, WEIGHT)]
        most = guarantee.max_records_per_unit
        draws = {
            tuple(draw.exact.tolist()): draw
            for size in range(most + 1)
            for held in itertools.combinations_with_replacement(records, size)
            for draw in [clipped_draw(plan, held)]
        }
        empty = clipped_draw(plan, [])
        ends = [empty] if guarantee.neighboring == ADD else list(draws.values())
        shares.append(
            max(share_spent(guarantee, [one], [other]) for one in draws.values() for other in ends)
        )
    return Finding(max(shares) <= 1 + 1e-9 and min(shares) >= 0.8)


def clipped_draw(plan: SparsePlan, held: Sequence[Record]) -> Draw:
    """What is handed to the noise for a unit's records, beside a unit that is always the same."""
    sketch = plan.sketch
    assert sketch is not None and sketch.max_squared_norm is not None
    words = limit_keys_module._ClippedKeyWords(
        sketch.signs(plan.hash_key),
        sketch.projection_width // sketch.num_blocks,
        sketch.max_squared_norm,
    )
    batch = batch_of([*held, (1, 1), (2, WEIGHT)])
    units = np.array([[0] * len(batch.keys), [7] * len(held) + [8] * 2], np.uint64)
    noise = NoNoise()
    kept = words.to_batch([batch.keys, batch.weights], units)
    dp.release_sparse(plan, summary_of(plan, kept), noise)
    (draw,) = noise.draws
    return draw


def no_clipping(batch: KeyBatch, *_: Any) -> KeyBatch:
    return batch


def clipped_before_hashing(
    batch: KeyBatch, unit_of: NDArray[np.int64], signs: Any, row_width: int, limit: int
) -> KeyBatch:
    """The norm of a unit's counts is bounded, as if its elements never shared a cell."""
    kept = np.zeros(len(batch.keys), np.bool_)
    for unit in np.unique(unit_of):
        (own,) = np.nonzero(unit_of == unit)
        for end in range(1, len(own) + 1):
            counts = merged_keys(KeyBatch(batch.keys[own[:end]], batch.weights[own[:end]])).weights
            if signs.num_blocks * int(counts @ counts) > limit:
                break
            kept[own[end - 1]] = True
    return KeyBatch(batch.keys[kept], batch.weights[kept])


def clipped_one_late(
    batch: KeyBatch, unit_of: NDArray[np.int64], signs: Any, row_width: int, limit: int
) -> KeyBatch:
    """The bound of a row is taken for that of all of them, which is larger."""
    return within_squared_norm(batch, unit_of, signs, row_width, limit * signs.num_blocks)


half_the_norm = around(
    mechanisms_module,
    "gaussian_noise",
    lambda original, guarantee, norm: original(guarantee, norm / 2),
)
CLIPPING = {
    "no clipping": no_clipping,
    "clipping before hashing": clipped_before_hashing,
    "clipping at the norm of more rows": clipped_one_late,
}


def clipping_audits() -> list[Audit]:
    found = []
    for relation in (ADD, REPLACE):
        bugs = {
            name: replaced(limit_keys_module, "within_squared_norm", by)
            for name, by in CLIPPING.items()
        }
        if relation == REPLACE:
            bugs["replaced as if added"] = half_the_norm
        guarantee = promise(relation, MOST, DELTA, EPSILON)
        checks, case = {"clipped": clipped}, (CLIPPED, guarantee)
        given = checks, {"clipped": bugs}
        found.append(audited("count sketch, clipped", guarantee, *given, *case, dear=checks))
    return found
