"""Draws new records from a synthetic database, also given conditions or some of their values.

Records have the exact conditional distribution of the hypothesis. If a release has no hypothesis,
because weights of candidate records were fitted, its records are drawn in proportion to their
counts. All random bits are expanded from the public draw id and a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.domain.universe import Axes, Domain
from beam_dp.errors import InputError, magnitude
from beam_dp.installed import check_installed
from beam_dp.models.elimination import axes_of, join_cliques, mask_of, num_clique_cells, triangulate
from beam_dp.queries.where import Mask, read_condition
from beam_dp.releases.synthetic_database.records import FittedTables, arrow_table, code_type
from beam_dp.releases.synthetic_database.shards import Positions, random_words, values_within

if TYPE_CHECKING:
    import pyarrow as pa


# Draws records from log-linear weights, exactly, given the codes of some attributes.
#
# The weight of a record is proportional to exp of the sum of small tables. Attributes are summed
# out one after the other, in the order of a junction tree, and then drawn in the reverse order:
# each one given the codes that are already known. So every draw has exactly the conditional
# distribution, with no rejected draws. Several combinations of given codes are computed together,
# along the first axis of the tables that depend on them.


Table = NDArray[np.float64]
Codes = NDArray[np.int64]

# The number of cells of one attribute that are computed together.
_PART_CELLS = 2**22


@dataclass(frozen=True, eq=False)
class _Factor:
    """A table of logarithms, by combination of given codes, or one for all, and by code."""

    scope: Axes
    table: Table


def conditional_codes(
    shape: Sequence[int],
    tables: Sequence[tuple[Axes, Table]],  # logarithms, finite or -inf, and their ascending axes
    given: Mapping[int, Codes],  # codes by axis, shape (num_rows,)
    num_rows: int,
    uniforms: Callable[[int, int, int], Table],  # by axis, place of the first draw and number
) -> tuple[list[Codes], NDArray[np.bool_]]:
    """Returns the codes of each attribute, and which rows have a possible record.

    Rows without a possible record have arbitrary codes in the attributes that are not given.
    """
    possible = np.ones(num_rows, np.bool_)
    joined = []
    for axes, table in tables:
        if axes and all(axis in given for axis in axes):
            possible &= table[tuple(given[axis] for axis in axes)] > -np.inf
        else:
            joined.append((axes, table))
    groups = _equal_rows(shape, joined, given, num_rows)
    first = np.zeros(groups.max() + 1, np.int64)
    first[groups] = np.arange(num_rows)
    by_group = np.argsort(groups, kind="stable")
    ends = np.searchsorted(groups[by_group], np.arange(len(first) + 1))
    order = _order(shape, joined, given)
    largest = max((cells for _, cells in order), default=1)
    num_groups, length = max(1, _PART_CELLS // largest), max(1, _PART_CELLS // max((1, *shape)))
    columns = [given.get(axis, np.zeros(num_rows, np.int64)).copy() for axis in range(len(shape))]
    for start in range(0, len(first), num_groups):
        chosen = first[start : start + num_groups]
        group_codes = {axis: codes[chosen] for axis, codes in given.items()}
        steps, mass = _summed_out(shape, joined, group_codes, [axis for axis, _ in order])
        is_possible = np.broadcast_to(mass > -np.inf, len(chosen))
        stop = int(ends[start + len(chosen)])
        for low in range(int(ends[start]), stop, length):
            rows = by_group[low : min(low + length, stop)]
            entries = groups[rows] - start
            possible[rows] &= is_possible[entries]
            for step in reversed(steps):
                *others, axis = step.scope
                codes = [columns[other][rows] for other in others]
                drawn = uniforms(axis, low, len(rows))
                columns[axis][rows] = _drawn(step.table, entries, codes, drawn)
    return columns, possible


def _equal_rows(
    shape: Sequence[int],
    tables: Sequence[tuple[Axes, Table]],
    given: Mapping[int, Codes],
    num_rows: int,
) -> Codes:
    """Returns a number from 0 per row, equal for rows with equal codes in all tables."""
    groups = np.zeros(num_rows, np.int64)
    for axis in {axis for axes, _ in tables for axis in axes if axis in given}:
        groups = np.unique(groups * shape[axis] + given[axis], return_inverse=True)[1]
    return groups


def _order(
    shape: Sequence[int], tables: Sequence[tuple[Axes, Table]], given: Iterable[int]
) -> list[tuple[int, int]]:
    """Returns the other axes in the order of summing out, with the cells of each one's table."""
    # A perfect order of the junction tree: from its leaves, first what only one clique has.
    wanted = mask_of(range(len(shape))) & ~mask_of(given)
    masks = [mask_of(axes) & wanted for axes, _ in tables]
    cliques = triangulate(shape, masks).cliques
    order = []
    for mask, _, separator in reversed(join_cliques(shape, cliques)):
        left = mask & wanted
        for axis in axes_of(mask & ~separator & wanted):
            order.append((axis, math.prod(shape[other] for other in axes_of(left))))
            left &= ~(1 << axis)
    return order


