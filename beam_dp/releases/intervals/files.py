"""Files of interval counts: the card, and tables in Avro.

A directory contains ``card.json`` and ``intervals-DRAW.avro``. The Avro file contains the estimated
prefix sums (for the textbook tree, the noisy nodes) and the integer tables that define the
strategy, in pieces of 2^16 numbers. A strategy that is optimised numerically may differ between
machines, so the release contains the strategy, and reading the release computes the standard errors
from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.files import domain_from_json
from beam_dp.errors import InputError
from beam_dp.models.intervals.hierarchy import Hierarchy
from beam_dp.models.intervals.sine import SineStrategy
from beam_dp.models.intervals.strategy import Nodes, Prefixes, Strategy, TextbookTree
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.noise.bound import DISTRIBUTIONS
from beam_dp.releases.files.card import Card, Payload
from beam_dp.releases.intervals.release import IntervalRelease, check_ordered
from beam_dp.storage.avro import file_name, read_records, write_records
from beam_dp.storage.store import DamagedFileError

TABLE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "IntervalTable",
    "doc": "A piece of a table, in C order; 'estimate' is in records. See docs/intervals.md.",
    "fields": [
        {"name": "table", "type": "string"},
        {"name": "shape", "type": {"type": "array", "items": "long"}},
        {"name": "start", "type": "long"},
        {"name": "values", "type": {"type": "array", "items": "double"}},
    ],
}
_ESTIMATE = "estimate"
_PURPOSE = "intervals"
_PIECE = 2**16
_MAX_BLOCK_BYTES = 8 * _PIECE + 2**12
# The largest strategy has at most four tables of 2^21 numbers.
_MAX_TABLE, _MAX_TABLES = 2**22, 4
TYPES = {
    "mechanism": str,
    "guarantee": dict,
    "attribute": dict,
    "parameters": dict,
    "noise": dict,
    "errors": dict,
}
OPTIONAL = {"left_out": dict}


def payload(release: IntervalRelease) -> dict[str, bytes]:
    """Returns the only file, which contains the estimate and the strategy."""
    pieces = _pieces(_tables(release))
    data = write_records(TABLE_SCHEMA, release.draw_id, _PURPOSE, pieces, deflate=True)
    return {file_name(release.draw_id, _PURPOSE): data}


def read(card: Card, payload: Payload) -> IntervalRelease:
    """Reads a release from its card and payload."""
    name = file_name(card.draw_id, _PURPOSE)
    card.check_files([name])
    card.check_types(TYPES)
    parsed = card.fields
    domain = domain_from_json({"attributes": [parsed["attribute"]]}, "card")
    (attribute,) = domain.attributes
    check_ordered(attribute)
    noise = parsed["noise"]
    grid = checked_integer("grid", noise.get("grid"), 1, 2**62 - 1)
    check_choice("distribution", noise.get("distribution"), DISTRIBUTIONS)
    mean = parsed["errors"].get("mean_squared_error")
    error = checked_number("mean_squared_error", mean, above=0)
    guarantee = Guarantee.from_json(parsed["guarantee"])
    scale = checked_number("scale", noise.get("scale"), above=0)
    variance = checked_number("variance", noise.get("variance"), above=0)
    left_out = card.left_out(domain)

    def release(data: bytes) -> IntervalRelease:
        tables = _read_tables(data)
        values = tables.pop(_ESTIMATE, np.zeros(0))
        integers = {name: _as_integers(name, table) for name, table in tables.items()}
        strategy = strategy_from_tables(
            parsed["mechanism"], attribute.num_levels, guarantee.neighboring, integers
        )
        with np.errstate(all="ignore"):
            # If the matrix is of a different strategy, this error differs or is not a number.
            expected = variance / grid**2 * strategy.errors.mean()
        if not math.isclose(expected, error, rel_tol=1e-6):
            condition = "must be that of the strategy in the payload"
            raise InputError("mean_squared_error", error, condition)
        return IntervalRelease(
            draw_id=card.draw_id,
            attribute=attribute,
            guarantee=guarantee,
            choice=(parsed["mechanism"], noise["distribution"]),
            scale=scale,
            grid=grid,
            noise_variance=variance,
            mean_squared_error=error,
            strategy=strategy,
            estimate=_estimate(strategy, values),
            plan=parsed["parameters"],
            versions=parsed["versions"],
            left_out=left_out,
        )

    return payload.read(name, release)


def _estimate(strategy: Strategy, values: NDArray[np.float64]) -> Prefixes | Nodes:
    sizes = (
        strategy.node_sizes() if isinstance(strategy, TextbookTree) else [strategy.num_leaves + 1]
    )
    if values.shape != (sum(sizes),):
        raise InputError(_ESTIMATE, values.shape, f"must have the shape ({sum(sizes)},)")
    if not (np.abs(values) < 2.0**63).all():
        raise InputError(_ESTIMATE, values.shape, "must contain numbers below 2^63")
    if isinstance(strategy, TextbookTree):
        return Nodes(np.split(values, np.cumsum(sizes)[:-1]))
    return Prefixes(values)


def _tables(release: IntervalRelease) -> dict[str, NDArray[np.float64]]:
    estimate = release.estimate
    values = estimate.values if isinstance(estimate, Prefixes) else np.concatenate(estimate.levels)
    # Doubles represent integers below 2^53 exactly.
    strategy = strategy_tables(release.strategy)
    return {_ESTIMATE: values, **{name: table.astype(float) for name, table in strategy.items()}}


def _pieces(tables: Mapping[str, NDArray[np.float64]]) -> Iterator[dict[str, Any]]:
    for name, table in tables.items():
        flat = table.ravel()
        for start in range(0, max(flat.size, 1), _PIECE):
            values = flat[start : start + _PIECE]
            yield {"table": name, "shape": table.shape, "start": start, "values": values}


def _read_tables(data: bytes) -> dict[str, NDArray[np.float64]]:
    tables: dict[str, NDArray[np.float64]] = {}
    filled: dict[str, int] = {}
    for piece in read_records(data, TABLE_SCHEMA, _MAX_BLOCK_BYTES):
        name, start, values = piece["table"], piece["start"], piece["values"]
        shape = tuple(piece["shape"].tolist())
        if len(shape) not in (1, 2):
            raise DamagedFileError("has a table that is neither a vector nor a matrix")
        if not all(0 <= size <= _MAX_TABLE for size in shape):
            raise DamagedFileError("has a table that is larger than it can be")
        if name not in tables:
            if len(tables) == _MAX_TABLES or math.prod(shape) > _MAX_TABLE:
                raise DamagedFileError("has more tables than it can have, or larger ones")
            tables[name], filled[name] = np.zeros(shape), 0
        table = tables[name].reshape(-1)
        if shape != tables[name].shape or start != filled[name] or start + len(values) > table.size:
            raise DamagedFileError("has pieces of a table that do not fit together")
        table[start : start + len(values)] = values
        filled[name] += len(values)
    for name, table in tables.items():
        if filled[name] != table.size:
            raise DamagedFileError("has a table with a missing piece")
    return tables


def _as_integers(name: str, table: NDArray[np.float64]) -> NDArray[np.int64]:
    if not (np.abs(table) < 2**53).all() or not (table == np.rint(table)).all():
        raise InputError(name, table.shape, "must contain integers")
    return table.astype(np.int64)


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
