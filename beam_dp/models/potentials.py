"""Computes marginals of a distribution that tables of log-potentials define.

The weight of a cell is proportional to exp(sum of the potentials at its codes), and 0 if the domain
declares the cell impossible. Attributes that are not connected by tables are independent, and
attributes outside all tables are uniform, so only connected sets of attributes are expanded. Small
or dense sets are expanded one slab at a time, other sets as a junction tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.impossible import Impossible
from beam_dp.domain.universe import Axes
from beam_dp.errors import InputError, magnitude
from beam_dp.models.elimination import num_clique_cells
from beam_dp.models.junction_tree import JunctionTree, tree_marginals
from beam_dp.queries.dense_tables import marginal_tables, sum_of_tables

Table = NDArray[np.float64]

MAX_CELLS = 2**28
_SLAB_CELLS = 2**20  # 8 MiB
_DENSE_CELLS = 2**20  # up to this size, no tree is built
_TREE_GAIN = 8


def marginal_weights(
    shape: Sequence[int],
    potentials: Sequence[tuple[Axes, Table]],  # finite logarithms and their ascending axes
    wanted: Sequence[Axes],  # one tuple of ascending axes per marginal
    impossible: Sequence[Impossible] = (),
) -> list[Table]:
    """Returns the marginals of exp(sum of potentials), each as a table that sums to 1."""
    for axes in wanted:
        num_cells = math.prod(shape[axis] for axis in axes)
        if num_cells > MAX_CELLS:
            raise InputError("marginal", magnitude(num_cells), "must have at most 2^28 cells")
    results = [
        np.full([shape[axis] for axis in axes], 1 / math.prod(shape[axis] for axis in axes))
        for axes in wanted
    ]
    joined = [axes for axes, _ in potentials] + [rule.axes for rule in impossible]
    for component in connected(joined):
        needed = {_meet(axes, component) for axes in wanted} - {()}
        if not needed:
            continue
        tables = [(axes, table) for axes, table in potentials if axes and axes[0] in component]
        tables += [
            (rule.axes, np.where(rule.mask(shape), -np.inf, 0.0))
            for rule in impossible
            if rule.axes[0] in component
        ]
        parts = _marginals_of(component, shape, tables, needed)
        for result, axes in zip(results, wanted, strict=True):
            inside = _meet(axes, component)
            if inside:
                # Replace the uniform distribution over these axes by the true one.
                part = parts[inside] * math.prod(shape[axis] for axis in inside)
                result *= _spread(part, inside, axes)
    return results


def connected(sets: Iterable[Axes]) -> list[Axes]:
    """Returns the components of axes that are connected by sets, as ascending axes."""
    components: list[set[int]] = []
    for axes in sets:
        if not axes:
            continue
        touched = [component for component in components if not component.isdisjoint(axes)]
        components = [component for component in components if component.isdisjoint(axes)]
        components.append(set(axes).union(*touched))
    return sorted(tuple(sorted(component)) for component in components)


def _marginals_of(
    axes: Axes, shape: Sequence[int], tables: Sequence[tuple[Axes, Table]], wanted: Iterable[Axes]
) -> Mapping[Axes, Table]:
    """Returns marginals of one component, over a dense table if it is small, else over a tree."""
    num_cells = math.prod(shape[axis] for axis in axes)
    if num_cells <= _DENSE_CELLS:
        return _dense_marginals(axes, shape, tables, wanted)
    place = {axis: number for number, axis in enumerate(axes)}
    sizes = [shape[axis] for axis in axes]
    sets = [tuple(place[axis] for axis in axes) for axes, _ in tables]
    tree_cells = num_clique_cells(sizes, sets)
    if min(num_cells, tree_cells) > MAX_CELLS:
        condition = (
            "must be at most 2^28, the cells of the junction tree of its measured tables,"
            " to be answered"
        )
        raise InputError("release", magnitude(tree_cells), condition)
    # Slabs need less memory, and a tree with a few large tables is not faster.
    if num_cells <= MAX_CELLS and num_cells <= _TREE_GAIN * tree_cells:
        return _dense_marginals(axes, shape, tables, wanted)
    tree = JunctionTree(sizes, sets)
    try:
        tree.calibrate([table for _, table in tables])
    except ValueError:
        raise _nothing_possible(axes) from None
    ordered = sorted(wanted)
    marginals = tree_marginals(tree, [tuple(place[axis] for axis in axes) for axes in ordered])
    return dict(zip(ordered, marginals, strict=True))


def _nothing_possible(axes: Axes) -> InputError:
    condition = "must leave a cell of the attributes that they join possible"
    return InputError("impossible", list(axes), condition)


def _dense_marginals(
    axes: Axes, shape: Sequence[int], tables: Sequence[tuple[Axes, Table]], wanted: Iterable[Axes]
) -> Mapping[Axes, Table]:
    """Returns marginals of one component, summed over slabs that fix the leading codes."""
    num_lead = 0
    while math.prod(shape[axis] for axis in axes[num_lead:]) > _SLAB_CELLS:
        num_lead += 1
    lead, rest = axes[:num_lead], axes[num_lead:]
    sizes = tuple(shape[axis] for axis in rest)
    sums = {scope: np.zeros([shape[axis] for axis in scope]) for scope in wanted}
    peak, total = -math.inf, 0.0
    for codes in np.ndindex(*(shape[axis] for axis in lead)):
        fixed = dict(zip(lead, codes, strict=True))
        parts: dict[Axes, Table] = {}
        for scope, table in tables:
            part = table[tuple(fixed.get(axis, slice(None)) for axis in scope)]
            parts[_meet(scope, rest)] = part + parts.get(_meet(scope, rest), 0.0)
        slab = np.array(sum_of_tables(parts, rest, sizes))
        highest = float(slab.max())
        if highest == -math.inf:
            continue
        if highest > peak:
            shrink = math.exp(peak - highest)
            peak, total = highest, total * shrink
            for table in sums.values():
                table *= shrink
        slab -= peak
        np.exp(slab, out=slab)
        total += float(slab.sum())
        reduced = marginal_tables(slab, rest, {_meet(scope, rest) for scope in sums})
        for scope, table in sums.items():
            place = tuple(fixed.get(axis, slice(None)) for axis in scope)
            table[place] += reduced[_meet(scope, rest)]
    if not total:
        raise _nothing_possible(axes)
    return {scope: table / total for scope, table in sums.items()}


def _meet(axes: Axes, others: Axes) -> Axes:
    return tuple(axis for axis in axes if axis in others)


def _spread(table: Table, axes: Axes, target: Axes) -> Table:
    """Returns the table with an added axis of length 1 for each missing target axis."""
    sizes = dict(zip(axes, table.shape, strict=True))
    return table.reshape([sizes.get(axis, 1) for axis in target])