def _summed_out(
    shape: Sequence[int],
    tables: Sequence[tuple[Axes, Table]],
    given: Mapping[int, Codes],
    order: Sequence[int],
) -> tuple[list[_Factor], Table]:
    """Returns the weights of each axis, in order, and the log of each record's total weight.

    The last axis of a table of weights is the axis itself; the others are summed out later.
    """
    factors = [_given_factor(axes, table, given) for axes, table in tables]
    steps = []
    for axis in order:
        joined = [factor for factor in factors if axis in factor.scope]
        factors = [factor for factor in factors if axis not in factor.scope]
        rest = sorted({other for factor in joined for other in factor.scope} - {axis})
        steps.append(_sum(joined, (*rest, axis), shape))
        factors.append(_Factor(tuple(rest), _log_sum(steps[-1].table)))
    mass = np.zeros(1)
    for factor in factors:
        mass = mass + factor.table
    return steps, mass


def _given_factor(axes: Axes, table: Table, given: Mapping[int, Codes]) -> _Factor:
    """Returns a table at the given codes of each record, with the other axes in ascending order."""
    places = [place for place, axis in enumerate(axes) if axis in given]
    scope = tuple(axis for axis in axes if axis not in given)
    if not places:
        return _Factor(scope, table[None])
    first = np.moveaxis(table, places, range(len(places)))
    return _Factor(scope, first[tuple(given[axes[place]] for place in places)])


def _sum(factors: Sequence[_Factor], scope: Axes, shape: Sequence[int]) -> _Factor:
    """Returns the sum of factors, perhaps of none, with the axes of a scope."""
    total = np.zeros([1, *(shape[axis] for axis in scope)])
    for factor in factors:
        # Brings the axes into the order of the scope, with length 1 for those that are missing.
        present = [axis for axis in scope if axis in factor.scope]
        table = factor.table.transpose(0, *(1 + factor.scope.index(axis) for axis in present))
        sizes = [shape[axis] if axis in factor.scope else 1 for axis in scope]
        total = total + table.reshape([len(table), *sizes])
    return _Factor(scope, total)


def _log_sum(table: Table) -> Table:
    """Returns the logarithm of the sum of exp along the last axis; -inf if all are -inf."""
    highest = table.max(axis=-1, keepdims=True)
    highest[np.isneginf(highest)] = 0.0
    with np.errstate(divide="ignore"):
        summed: Table = np.log(np.exp(table - highest).sum(axis=-1)) + highest[..., 0]
    return summed


def _drawn(table: Table, entries: Codes, others: Sequence[Codes], uniforms: Table) -> Codes:
    """Returns a code per record, with the weights of the record's entry of a table."""
    logs = table[(entries if len(table) > 1 else np.zeros_like(entries), *others)]
    logs -= np.maximum(logs.max(axis=-1, keepdims=True), np.finfo(float).min)
    ends = np.cumsum(np.exp(logs), axis=-1)
    # The first code whose end is beyond the point has a weight above 0.
    points = uniforms[:, None] * ends[:, -1:]
    codes: Codes = np.minimum((ends <= points).sum(axis=-1), table.shape[-1] - 1)
    return codes


MAX_ROWS = 2**28
_MAX_CELLS = 2**26  # of the tables that are in memory together


def sampled_table(
    fitted: FittedTables,
    positions: Mapping[str, Positions],
    draw_id: str,
    rows: int,
    where: str | None,
    seed: int,
) -> pa.Table:
    """Returns the table of ``SyntheticDatabase.sample``."""
    check_installed("pyarrow")
    checked_integer("rows", rows, 1, MAX_ROWS)
    masks = {} if where is None else read_condition(fitted.domain, where)
    purpose = f"sample {where or ''}"
    codes, possible = drawn_codes(fitted, draw_id, masks, {}, rows, purpose, seed)
    if not possible.all():
        condition = "must be true for some records: the fitted distribution gives it the weight 0"
        raise InputError("where", where, condition)
    return drawn_table(fitted.domain, positions, draw_id, codes, purpose, seed)


