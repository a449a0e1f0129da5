"""SparseProject, CountSketch, StabilityHistogram and HybridSketch."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.flags.flag import check_options, number, option
from beam_dp.mechanisms.checks import CALIBRATION, Calibration, check_calibration
from beam_dp.mechanisms.sketches.plan import (
    NUM_ROWS,
    SIZE,
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
from beam_dp.privacy.rounding import down, raised
from beam_dp.releases.sketches.release import (
    Distribution,
    Estimator,
    Family,
    HistogramNoise,
    SketchNoise,
)


@dataclasses.dataclass(frozen=True)
class SparseProject(SparseMechanism):
    """Projects all records by random signs, and adds noise to the sums.

    Let w be the most that one unit can change all counts together, in L1 norm (``unit_weight``,
    already doubled under replace-one). An element adds +1 or -1 once in each of R blocks of the
    projection; a dense projection has R = T blocks of one cell. So, for any collisions, a unit
    moves each block by at most w in L1 and L2 norm, and all blocks by at most w sqrt(R) in L2 norm.

    Privacy: (epsilon, delta) with delta > 0, for the relation and unit of the guarantee.

    * ``tight``: discrete Gaussian noise for the L2 sensitivity w sqrt(R), calibrated exactly.
    * ``textbook``: discrete Laplace noise of scale w sqrt(R) sqrt(8 ln(1/delta)) / epsilon, which
      is sqrt(8 ln(1/delta)) / epsilon in each coordinate of the sketch whose columns have norm 1.
      Each block has epsilon_0 = w / scale, pure; all blocks together have rho = R epsilon_0^2 / 2 =
      epsilon^2 / (16 ln(1/delta)), which implies (epsilon, delta) as long as epsilon is at most
      about 8 ln(1/delta); a larger epsilon is refused.

    Accuracy: see ``errors.sparse_error``. The noise in an answer does not depend on T; the error
    from hash collisions falls as T grows.

    Args:
        projection_width: T; public, so under add-or-remove-one T must not depend on the true number
            of records. A multiple of 64 for the dense family, otherwise of ``num_blocks``.
        family: ``dense``, as published, or ``blocks``, which has the same variance and is faster.
        num_blocks: the number of blocks of the family ``blocks``.
        calibration: ``tight`` or ``textbook``.

    Reference: Blum and Roth (2011), Algorithm 2; Canonne, Kamath and Steinke (2020) for the noise.
    """

    projection_width: int = dataclasses.field(default=2**16, metadata=SIZE)
    family: Family = dataclasses.field(
        default="blocks",
        metadata=option(
            "sparse_project: the family of hash functions; by default blocks",
            choices=("blocks", "dense"),
        ),
    )
    num_blocks: int = 8
    calibration: Calibration = dataclasses.field(default="tight", metadata=CALIBRATION)
    name: ClassVar[str] = "sparse_project"
    # About 2 log2(k T / (2 beta)), for a million queries.
    independence: ClassVar[int] = 48

    def __post_init__(self) -> None:
        check_calibration(self.calibration)
        check_width(self.projection_width)
        check_choice("family", self.family, ("dense", "blocks"))
        checked_integer("num_blocks", self.num_blocks, 1, self.projection_width)

    @property
    def width_step(self) -> int:
        """The widths of the projection are multiples of this number."""
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
    """Returns the Laplace scale for a sketch of L2 sensitivity 1, as published, and its loss."""
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if delta == 0:
        raise InputError("delta", 0.0, "must be > 0 for SparseProject")
    rho = raised(epsilon**2 / (16 * math.log(1 / delta)), 16)
    if zcdp_epsilon(rho, delta) > epsilon:
        condition = "is too large for the published scale; use calibration 'tight'"
        raise InputError("epsilon", epsilon, condition)
    return math.sqrt(8 * math.log(1 / delta)) / epsilon, Loss.zcdp(rho)


@dataclasses.dataclass(frozen=True)
class CountSketch(SparseMechanism):
    """Counts records in ``num_rows`` hashed rows with random signs, and adds noise to every cell.

    Let w be the most that one unit can change all counts together, in L1 norm (``unit_weight``,
    already doubled under replace-one). Each record is in one cell of each row, so a unit moves the
    s rows by at most s w in L1 norm. The L2 norm of a row is at most its L1 norm, so a unit moves
    the rows by at most w sqrt(s) in L2 norm. If k different elements of a unit never shared a cell,
    they would move the rows by sqrt(k s) in L2 norm. But elements may share cells, with equal
    signs, and the key is public: the bound for all data is w sqrt(s), and it is reached.

    Privacy: for the relation and unit of the guarantee,

    * ``laplace``: epsilon, pure, at scale s w / epsilon; a delta is left unspent.
    * ``gaussian``: (epsilon, delta) with delta > 0, at the L2 sensitivity w sqrt(s); or, with
      ``unit_norm`` c, at c sqrt(s): a unit's records are then kept in a fixed order while the
      unit's own sketch has an L2 norm of at most c sqrt(s), in exact integers, and the rest is left
      out (``summaries.projection``). Adding a unit then moves the cells by at most c sqrt(s);
      replacing a unit moves the cells, by the triangle inequality, by at most 2 c sqrt(s).

    Accuracy: see ``errors.sparse_error``.

    Args:
        projection_width: the number of cells of all rows together; a multiple of ``num_rows``.
        num_rows: s, odd.
        noise: ``laplace`` or ``gaussian``.
        estimator: estimates an element from its cells in all rows: ``median``, ``mean``, or
            ``clipped_mean`` around the median. With one row all three are equal.
        unit_norm: c, in weight, with Gaussian noise; best about max_weight sqrt(k) for k records
            per unit; None keeps all records.

    Reference: Charikar, Chen and Farach-Colton (2002); Pagh and Thorup (2022) for the noise.
    """

    projection_width: int = dataclasses.field(default=2**20 // 3 * 3, metadata=SIZE)
    num_rows: int = dataclasses.field(default=3, metadata=NUM_ROWS)
    noise: Literal["laplace", "gaussian"] = dataclasses.field(
        default="laplace",
        metadata=option(
            "count_sketch: the distribution of the noise; by default laplace",
            choices=("laplace", "gaussian"),
        ),
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
        check_options(self)
        if self.num_rows % 2 == 0:
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
        """The widths of the projection are multiples of this number."""
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


# The largest relative rounding error of the probability that a count reaches the threshold.
_MARGIN = 1e-9


@dataclasses.dataclass(frozen=True)
class StabilityHistogram(SparseMechanism):
    """Adds noise to the count of every element that has records; drops counts below a threshold.

    Let w be the most that one unit can change all counts together, in L1 norm (``unit_weight``,
    already doubled under replace-one). Counts get discrete Laplace noise of scale w / epsilon.

    Privacy: (epsilon, delta) with delta > 0. On the elements that both neighbours contain, the
    noisy counts are epsilon-private. If only one neighbour contains an element, all records of this
    element are one unit's: the probability that any such element is released is at most delta
    (``stability_threshold``). Let O be a set of outcomes, q and q' the probabilities that a
    neighbour releases an element that the other lacks, and p, p' the probabilities of O on the
    common elements, p <= e^epsilon p'. Then P(O) <= q + (1 - q) p, and P'(O) >= (1 - q') p', so
    P(O) - e^epsilon P'(O) <= q + (1 - q) p - (1 - q') p <= max(q, q') <= delta. If the neighbours
    have no common elements this is tight: the threshold is the least possible for this noise.

    Accuracy: the count of a released element has the error of the noise. The answer for any other
    element is 0; its count was most probably below the threshold. An element without records is
    never released.

    Reference: Korolova, Kenthapadi, Mishra and Ntoulas (2009); Bun, Nissim and Stemmer (2016).
    """

    name: ClassVar[str] = "stability_histogram"

    def _noise(self, guarantee: Guarantee, max_weight: int) -> SparseNoise:
        histogram = histogram_noise(guarantee, max_weight, guarantee.epsilon)
        loss = Loss.approximate(guarantee.epsilon, guarantee.delta)
        return SparseNoise(loss, histogram=histogram)


def histogram_noise(guarantee: Guarantee, max_weight: int, epsilon: float) -> HistogramNoise:
    """Returns the noise and the threshold, which spend the given epsilon and all of delta."""
    if guarantee.delta == 0:
        condition = (
            "must be > 0 for a stability histogram, which reveals which elements have records"
        )
        raise InputError("delta", 0.0, condition)
    scale = checked_scale(guarantee, unit_weight(guarantee, max_weight) / Fraction(epsilon))
    return HistogramNoise(
        scale,
        stability_threshold(scale, guarantee.delta, guarantee.max_records_per_unit, max_weight),
    )


def stability_threshold(
    scale: float, delta: float, max_records_per_unit: int, max_weight: int = 1
) -> int:
    """Returns the least threshold that elements of one unit reach with probability at most delta.

    A unit's k records of weight w belong to j elements. The probability that all j elements stay
    below the threshold is the product of 1 - p(weight), where p(x) = P(x + noise >= threshold), and
    -ln(1 - p) is convex up to the threshold. So the worst case for each j is one element with
    k - j + 1 records and j - 1 elements with one record each. All j are tried.
    """
    # At a threshold <= k w, an element may be released with probability above 1/2, which is more
    # than any delta. At ``enough``, the union bound over k elements of weight k w is at most delta.
    least = max_records_per_unit * max_weight + 1
    enough = least + math.ceil(scale * math.log(max_records_per_unit / delta))

    def is_enough(threshold: int) -> bool:
        return release_probability(scale, threshold, max_records_per_unit, max_weight) <= delta

    return least + bisect_left(range(least, enough), True, key=is_enough)


def release_probability(
    scale: float, threshold: int, max_records_per_unit: int, max_weight: int = 1
) -> float:
    """Returns the largest probability of releasing any element whose records are all one unit's."""
    elements = np.arange(1, max_records_per_unit + 1)
    largest = (max_records_per_unit - elements + 1) * max_weight
    none = (elements - 1) * np.log1p(-_tail(scale, np.float64(threshold - max_weight)))
    none = none + np.log1p(-_tail(scale, threshold - largest.astype(np.float64)))
    return float(-np.expm1(none.min())) * (1 + _MARGIN)


def _tail(scale: float, value: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    """Returns P(discrete Laplace noise >= value) for values > 0."""
    return np.asarray(np.exp(-value / scale) / (1 + math.exp(-1 / scale)))


@dataclasses.dataclass(frozen=True)
class HybridSketch(SparseMechanism):
    """A stability histogram with a share of epsilon, and a Laplace CountSketch with the rest.

    A reader of the release subtracts the projection of the noisy histogram from the sketch. The
    difference is a sketch of the residual, without heavy elements; subtracting is post-processing.

    Privacy: (epsilon, delta) with delta > 0: a histogram with (share epsilon, delta) and a sketch
    with ((1 - share) epsilon, 0) add up.

    Accuracy: see ``errors.sparse_error``.

    Args:
        projection_width: the number of cells of the sketch, a multiple of ``num_rows``.
        num_rows: the number of rows of the sketch, odd.
        histogram_share: the share of epsilon for the histogram, in (0, 1).

    Reference: the residual sketch is post-processing of two mechanisms: see ``StabilityHistogram``
    and ``CountSketch``.
    """

    projection_width: int = dataclasses.field(default=2**16, metadata=SIZE)
    num_rows: int = dataclasses.field(default=1, metadata=NUM_ROWS)
    histogram_share: float = dataclasses.field(
        default=0.3,
        metadata=option(
            "hybrid: the histogram's share of epsilon, > 0 and < 1",
            "A",
            number,
            limits={"above": 0, "below": 1},
        ),
    )
    name: ClassVar[str] = "hybrid_sketch"

    def __post_init__(self) -> None:
        CountSketch(self.projection_width, self.num_rows)
        check_options(self)

    @property
    def width_step(self) -> int:
        """The widths of the projection are multiples of this number."""
        return self.num_rows

    def _noise(self, guarantee: Guarantee, max_weight: int) -> SparseNoise:
        counted = guarantee.epsilon * self.histogram_share
        left = down(Fraction(guarantee.epsilon) - Fraction(counted))
        try:
            rest = guarantee.with_limits(epsilon=left)
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
