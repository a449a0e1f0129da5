"""Plans of interval releases: the strategy and the noise, chosen before any record is read."""

from __future__ import annotations

import dataclasses
import functools
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_is, checked_integer
from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import check_noise
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.left_out import LEFT_OUT_SHARE, plan_left_out
from beam_dp.mechanisms.resources import intervals_resources
from beam_dp.models.basis import on_one_thread
from beam_dp.models.intervals.hierarchy import Hierarchy, best_tree, tree
from beam_dp.models.intervals.sine import SineStrategy
from beam_dp.models.intervals.strategy import MAX_LEAVES, Strategy, TextbookTree, Values
from beam_dp.privacy.budget import GRID_DEVIATIONS, Budget
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.noise.bound import Distribution, noise_variance
from beam_dp.privacy.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.rounding import root_up
from beam_dp.privacy.steps import Step
from beam_dp.releases.intervals.files import strategy_from_tables, strategy_tables
from beam_dp.releases.intervals.release import IntervalRelease, ordered_domain
from beam_dp.releases.intervals.verify import interval_steps

MAX_BLOCKS = 1024
# Blocks with more cells than this are measured as a whole in addition to their cells.
_MAX_UNMEASURED = 8
# If blocks have more cells than this, the tree below a block has more than one level.
_MAX_BRANCHING = 16
# Twice as many windows would lower the error by less than 2 % and take more time.
_BLOCKS_PER_WINDOW = 16
_ITERATIONS = 150
_GRID = 2**13


