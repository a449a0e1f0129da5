"""CountSketch: a few hashed rows of signed counts, with Laplace or Gaussian noise."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import ClassVar, Literal

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.flags.numbers import number
from beam_dp.flags.options import option
from beam_dp.mechanisms.sketches.plan import (
    NUM_ROWS,
    SIZE,
    SketchNoise,
    SparseMechanism,
    SparseNoise,
    check_width,
    checked_scale,
    gaussian_noise,
    unit_weight,
)
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.releases.sketches.release import Distribution, Estimator


@dataclasses.dataclass(frozen=True)
class CountSketch(SparseMechanism):
    """Counts records in ``num_rows`` hashed rows with random signs, and adds noise to each cell.

    Let a unit move all counts together by at most w (``unit_weight``; twice as much under
    replace-one). Each record is in one cell of each row, so a unit moves the s rows by at most
    s w in L1 norm and, as the L2 norm of a row is at most its L1 norm, by w sqrt(s) in L2 norm.
    k different elements of a unit would move them by sqrt(k s) in L2 norm if they never shared a
    cell; but they may, with equal signs, and the key is public: the bound for all data is w
    sqrt(s), and it is reached.

    Privacy: for the relation and unit of the guarantee,

    * ``laplace``: epsilon, pure, at scale s w / epsilon; a delta is left unspent.
    * ``gaussian``: (epsilon, delta) with delta > 0, at the L2 sensitivity w sqrt(s); or, with
      ``unit_norm`` c, at c sqrt(s): a unit's records are then kept in a fixed order while its own
      sketch has an L2 norm of at most c sqrt(s), in exact integers, and the rest is left out
      (``summaries.projection``). Adding a unit then moves the cells by at most c sqrt(s),
      replacing it, by the triangle inequality, by at most 2 c sqrt(s).

    Accuracy: see ``errors.sparse_error``.

    Args:
        projection_width: of all rows together; a multiple of ``num_rows``.
        num_rows: s, odd.
        noise: ``laplace`` or ``gaussian``.
        estimator: of an element from its rows: ``clipped_mean`` around their median, ``median`` or
            ``mean``. Of one row they are the same.
        unit_norm: c, in weight, with Gaussian noise; best about max_weight sqrt(k) for k records
            of a unit; None keeps all records.

    Reference: Charikar, Chen and Farach-Colton (2002); Pagh and Thorup (2022) for its noise.
    """

    projection_width: int = dataclasses.field(default=2**20 // 3 * 3, metadata=SIZE)
    num_rows: int = dataclasses.field(default=3, metadata=NUM_ROWS)
    noise: Literal["laplace", "gaussian"] = dataclasses.field(
        default="laplace",
        metadata=option("count_sketch: laplace by default", choices=("laplace", "gaussian")),
    )
    estimator: Estimator = "clipped_mean"
    unit_norm: float | None = dataclasses.field(
        default=None,
        metadata=option(
            "count_sketch with gaussian noise: limit on the norm of a unit's sketch", "C", number
        ),
    )
    name: ClassVar[str] = "count_sketch"

    def __post_init__(self) -> None:
        check_width(self.projection_width)
        if checked_integer("num_rows", self.num_rows, 1, 63, ", and odd") % 2 == 0:
            condition = "must be odd, from 1 to 63: estimates are medians of rows"
            raise InputError("num_rows", self.num_rows, condition)
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        check_choice("estimator", self.estimator, ("clipped_mean", "median", "mean"))
        if self.unit_norm is not None:
            if self.noise != "gaussian":
                raise InputError("unit_norm", self.unit_norm, "applies only to noise 'gaussian'")
            checked_number("unit_norm", self.unit_norm, least=1, most=2**30)

    @property
    def width_step(self) -> int:
        """What the width must be a multiple of."""
        return self.num_rows

    def _noise(self, guarantee: Guarantee, max_weight: int) -> SparseNoise:
        distribution: Distribution
        limit, grid = None, 1
        if self.noise == "laplace":
            distribution = "discrete_laplace"
            sensitivity = self.num_rows * unit_weight(guarantee, max_weight)
            scale = checked_scale(guarantee, sensitivity / Fraction(guarantee.epsilon))
            loss = Loss.pure(guarantee.epsilon)
        else:
            distribution = "discrete_gaussian"
            squared_norm = unit_weight(guarantee, max_weight) ** 2 * self.num_rows
            if self.unit_norm is not None:
                limit = math.floor(self.unit_norm**2 * self.num_rows)
                moved = guarantee.neighboring.num_moved
                squared_norm = min(squared_norm, moved**2 * limit)
            scale, grid, loss = gaussian_noise(guarantee, squared_norm)
        sketch = SketchNoise(
            family="blocks",
            projection_width=self.projection_width,
            num_blocks=self.num_rows,
            distribution=distribution,
            scale=scale,
            estimator="mean" if self.num_rows == 1 else self.estimator,
            max_squared_norm=limit,
            grid=grid,
        )
        return SparseNoise(loss, sketch, options=(("noise", self.noise),))
