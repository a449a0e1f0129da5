"""Audits of units that are clipped to the norm of their own sketch, and their mutants.

"clipped": what neighbours spend after that, over all that a unit can hold.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from audit_sketch_runs import ROWS, WEIGHT, Data
from auditing import Audit, Finding, around, audited, replaced
from noise_sources import Draw, NoNoise
from numpy.typing import NDArray
from sketch_laws import batch_of, colliding_key, promise, seeded_key, summary_of
from tiny import ADD, REPLACE, share_spent

from beam_dp.encoding.batch import KeyBatch, merged_keys
from beam_dp.mechanisms.sketches import mechanisms as mechanisms_module, plan as plan_module
from beam_dp.mechanisms.sketches.mechanisms import CountSketch
from beam_dp.mechanisms.sketches.plan import SparseMechanism, SparsePlan
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.summaries.projection import within_squared_norm
from beam_dp.transforms.counting import limit_contributions as limit_keys_module

EPSILON, DELTA, MOST = 1.0, 1e-6, 4
CLIPPED = CountSketch(ROWS, ROWS, noise="gaussian", unit_norm=3.0)


def clipped(mechanism: SparseMechanism, guarantee: Guarantee) -> Finding:
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


def clipped_draw(plan: SparsePlan, held: Data) -> Draw:
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
    plan_module.release_sparse(plan, summary_of(plan, kept), noise)
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


def audits() -> list[Audit]:
    """A unit of four records that sum to eight at most, and to a norm of three once clipped."""
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
        found.append(audited("count sketch, clipped", guarantee, checks, {"clipped": bugs}, *case))
    return found