@functools.lru_cache(maxsize=8)
def windows(num_leaves: int) -> Hierarchy:
    """Returns a strategy of weighted windows over up to 1,024 blocks, with a tree in each block.

    All columns have equal L1 norms, up to rounding: if the windows over a block have total weight
    s, the block's own tree gets the share 1 / (1 + s), and a window gets its weight times this
    share.

    ``num_leaves``: the number of cells, >= 2.

    Returns:
        A strategy with integer weights, a local optimum of the mean squared error.

    Reference: McKenna, Miklau, Hay and Machanavajjhala (2018), section 5.2 (p-Identity); the trees
    below blocks are new.
    """
    sizes = _levels(num_leaves)
    blocks = sizes[0]
    measures_blocks = len(sizes) == 1 or num_leaves > _MAX_UNMEASURED * blocks
    spread, noise = _tree_below(sizes, measures_blocks)
    shape = (max(2, blocks // _BLOCKS_PER_WINDOW), blocks)
    weights = _optimise(shape, spread, noise)
    shares = _GRID / (1 + weights.sum(axis=0))
    depth = len(sizes) - 1 + measures_blocks
    of_blocks = np.maximum(np.rint(shares / depth).astype(np.int64), 1)
    top = np.rint(weights * shares).astype(np.int64)
    if measures_blocks:
        top = np.concatenate([np.diag(of_blocks), top])
    below = tuple(of_blocks[np.arange(size) * blocks // size] for size in sizes[1:])
    return Hierarchy(sizes, below, top)


def _levels(num_leaves: int) -> tuple[int, ...]:
    """Returns the number of blocks, then the number of nodes on each level below the blocks."""
    blocks = min(num_leaves, MAX_BLOCKS)
    factor = num_leaves / blocks
    if factor == 1:
        return (blocks,)
    depth = 1
    while factor ** (1 / depth) > _MAX_BRANCHING:
        depth += 1
    return tuple(round(blocks * factor ** (level / depth)) for level in range(depth + 1))


def _tree_below(sizes: tuple[int, ...], measures_blocks: bool) -> tuple[float, float]:
    """Returns the variance of a block and of prefixes in the block, for noise of variance 1."""
    if len(sizes) == 1:
        return 1.0, 0.0
    below = tree(tuple(max(1, round(size / sizes[0])) for size in sizes[1:]))
    scale = float((below.l1_sensitivity + measures_blocks) ** 2)
    _, precisions = below.node_variances()
    spread = scale / (float(precisions[0][0]) + measures_blocks)
    return spread, scale * below.errors.mean_prefix_noise()


@on_one_thread
def _optimise(shape: tuple[int, int], spread: float, noise: float) -> Values:
    """Returns window weights that minimise the mean squared error over intervals of blocks."""
    from scipy.optimize import minimize  # imported here because it loads slowly

    # Windows with equal initial weights would stay equal, so the initial weights are irregular.
    irregular = (np.arange(1.0, shape[0] * shape[1] + 1) ** 2 * 0.6180339887498949) % 1
    result = minimize(
        _objective,
        0.2 * irregular,
        args=(shape, spread, noise),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * irregular.size,
        options={"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS},
    )
    weights: Values = result.x.reshape(shape)
    return weights


def _objective(
    flat: Values, shape: tuple[int, int], spread: float, noise: float
) -> tuple[float, Values]:
    """Returns the mean squared error of intervals of blocks, and the gradient of this error.

    With weights W and norms s = 1 + (column sums of W), S = diag(s), the information matrix is
    S^-1 (I / spread + W'W) S^-1. Inverting this matrix needs only one inverse of a small matrix,
    with one row per window.
    """
    weights = flat.reshape(shape)
    blocks = shape[1]
    num_intervals = blocks * (blocks + 1) / 2
    norms = 1 + weights.sum(axis=0)
    scaled = np.sqrt(spread) * weights
    inner = np.linalg.inv(np.eye(shape[0]) + scaled @ scaled.T)
    projected = inner @ scaled
    spans = _spans((scaled * norms).T).T
    places = np.arange(1, blocks + 1)
    counts = places * (blocks + 1.0 - places)
    gain = (projected * norms * spans).sum(axis=0)
    value = spread * float((counts * norms**2 - gain).sum()) / num_intervals
    mixed = inner @ (spans * norms)
    by_weights = -2 * spread * np.sqrt(spread) * (mixed - (mixed @ scaled.T) @ projected)
    by_norms = 2 * spread * (counts * norms - (spans * projected).sum(axis=0))
    gradient = (by_weights + by_norms) / num_intervals + 4 * noise * norms / blocks
    return value + 2 * noise * float((norms**2).mean()), gradient.ravel()


def _spans(columns: Values) -> Values:
    """Returns M times columns, where M[i, j] counts the intervals that contain both i and j."""
    # M[i, j] = min(i, j) (n + 1 - max(i, j)) for i, j = 1..n.
    size = len(columns)
    places = np.arange(1.0, size + 1)[:, None]
    before = np.cumsum(columns * places, axis=0)
    after = np.cumsum((columns * (size + 1 - places))[::-1], axis=0)[::-1]
    after = np.concatenate([after[1:], np.zeros((1, columns.shape[1]))])
    result: Values = (size + 1 - places) * before + places * after
    return result


StrategyName = Literal["histogram", "textbook_tree", "tree", "windows", "sine"]
StrategyChoice = StrategyName | Literal["best"]
Choice = tuple[StrategyName, Distribution]

PURE: tuple[Choice, ...] = (
    ("histogram", "discrete_laplace"),
    ("textbook_tree", "discrete_laplace"),
    ("tree", "discrete_laplace"),
    ("windows", "discrete_laplace"),
)
GAUSSIAN: tuple[Choice, ...] = (
    ("histogram", "discrete_gaussian"),
    ("textbook_tree", "discrete_gaussian"),
    ("tree", "discrete_gaussian"),
    ("sine", "discrete_gaussian"),
)
# Above this number of leaves, the search for the best tree needs much time and memory, and another
# strategy has a smaller error: at 2^20 leaves, 7 % smaller with Laplace noise and 40 % smaller with
# Gaussian noise.
_MANY_LEAVES = 2**17


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class IntervalPlan(Plan):
    """The public parameters of one release of all intervals."""

    mechanism: str = "intervals"
    choice: Choice  # the names of the strategy and of the noise distribution
    strategy: Strategy
    scale: float  # the scale of the noise of each measurement, in grid steps
    grid: int  # the number of grid steps in one unit of the strategy, >= 1
    attribute: Attribute | None = None  # the attribute whose values are the cells, if known

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the strategy as tables, without cached variances."""
        tables = io.BytesIO()
        np.savez_compressed(tables, **strategy_tables(self.strategy))  # type: ignore[arg-type]
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["strategy"]
        return _restored, (type(self), self.num_leaves, tables.getvalue(), fields)

    @property
    def steps(self) -> Sequence[Step]:
        """The noisy draws of this plan, as `beam-dp verify` checks them."""
        name, distribution = self.choice
        return interval_steps(
            name, self.strategy, self.guarantee, distribution, self.scale, self.grid
        )

    @property
    def memory_bytes(self) -> float:
        """The worker's memory for a draw, without the histogram."""
        return intervals_resources(self.num_leaves).memory_bytes

    def _stated(self) -> dict[str, Any]:
        return {"strategy": self.choice[0]}

    def entry(self) -> dict[str, Any]:
        """Returns the parameters that the ledger entry states, with the name of the attribute."""
        named = {} if self.attribute is None else {"attribute": self.attribute.name}
        return {**named, **super().entry()}

    def identity(self) -> dict[str, Any]:
        """Returns the part of the card that identifies a job, with the strategy's name only."""
        cells = {} if self.attribute is None else {"attribute": self.attribute.to_json()}
        return {**super().identity(), "mechanism": self.choice[0], **cells}

    def card(self) -> dict[str, Any]:
        """Returns the part of the card that is known in advance, with noise and errors."""
        return {
            **super().card(),
            "noise": {"distribution": self.choice[1], "scale": self.scale, "grid": self.grid},
            "errors": {
                "mean_squared_error": self.mean_squared_error,
                "root_mean_squared_error": math.sqrt(self.mean_squared_error),
            },
        }

    @property
    def num_leaves(self) -> int:
        """The number of cells."""
        return self.strategy.num_leaves

    @property
    def noise_variance(self) -> float:
        """The variance of the noise of each measurement, in squared units of the strategy."""
        return noise_variance(self.choice[1], self.scale) / self.grid**2

    @functools.cached_property
    def mean_squared_error(self) -> float:
        """The exact mean squared error over all d (d + 1) / 2 intervals, in squared records."""
        return self.noise_variance * self.strategy.errors.mean()


def plan_intervals(
    num_leaves: int,
    guarantee: Guarantee,
    strategy: StrategyChoice = "best",
    distribution: Distribution | None = None,
) -> IntervalPlan:
    """Returns the plan for measuring all intervals of one ordered attribute.

    ``num_leaves``: the number d of cells, from 1 to 2^20.
    ``guarantee``: the guarantee of the release; with delta 0, only Laplace noise is possible.
    ``distribution``: the noise, for a strategy that supports both distributions; by default the
    distribution with the smaller error.

    Privacy: the release keeps the guarantee. One record changes the measurements by a column of the
    strategy's integer matrix, and a replacement by the difference of two columns. The k records of
    a unit change the measurements by at most k times as much, in either norm, since all k records
    may be in one cell. Laplace noise has the scale (L1 norm) / epsilon on every measurement: pure
    privacy, for any delta. Gaussian noise has sigma = (L2 norm) / mu, with mu from
    ``discrete_gaussian_mu``. The number of records is not assumed to be known.

    Accuracy: every strategy except the textbook tree answers by unbiased least squares. The default
    is the strategy with the least mean squared error over all intervals, which is computed
    exactly from public numbers. Under pure privacy this is ``windows`` from some dozens of cells
    on; with epsilon 1 and delta 1e-9, Laplace noise still has less error up to 2^20 cells.
    """
    checked_integer("num_leaves", num_leaves, 1, MAX_LEAVES)
    check_is("guarantee", guarantee, Guarantee)
    asked_for = [
        choice
        for choice in choices(guarantee)
        if strategy in ("best", choice[0]) and distribution in (None, choice[1])
    ]
    if strategy == "best" and num_leaves > _MANY_LEAVES:
        asked_for = [choice for choice in asked_for if choice[0] != "tree"]
    plans = [planned(num_leaves, guarantee, choice) for choice in asked_for]
    if not plans:
        # The message names strategies alone if the caller gave no distribution.
        possible = dict.fromkeys(
            choice[0] if distribution is None else " with ".join(choice)
            for choice in choices(guarantee)
        )
        names = " or ".join(map(repr, possible))
        asked = strategy if distribution is None else f"{strategy} with {distribution}"
        condition = f"must be 'best' or, for a delta of {guarantee.delta:g}, {names}"
        raise InputError("strategy", asked, condition)
    check_noise(guarantee, [min(plan.scale for plan in plans)])
    # On a fine grid, a strategy may need a larger scale than the sampler allows (MAX_SCALE).
    drawn = [plan for plan in plans if plan.scale <= MAX_SCALE]
    return min(drawn, key=lambda plan: plan.mean_squared_error)


def plan_attribute(
    domain: Domain,
    attribute: str,
    guarantee: Guarantee,
    strategy: StrategyChoice = "best",
    count_left_out: bool = False,
) -> IntervalPlan:
    """Plans the measurement of all intervals of one attribute, as for ``ReleaseIntervals``."""
    ordered = ordered_domain(domain, attribute)
    main, _ = Budget.of(guarantee, "pure").split(LEFT_OUT_SHARE if count_left_out else 0)
    (column,) = ordered.attributes
    plan = plan_intervals(column.num_levels, main, strategy)
    counts = plan_left_out(ordered, guarantee, plan.loss) if count_left_out else None
    loss = plan.loss if counts is None else counts.loss
    return dataclasses.replace(plan, attribute=column, loss=loss, left_out=counts)


def release_intervals(
    plan: IntervalPlan,
    counts: NDArray[np.int64],
    noise: NoiseSource,
    attribute: Attribute | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> IntervalRelease:
    """Returns a release that keeps ``plan.guarantee``; no other step sees the counts.

    The shape of the release doesn't depend on the data. The counts are the exact numbers of records
    per cell, shape (d,), int64. Sums are exact modulo 2^64, so answers are right if all d cells
    together contain fewer than 2^35 records. The default attribute is an integer named "cell". One
    call draws all noise.
    """
    if counts.shape != (plan.num_leaves,) or counts.dtype != np.int64:
        shape = f"{counts.dtype} of shape {counts.shape}"
        raise InputError("counts", shape, f"must be int64 of shape ({plan.num_leaves},)")
    exact = plan.strategy.measure(counts) * np.int64(plan.grid)
    draw = noise.laplace if plan.choice[1] == "discrete_laplace" else noise.gaussian
    noisy = draw(exact, plan.scale) / plan.grid
    return IntervalRelease(
        attribute=attribute or IntegerAttribute("cell", 0, plan.num_leaves - 1),
        guarantee=plan.guarantee,
        choice=plan.choice,
        scale=plan.scale,
        grid=plan.grid,
        noise_variance=noise_variance(plan.choice[1], plan.scale),
        mean_squared_error=plan.mean_squared_error,
        strategy=plan.strategy,
        estimate=plan.strategy.estimate(noisy),
        draw_id=noise.draw_id(),
        plan=parameters or {},
    )


def choices(guarantee: Guarantee) -> tuple[Choice, ...]:
    """Returns all combinations of a strategy and a noise that can keep a guarantee."""
    return PURE + GAUSSIAN if guarantee.delta > 0 else PURE


def planned(num_leaves: int, guarantee: Guarantee, choice: Choice) -> IntervalPlan:
    """Returns the plan for one strategy and noise, even if the noise doesn't fit 64 bits."""
    strategy = build(num_leaves, guarantee.neighboring, choice)
    return calibrated(strategy, guarantee, choice)


def calibrated(strategy: Strategy, guarantee: Guarantee, choice: Choice) -> IntervalPlan:
    """Returns the plan for measuring a strategy with the noise that the guarantee needs.

    Privacy: see ``plan_intervals``; the noise depends only on the strategy's sensitivities.
    """
    moved, k = guarantee.neighboring.num_moved, guarantee.max_records_per_unit
    if choice[1] == "discrete_laplace":
        budget, grid = Budget.of(guarantee, "pure"), 1
        norm = moved * k * strategy.l1_sensitivity
    else:
        budget = Budget.of(guarantee, "gaussian")
        norm = moved * k**2 * strategy.l2_sensitivity_squared
        # On cards, this grid differs from ``fine_grid`` by the rounding of a quotient.
        grid = max(1, math.ceil(GRID_DEVIATIONS * budget.level / root_up(norm)))
    return IntervalPlan(
        guarantee=guarantee,
        choice=choice,
        strategy=strategy,
        scale=budget.scale(norm, grid),
        grid=grid,
        loss=budget.loss,
    )


def _restored(
    kind: type[IntervalPlan], num_leaves: int, data: bytes, fields: dict[str, Any]
) -> IntervalPlan:
    neighboring = fields["guarantee"].neighboring
    with np.load(io.BytesIO(data), allow_pickle=False) as tables:
        strategy = strategy_from_tables(fields["choice"][0], num_leaves, neighboring, dict(tables))
    return kind(strategy=strategy, **fields)


def build(num_leaves: int, neighboring: Neighboring, choice: Choice) -> Strategy:
    """Builds the strategy of a choice."""
    name, distribution = choice
    power = 1 if distribution == "discrete_laplace" else 2
    match name:
        case "histogram":
            return tree((num_leaves,))
        case "textbook_tree":
            return TextbookTree.build(num_leaves, neighboring)
        case "tree":
            return best_tree(num_leaves, power)
        case "windows":
            return windows(num_leaves)
        case "sine":
            return SineStrategy.build(num_leaves)
