"""The best known strategy for intervals under pure privacy: cells and overlapping windows.

The cells, or the trees over blocks of cells, are measured alone, and with them a few weighted sums
of blocks that overlap as they like. The weights are found by gradient descent, from nothing but the
number of cells.
"""

from __future__ import annotations

import functools

import numpy as np

from beam_dp.interval_strategies.hierarchy import Hierarchy, tree
from beam_dp.interval_strategies.strategy import Values
from beam_dp.models.threads import on_one_thread

MAX_BLOCKS = 1024
# Wider blocks are measured themselves, and not only their cells: it pays from 8 cells on.
_MAX_UNMEASURED = 8
# Where blocks have more cells than this, the tree below them has more than one level.
_MAX_BRANCHING = 16
# Twice as many windows gain less than 2 %, and more of them cost time.
_BLOCKS_PER_WINDOW = 16
_ITERATIONS = 150
_GRID = 2**13


@functools.lru_cache(maxsize=8)
def windows(num_leaves: int) -> Hierarchy:
    """Returns a strategy of windows over up to 1,024 blocks of cells, with trees below.

    Every column has the same L1 norm but for rounding: a block whose windows weigh s in all gives
    its own tree the share 1 / (1 + s) and each window its weight times that share.

    Args:
        num_leaves: the number of cells, >= 2.

    Returns:
        A local optimum of the mean squared error over all intervals, in integers.

    Cost: 1 to 4 s for 1,024 blocks or more on one core; kept for the next call.
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
    own = np.maximum(np.rint(shares / depth).astype(np.int64), 1)
    top = np.rint(weights * shares).astype(np.int64)
    if measures_blocks:
        top = np.concatenate([np.diag(own), top])
    below = tuple(own[np.arange(size) * blocks // size] for size in sizes[1:])
    return Hierarchy(sizes, below, top)


def _levels(num_leaves: int) -> tuple[int, ...]:
    """Returns the numbers of blocks and of the nodes below them."""
    blocks = min(num_leaves, MAX_BLOCKS)
    factor = num_leaves / blocks
    if factor == 1:
        return (blocks,)
    depth = 1
    while factor ** (1 / depth) > _MAX_BRANCHING:
        depth += 1
    return tuple(round(blocks * factor ** (level / depth)) for level in range(depth + 1))


def _tree_below(sizes: tuple[int, ...], measures_blocks: bool) -> tuple[float, float]:
    """Returns the variance of a block's own tree, of L1 sensitivity 1 and noise of variance 1.

    Returns:
        Of its sum; and of a prefix within it, the mean over all, given the sum.
    """
    if len(sizes) == 1:
        return 1.0, 0.0
    below = tree(tuple(max(1, round(size / sizes[0])) for size in sizes[1:]))
    scale = float((below.l1_sensitivity + measures_blocks) ** 2)
    _, precisions = below.node_variances()
    spread = scale / (float(precisions[0][0]) + measures_blocks)
    return spread, scale * below.errors.mean_prefix_noise()


@on_one_thread
def _optimise(shape: tuple[int, int], spread: float, noise: float) -> Values:
    """Returns window weights that minimise the mean squared error over intervals of blocks.

    Args:
        shape: numbers of windows and of blocks.
        spread: variance of a block's own tree.
        noise: of a prefix within a block.
    """
    from scipy.optimize import minimize  # imported here because it loads slowly

    # No two windows start alike, or they would stay alike: multiples of squares are irregular.
    irregular = (np.arange(1.0, shape[0] * shape[1] + 1) ** 2 * 0.6180339887498949) % 1
    found = minimize(
        _objective,
        0.2 * irregular,
        args=(shape, spread, noise),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * irregular.size,
        options={"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS},
    )
    weights: Values = found.x.reshape(shape)
    return weights


def _objective(
    flat: Values, shape: tuple[int, int], spread: float, noise: float
) -> tuple[float, Values]:
    """Returns the mean squared error of intervals of blocks, and its gradient.

    With weights W and norms s = 1 + (column sums of W) the information is
    S^-1 (I / spread + W'W) S^-1; its inverse needs one of the size of the windows only.
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
    """Returns M times columns, where M[i, j] counts the intervals that hold both i and j.

    That is min(i, j) (n + 1 - max(i, j)) for i, j = 1..n.
    """
    size = len(columns)
    places = np.arange(1.0, size + 1)[:, None]
    before = np.cumsum(columns * places, axis=0)
    after = np.cumsum((columns * (size + 1 - places))[::-1], axis=0)[::-1]
    after = np.concatenate([after[1:], np.zeros((1, columns.shape[1]))])
    result: Values = (size + 1 - places) * before + places * after
    return result
