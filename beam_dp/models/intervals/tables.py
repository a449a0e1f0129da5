"""A strategy as named tables of integers, which determine its answers and errors."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.models.intervals.hierarchy import Hierarchy
from beam_dp.models.intervals.sine import SineStrategy
from beam_dp.models.intervals.strategy import (
    Strategy,
    TextbookTree,
)
from beam_dp.privacy.guarantee import Neighboring

Tables = Mapping[str, NDArray[np.int64]]

# No strategy of this package exceeds these limits, and computing within them is feasible.
MAX_ROOTS = 1024
_MAX_ROWS = 2 * MAX_ROOTS
_MAX_LEVELS = 21
_MAX_ENTRY = 2**26

TREES = ("histogram", "tree", "windows")


def strategy_tables(strategy: Strategy) -> Tables:
    """Returns the tables of a strategy; tables found numerically differ between machines."""
    match strategy:
        case Hierarchy(sizes=sizes, weights=weights, top=top):
            roots = np.arange(sizes[0])
            by_root = [
                part[-(-roots * size // sizes[0])]
                for part, size in zip(weights, sizes[1:], strict=True)
            ]
            by_level = np.array(by_root, np.int64).reshape(len(weights), sizes[0])
            return {"sizes": np.array(sizes), "weights": by_level, "top": top}
        case SineStrategy(kernel=kernel, scales=scales):
            return {"kernel": kernel[: len(scales) + 2], "scales": scales}
        case TextbookTree():
            return {}
    raise TypeError(type(strategy).__name__)


def strategy_from_tables(
    name: str, num_leaves: int, neighboring: Neighboring, tables: Tables
) -> Strategy:
    """Returns the strategy for tables from ``strategy_tables``."""
    if name in TREES:
        _check_names(tables, ("sizes", "weights", "top"))
        return _hierarchy(num_leaves, tables)
    if name == "textbook_tree":
        _check_names(tables, ())
        return TextbookTree.build(num_leaves, neighboring)
    if name == "sine":
        _check_names(tables, ("kernel", "scales"))
        half, scales = tables["kernel"], tables["scales"]
        _check("kernel", half, (num_leaves + 2,), 0)
        _check("scales", scales, (num_leaves,), 1)
        strategy = SineStrategy(np.concatenate([half, half[num_leaves:0:-1]]), scales)
        if not strategy.has_inverse:
            raise InputError("kernel", int(half[0]), "must have an inverse")
        return strategy
    raise InputError("strategy", name, "must be one that this version knows")


def _hierarchy(num_leaves: int, tables: Tables) -> Hierarchy:
    given, weights, top = tables["sizes"], tables["weights"], tables["top"]
    levels = len(given)
    _check("sizes", given, (levels,), 1)
    grows = levels <= _MAX_LEVELS and bool(np.all(np.diff(given) >= 0))
    if not levels or not grows or given[-1] != num_leaves or given[0] > MAX_ROOTS:
        condition = f"must not decrease, from at most {MAX_ROOTS:,} to {num_leaves:,}"
        raise InputError("sizes", given[:_MAX_LEVELS].tolist(), condition)
    roots = int(given[0])
    _check("weights", weights, (levels - 1, roots), 1)
    _check("top", top, (min(len(top), _MAX_ROWS), roots), 0)
    is_measured = bool(np.all(top.any(axis=0))) if levels == 1 else True
    if (not len(top) and roots > 1) or not is_measured:
        raise InputError("top", top.shape, "must measure every root")
    below = tuple(
        weights[level, np.arange(size) * roots // size]
        for level, size in enumerate(given[1:].tolist())
    )
    return Hierarchy(tuple(given.tolist()), below, top)


def _check_names(tables: Tables, names: tuple[str, ...]) -> None:
    if set(tables) != set(names):
        raise InputError("tables", sorted(tables), f"must be {', '.join(names) or 'none'}")


def _check(name: str, table: NDArray[np.int64], shape: tuple[int, ...], least: int) -> None:
    if table.shape != shape:
        raise InputError(name, table.shape, f"must have the shape {shape}")
    if math.prod(shape) and not (least <= int(table.min()) and int(table.max()) <= _MAX_ENTRY):
        condition = f"must contain integers from {least} to {_MAX_ENTRY:,}"
        raise InputError(name, int(table.min()), condition)
