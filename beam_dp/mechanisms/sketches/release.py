"""From exact sums to a release for sparse queries: the only step that sees the sums."""

from __future__ import annotations

import dataclasses

from beam_dp.checks import check_is
from beam_dp.mechanisms.sketches.plan import SparsePlan
from beam_dp.noise.source import NoiseSource
from beam_dp.releases.sketches.release import NoisyCounts, NoisySketch, SparseRelease
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.summaries.projection import Projection


@dataclasses.dataclass(frozen=True)
class SparseSummary:
    """What a sparse plan reads. Secret.

    Args:
        projection: where the plan has a sketch.
        counts: where the plan has a histogram.
    """

    projection: Projection | None = None
    counts: ElementCounts | None = None


def release_sparse(plan: SparsePlan, summary: SparseSummary, noise: NoiseSource) -> SparseRelease:
    """Returns a release that keeps ``plan.guarantee``.

    Privacy: every cell and every count that is there gets independent noise of the plan's scale;
    of the counts, those below the plan's threshold are dropped. Both summaries must be of records
    limited as the plan says: k records a unit, weights from 0 to the largest, and, where
    ``max_squared_norm`` is given, each unit's sketch below it.

    Args:
        plan: made before any record was read.
        summary: exact sums; that of the sketch under the plan's hash key.
        noise: where the noise comes from.

    Cost: one draw of noise a cell and a counted element, about 1e-5 s each.
    """
    check_is("plan", plan, SparsePlan)
    sketch = histogram = None
    if plan.sketch is not None:
        assert summary.projection is not None
        draw = noise.laplace if plan.sketch.distribution == "discrete_laplace" else noise.gaussian
        scale = plan.sketch.scale * plan.sketch.grid  # exact: a grid is a power of two
        sketch = NoisySketch(
            family=plan.sketch.family,
            num_blocks=plan.sketch.num_blocks,
            cells=draw(plan.sketch.fold(summary.projection.sums), scale),
            distribution=plan.sketch.distribution,
            scale=plan.sketch.scale,
            estimator=plan.sketch.estimator,
            grid=plan.sketch.grid,
        )
    if plan.histogram is not None:
        assert summary.counts is not None
        noisy = noise.laplace(summary.counts.counts, plan.histogram.scale)
        kept = noisy >= plan.histogram.threshold
        histogram = NoisyCounts(
            elements=summary.counts.elements[kept],
            counts=noisy[kept],
            scale=plan.histogram.scale,
            threshold=plan.histogram.threshold,
        )
    return SparseRelease(
        draw_id=noise.draw_id(),
        mechanism=plan.mechanism,
        guarantee=plan.guarantee,
        hash_key=plan.hash_key,
        max_sparsity=plan.max_sparsity,
        max_weight=plan.max_weight,
        plan=plan.public,
        sketch=sketch,
        histogram=histogram,
    )
