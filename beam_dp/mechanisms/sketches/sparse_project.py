"""SparseProject: a noisy projection that answers sparse queries by inner products."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Literal

from beam_dp.checks import check_choice, checked_integer
from beam_dp.errors import InputError
from beam_dp.flags.options import option
from beam_dp.mechanisms.contract import CALIBRATION, check_calibration
from beam_dp.mechanisms.sketches.plan import (
    SIZE,
    SketchNoise,
    SparseMechanism,
    SparseNoise,
    check_width,
    checked_scale,
    gaussian_noise,
    unit_weight,
)
from beam_dp.privacy.accounting import zcdp_epsilon
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import raised
from beam_dp.releases.sketches.release import Distribution, Family


@dataclasses.dataclass(frozen=True)
class SparseProject(SparseMechanism):
    """Projects all records by random signs, and adds noise to the sums.

    Let a unit move all counts together by at most w (``unit_weight``; twice as much under
    replace-one). An element adds +1 or -1 once in each of R blocks of the projection; a dense
    one is R = T blocks of one cell. So a unit moves the cells of each block by at most w in L1
    norm, whatever collides, and w in L2 norm; all cells by w sqrt(R) in L2 norm.

    Privacy: (epsilon, delta) with delta > 0, for the relation and unit of the guarantee.

    * ``tight``: discrete Gaussian noise for the L2 sensitivity w sqrt(R), calibrated exactly.
    * ``textbook``: discrete Laplace noise of scale w sqrt(R) sqrt(8 ln(1/delta)) / epsilon, which
      is sqrt(8 ln(1/delta)) / epsilon in each coordinate of the sketch whose columns have norm 1.
      Each block has epsilon_0 = w / scale, pure; all of them rho = R epsilon_0^2 / 2 =
      epsilon^2 / (16 ln(1/delta)), which implies (epsilon, delta) as long as epsilon is at most
      about 8 ln(1/delta); a larger one is refused.

    Accuracy: see ``errors.sparse_error``. The noise in an answer does not depend on
    T; what hashing adds falls with it.

    Args:
        projection_width: T; public, so under add-or-remove-one no function of the true number of
            records. A multiple of 64 for dense signs, of ``num_blocks`` else.
        family: ``blocks``, with an equal variance at a small part of the time, or ``dense``, as
            published.
        num_blocks: of ``blocks``.
        calibration: ``tight`` or ``textbook``.

    Reference: Blum and Roth (2011), Algorithm 2; Canonne, Kamath and Steinke (2020) for the noise.
    """

    projection_width: int = dataclasses.field(default=2**16, metadata=SIZE)
    family: Family = dataclasses.field(
        default="blocks",
        metadata=option("sparse_project: blocks by default", choices=("blocks", "dense")),
    )
    num_blocks: int = 8
    calibration: Literal["tight", "textbook"] = dataclasses.field(
        default="tight", metadata=CALIBRATION
    )
    name: ClassVar[str] = "sparse_project"
    # About 2 log2(k T / (2 beta)) for a million queries.
    independence: ClassVar[int] = 48

    def __post_init__(self) -> None:
        check_calibration(self.calibration)
        check_width(self.projection_width)
        check_choice("family", self.family, ("dense", "blocks"))
        checked_integer("num_blocks", self.num_blocks, 1, self.projection_width)

    @property
    def width_step(self) -> int:
        """What the width must be a multiple of."""
        return 64 if self.family == "dense" else self.num_blocks

    def _noise(self, guarantee: Guarantee, max_weight: int) -> SparseNoise:
        rows = self.projection_width if self.family == "dense" else self.num_blocks
        distribution: Distribution
        squared_sensitivity = unit_weight(guarantee, max_weight) ** 2 * rows
        if self.calibration == "tight":
            distribution = "discrete_gaussian"
            scale, grid, loss = gaussian_noise(guarantee, squared_sensitivity)
        else:
            distribution = "discrete_laplace"
            factor, loss = textbook_noise(guarantee)
            scale = checked_scale(guarantee, raised(math.sqrt(squared_sensitivity) * factor))
            grid = 1
        sketch = SketchNoise(
            self.family, self.projection_width, rows, distribution, scale, grid=grid
        )
        return SparseNoise(loss, sketch, options=(("calibration", self.calibration),))


def textbook_noise(guarantee: Guarantee) -> tuple[float, Loss]:
    """Returns the Laplace scale for a sketch of L2 sensitivity 1, as published, and its loss.

    Raises:
        InputError: if delta is 0, or epsilon so large that the published scale is too small.

    Example:
        >>> promise = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
        >>> round(textbook_noise(promise)[0], 4)
        12.8758
    """
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if delta == 0:
        raise InputError("delta", 0.0, "must be > 0 for SparseProject")
    rho = raised(epsilon**2 / (16 * math.log(1 / delta)), 16)
    if zcdp_epsilon(rho, delta) > epsilon:
        condition = "is too large for the published scale; use calibration 'tight'"
        raise InputError("epsilon", epsilon, condition)
    return math.sqrt(8 * math.log(1 / delta)) / epsilon, Loss.zcdp(rho)
