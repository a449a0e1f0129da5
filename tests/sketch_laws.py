"""Tiny universes for sketches: all neighbours, the exact output laws, and what is spent on them.

Everything goes through the production plan and release; only the noise is replaced. In most cases
every row has one cell, so that all elements collide, with equal and with opposite signs.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from noise_sources import Draw, NoNoise
from tiny import share_spent

from beam_dp.hashing.keys import HashKey, num_words
from beam_dp.hashing.projections import BlockSigns
from beam_dp.mechanisms.sketches.plan import SparsePlan, SparseSummary, release_sparse
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.secret.encoding.batch import KeyBatch
from beam_dp.secret.summaries.projection import ProjectionAccumulator
from beam_dp.secret.summaries.sparse_counts import ElementCounts
from beam_dp.testing.audit import discrete_laplace, neighbouring_units, product_law

Record = tuple[int, int]  # element, weight

LARGE_DELTA = 0.01  # that laws of a few outcomes can resolve


def promise(neighboring: str, most: int, delta: float, epsilon: float = 1.0) -> Guarantee:
    unit = "record" if most == 1 else "person"
    return Guarantee(epsilon, delta, neighboring, unit, most, allow_large_delta=True)  # type: ignore[arg-type]


def seeded_key(seed: int, independence: int = 8) -> HashKey:
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**64, num_words(independence), np.uint64, endpoint=False)
    return HashKey(independence, words, rng.bytes(16))


@functools.cache
def colliding_key(num_rows: int) -> HashKey:
    """A key under which elements 0 and 1 have opposite signs in all rows, 0 and 2 equal ones."""
    for seed in itertools.count():
        signs = BlockSigns(seeded_key(seed), num_rows, num_rows)
        zero, one, two = signs.buckets_and_signs(np.arange(3, dtype=np.uint64))[1].tolist()
        if zero == two and zero == [-each for each in one]:
            return signs.key
    raise AssertionError


def batch_of(data: Iterable[Record]) -> KeyBatch:
    rows = np.array(list(data), np.int64).reshape(-1, 2)
    return KeyBatch(rows[:, 0].astype(np.uint64), rows[:, 1].copy())


def summary_of(plan: SparsePlan, batch: KeyBatch) -> SparseSummary:
    projection = None
    if plan.sketch is not None:
        accumulator = ProjectionAccumulator(plan.sketch.signs(plan.hash_key))
        state = accumulator.add_batch(accumulator.create(), batch)
        projection = accumulator.from_shards(accumulator.to_shards(state))
    counts = ElementCounts.of([batch]) if plan.histogram is not None else None
    return SparseSummary(projection, counts)


def draws_of(plan: SparsePlan, data: Iterable[Record]) -> list[Draw]:
    noise = NoNoise()
    release_sparse(plan, summary_of(plan, batch_of(data)), noise)
    return noise.draws


def cell_by_cell(draws: Iterable[Draw]) -> list[Draw]:
    """Laplace draws apart: their noises are independent, so each cell has its own epsilon."""
    return [
        Draw(each.kind, part, each.scale)
        for each in draws
        for part in (each.exact.reshape(-1, 1) if each.kind == "laplace" else [each.exact])
    ]


def largest_share(
    plan: SparsePlan,
    guarantee: Guarantee,
    records: Sequence[Record],
    others: Sequence[Record] = (),
) -> float:
    """The most that any neighbours spend of the guarantee, over what one unit can hold."""
    most = guarantee.max_records_per_unit
    draws = functools.cache(lambda held: cell_by_cell(draws_of(plan, [*others, *held])))
    return max(
        share_spent(guarantee, draws(one), draws(other))
        for one, other in neighbouring_units(records, guarantee.neighboring, most)
    )


class Shifted(NoNoise):
    """Noise that is one number for all, so that a release says what would become of each count."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift

    def noisy(self, values):
        return values + self.shift


def histogram_law(plan: SparsePlan, data: Iterable[Record], num_elements: int, above: int = 3):
    """The law of what a histogram says of each element; large counts are clipped."""
    assert plan.histogram is not None and plan.sketch is None
    summary = summary_of(plan, batch_of(data))
    assert summary.counts is not None
    scale, cap = plan.histogram.scale, plan.histogram.threshold + above
    far = math.ceil(48 * scale) + plan.histogram.threshold
    laws: list[dict[int | None, float]] = [{} for _ in range(num_elements)]
    for shift, probability in discrete_laplace(scale, 0, -far, far).items():
        release = release_sparse(plan, summary, Shifted(shift))
        assert release.histogram is not None
        pairs = zip(release.histogram.elements, release.histogram.counts, strict=True)
        said = {int(element): min(int(count), cap) for element, count in pairs}
        for element, law in enumerate(laws):
            outcome = said.get(element)
            law[outcome] = law.get(outcome, 0.0) + probability
    return product_law(laws)
