"""A histogram of the heavy elements and a sketch of the rest, from one budget."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import ClassVar

from beam_dp.checks import checked_number
from beam_dp.errors import InputError
from beam_dp.flags.numbers import number
from beam_dp.flags.options import option
from beam_dp.mechanisms.sketches.count_sketch import CountSketch
from beam_dp.mechanisms.sketches.plan import NUM_ROWS, SIZE, SparseMechanism, SparseNoise
from beam_dp.mechanisms.sketches.stability_histogram import histogram_noise
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import down


@dataclasses.dataclass(frozen=True)
class HybridSketch(SparseMechanism):
    """A stability histogram with a share of epsilon, and a Laplace CountSketch with the rest.

    Whoever reads the release subtracts the projection of the noisy histogram from the sketch: what
    is left is a sketch of the residual, without heavy elements. That is post-processing.

    Privacy: (epsilon, delta) with delta > 0: a histogram with (share epsilon, delta) and a sketch
    with ((1 - share) epsilon, 0) add up.

    Accuracy: see ``errors.sparse_error``.

    Args:
        projection_width: of the sketch, a multiple of ``num_rows``.
        num_rows: of the sketch, odd.
        histogram_share: of epsilon, in (0, 1).

    Reference: the residual sketch is post-processing of two mechanisms: see ``StabilityHistogram``
    and ``CountSketch``.
    """

    projection_width: int = dataclasses.field(default=2**16, metadata=SIZE)
    num_rows: int = dataclasses.field(default=1, metadata=NUM_ROWS)
    histogram_share: float = dataclasses.field(
        default=0.3, metadata=option("hybrid: of epsilon, > 0 and < 1", "A", number)
    )
    name: ClassVar[str] = "hybrid_sketch"

    def __post_init__(self) -> None:
        CountSketch(self.projection_width, self.num_rows)
        checked_number("histogram_share", self.histogram_share, above=0, below=1)

    @property
    def width_step(self) -> int:
        """What the width must be a multiple of."""
        return self.num_rows

    def _noise(self, guarantee: Guarantee, max_weight: int) -> SparseNoise:
        counted = guarantee.epsilon * self.histogram_share
        left = down(Fraction(guarantee.epsilon) - Fraction(counted))
        try:
            rest = dataclasses.replace(guarantee, epsilon=left, allow_large_delta=True)
            sketched = CountSketch(self.projection_width, self.num_rows)._noise(rest, max_weight)
        except InputError as error:
            if error.name != "epsilon":
                raise
            condition = f"leaves an epsilon of {left:g} for the sketch, which is too little"
            raise InputError("histogram_share", self.histogram_share, condition) from None
        histogram = histogram_noise(guarantee, max_weight, counted)
        loss = Loss.approximate(guarantee.epsilon, guarantee.delta)
        options = (("histogram_share", self.histogram_share),)
        return SparseNoise(loss, sketched.sketch, histogram, options)