def drawn_codes(
    fitted: FittedTables,
    draw_id: str,
    masks: Mapping[int, Mask],
    given: Mapping[int, Codes],
    num_rows: int,
    purpose: str,
    seed: int,
) -> tuple[list[Codes], NDArray[np.bool_]]:
    """Returns the codes of each attribute, and which rows the fitted distribution makes possible.

    ``masks``: the allowed codes by axis; ``given``: the codes of each row by axis, shape
    (num_rows,), in attributes that have no mask.
    """
    checked_integer("seed", seed, 0)
    if () in fitted.record_tables:  # there is no hypothesis
        return _from_records(fitted, masks, given, num_rows, f"{purpose} {seed} {draw_id}")
    domain = fitted.domain
    tables = [(domain.axes(names), table) for names, table in fitted.potentials]
    for rule in domain.impossible:
        tables.append((rule.axes, np.where(rule.mask(domain.shape), -np.inf, 0.0)))
    kept = {axis: np.flatnonzero(mask) for axis, mask in masks.items()}
    for axis, codes in kept.items():
        # Without the other codes, all tables become smaller.
        tables = [
            (axes, table.take(codes, axes.index(axis)) if axis in axes else table)
            for axes, table in tables
        ]
    shape = [len(kept[axis]) if axis in kept else size for axis, size in enumerate(domain.shape)]
    free = [tuple(axis for axis in axes if axis not in given) for axes, _ in tables]
    num_cells = num_clique_cells([1 if i in given else n for i, n in enumerate(shape)], free)
    if num_cells > _MAX_CELLS:
        condition = "must be at most 2^26, the cells of the junction tree of its measured tables"
        raise InputError("release", magnitude(num_cells), f"{condition}, to be sampled")

    def uniforms(axis: int, start: int, number: int) -> NDArray[np.float64]:
        return _uniforms(f"{purpose} {seed} {domain.names[axis]} {start} {draw_id}", number)

    columns, possible = conditional_codes(shape, tables, given, num_rows, uniforms)
    return [kept[i][column] if i in kept else column for i, column in enumerate(columns)], possible


def _from_records(
    fitted: FittedTables,
    masks: Mapping[int, Mask],
    given: Mapping[int, Codes],
    num_rows: int,
    name: str,
) -> tuple[list[Codes], NDArray[np.bool_]]:
    """Draws among the released records that agree with each row, in proportion to their counts."""
    agrees = np.ones(len(fitted.counts), np.bool_)
    for axis, mask in masks.items():
        agrees &= mask[fitted.codes[axis]]
    places = np.flatnonzero(agrees)
    # Numbers equal combinations of given codes equally, in the records and in the rows.
    groups = np.zeros(len(places) + num_rows, np.int64)
    for axis, codes in given.items():
        both = np.concatenate([fitted.codes[axis][places].astype(np.int64), codes])
        groups = np.unique(groups * fitted.domain.shape[axis] + both, return_inverse=True)[1]
    record_groups, wanted = groups[: len(places)], groups[len(places) :]
    order = np.argsort(record_groups, kind="stable")
    places, record_groups = places[order], record_groups[order]
    ends = np.concatenate([[0], np.cumsum(fitted.counts[places])])
    low = ends[np.searchsorted(record_groups, wanted, "left")]
    high = ends[np.searchsorted(record_groups, wanted, "right")]
    points = low + (_uniforms(name, num_rows) * (high - low)).astype(np.int64)
    chosen = np.searchsorted(ends[1:], points, "right")
    possible = high > low
    columns = []
    for codes_of_records in fitted.codes:
        column = np.zeros(num_rows, np.int64)
        column[possible] = codes_of_records[places[chosen[possible]]]
        columns.append(column)
    return columns, possible


def _uniforms(name: str, number: int) -> NDArray[np.float64]:
    """Returns numbers in [0, 1) that any two names make independently."""
    words = random_words(name, number, "<u8")
    # With 52 bits, the product with a sum of weights stays below the sum.
    return (words >> np.uint64(12)).astype(np.float64) * 2.0**-52


def drawn_table(
    domain: Domain,
    positions: Mapping[str, Positions],
    draw_id: str,
    codes: list[Codes],
    purpose: str,
    seed: int,
) -> pa.Table:
    """Returns records as a table, with values within bins as the release's own records have."""
    narrow = [column.astype(code_type(n)) for column, n in zip(codes, domain.shape, strict=True)]
    values: dict[str, NDArray[Any]] = {}
    for attribute, column in zip(domain, narrow, strict=True):
        if isinstance(attribute, BinnedAttribute) and attribute.name in positions:
            name = f"{purpose} {seed} {draw_id} within {attribute.name}"
            words = random_words(name, len(column), "<u8")
            values[attribute.name] = values_within(
                attribute, column, words, positions[attribute.name]
            )
    return arrow_table(domain, narrow, values)
