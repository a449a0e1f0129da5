"""Draws records from log-linear weights, exactly, given the codes of some attributes.

The weight of a record is proportional to exp of the sum of small tables. Attributes are summed out
one after the other, in the order of a junction tree, and then drawn in the reverse order: each one
given the codes that are already known. So every draw has exactly the conditional distribution, with
no rejected draws. Records with different given codes are computed together, along a first axis of
all tables that depend on the given codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.elimination import Axes, axes_of, join_cliques, mask_of, triangulate

Table = NDArray[np.float64]
Codes = NDArray[np.int64]

# The number of cells, over all records of a part, that are in memory for one attribute.
_PART_CELLS = 2**22


@dataclass(frozen=True, eq=False)
class _Factor:
    """A table of logarithms: records (or a single entry for all) times the axes in its scope."""

    scope: Axes
    table: Table


@dataclass(frozen=True, eq=False)
class _Step:
    """The weights of an attribute, which is the last axis, given the attributes in a scope."""

    axis: int
    factor: _Factor


def conditional_codes(
    shape: Sequence[int],
    tables: Sequence[tuple[Axes, Table]],  # logarithms, finite or -inf, and their ascending axes
    given: Mapping[int, Codes],  # codes by axis, shape (num_rows,)
    num_rows: int,
    uniforms: Callable[[int, int, int], Table],  # by axis, first row and number of rows
) -> tuple[list[Codes], NDArray[np.bool_]]:
    """Returns the codes of each attribute, and which rows have a possible record.

    Rows without a possible record have arbitrary codes in the attributes that are not given.
    """
    free = [axis for axis in range(len(shape)) if axis not in given]
    order = _order(shape, [axes for axes, _ in tables], free)
    columns = [given.get(axis, np.zeros(num_rows, np.int64)).copy() for axis in range(len(shape))]
    possible = np.ones(num_rows, np.bool_)
    most = max((cells for _, cells in order), default=1) if given else max((1, *shape))
    length = max(1, _PART_CELLS // most)
    steps: list[_Step] = []
    for start in range(0, num_rows, length):
        part = slice(start, min(start + length, num_rows))
        if given or not start:
            own = {axis: codes[part] for axis, codes in given.items()}
            steps, mass = _summed_out(shape, tables, own, [axis for axis, _ in order])
        possible[part] = mass > -np.inf
        for step in reversed(steps):
            drawn = uniforms(step.axis, start, part.stop - start)
            known = [columns[axis][part] for axis in step.factor.scope[:-1]]
            columns[step.axis][part] = _drawn(step.factor.table, known, drawn)
    return columns, possible


def _order(
    shape: Sequence[int], sets: Sequence[Axes], free: Sequence[int]
) -> list[tuple[int, int]]:
    """Returns the free axes in the order of summing out, with the cells of each one's table."""
    # A perfect order of the junction tree: from its leaves, first what only one clique has.
    wanted = mask_of(free)
    masks = [mask_of(axes) & wanted for axes in sets]
    cliques = triangulate(shape, masks).cliques
    order = []
    for mask, _, separator in reversed(join_cliques(shape, cliques)):
        left = mask & wanted
        for axis in axes_of(mask & ~separator & wanted):
            order.append((axis, math.prod(shape[each] for each in axes_of(left))))
            left &= ~(1 << axis)
    return order


def _summed_out(
    shape: Sequence[int],
    tables: Sequence[tuple[Axes, Table]],
    given: Mapping[int, Codes],
    order: Sequence[int],
) -> tuple[list[_Step], Table]:
    """Returns a step per axis, in order, and the logarithm of each record's total weight."""
    factors = [_given_factor(axes, table, given) for axes, table in tables]
    steps = []
    for axis in order:
        own = [each for each in factors if axis in each.scope]
        factors = [each for each in factors if axis not in each.scope]
        rest = sorted({other for each in own for other in each.scope} - {axis})
        joint = _sum(own, (*rest, axis), shape)
        steps.append(_Step(axis, joint))
        factors.append(_Factor(tuple(rest), _log_sum(joint.table)))
    mass = np.zeros(1)
    for each in factors:
        mass = mass + each.table
    return steps, mass


def _given_factor(axes: Axes, table: Table, given: Mapping[int, Codes]) -> _Factor:
    """Returns a table at the given codes of each record, with the other axes in ascending order."""
    known = [place for place, axis in enumerate(axes) if axis in given]
    scope = tuple(axis for axis in axes if axis not in given)
    if not known:
        return _Factor(scope, table[None])
    first = np.moveaxis(table, known, range(len(known)))
    return _Factor(scope, first[tuple(given[axes[place]] for place in known)])


def _sum(factors: Sequence[_Factor], scope: Axes, shape: Sequence[int]) -> _Factor:
    """Returns the sum of factors, with the axes of a scope; a scope of one axis may have none."""
    total = np.zeros([1, *(shape[axis] for axis in scope)])
    for each in factors:
        # Brings the axes into the order of the scope, with length 1 for those that are missing.
        present = [axis for axis in scope if axis in each.scope]
        table = each.table.transpose(0, *(1 + each.scope.index(axis) for axis in present))
        sizes = [shape[axis] if axis in each.scope else 1 for axis in scope]
        total = total + table.reshape([len(table), *sizes])
    return _Factor(scope, total)


def _log_sum(table: Table) -> Table:
    """Returns the logarithm of the sum of exp along the last axis; -inf if all are -inf."""
    highest = table.max(axis=-1, keepdims=True)
    highest[np.isneginf(highest)] = 0.0
    with np.errstate(divide="ignore"):
        summed: Table = np.log(np.exp(table - highest).sum(axis=-1)) + highest[..., 0]
    return summed


def _drawn(table: Table, known: Sequence[Codes], uniforms: Table) -> Codes:
    """Returns a code per record, with the weights of the record's entry of a table."""
    rows = np.arange(len(uniforms)) if len(table) > 1 else np.zeros(len(uniforms), np.int64)
    logs = table[(rows, *known)]
    logs -= np.maximum(logs.max(axis=-1, keepdims=True), np.finfo(float).min)
    ends = np.cumsum(np.exp(logs), axis=-1)
    # The first code whose end is beyond the point has a weight above 0.
    points = uniforms[:, None] * ends[:, -1:]
    codes: Codes = np.minimum((ends <= points).sum(axis=-1), table.shape[-1] - 1)
    return codes
