"""A log-linear distribution over a list of candidate records, in place of a whole domain.

A junction tree that joins many small tables may need a clique of all attributes. Then neither an
array of the domain nor a tree is affordable. But half a million records, drawn from a distribution
near the wanted one, can match almost any tables of two or three attributes if the records are
weighted suitably. Importance sampling decides how many cells of the domain a candidate represents,
so coefficients have the same meaning as over the whole domain, and can be fitted in the same way.

Everything here is a function of noisy tables, the declared domain and public numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.models.basis import (
    Support,
    carry_over,
    coefficients_table,
    supports_inside,
    table_coefficients,
)
from beam_dp.models.denoised_attributes import denoised
from beam_dp.models.elimination import Cascade, GrowingTree, axes_of, mask_of
from beam_dp.models.junction_tree import into_order, tree_records
from beam_dp.models.maximum_entropy import (
    NoisyCoefficients,
    fit_maximum_entropy,
    independent_log_weights,
)
from beam_dp.models.tree_basis import FactoredBasis, TreeBasis
from beam_dp.threads import in_parts

# The largest number of cells of a common table, which fits in the cache; several small tables can
# be summed from a common table.
_GROUP_CELLS = 2**15
# The largest number of cells of the tree from which candidates are drawn: fitting the tree should
# take much less time than fitting the candidates.
_TREE_CELLS = 2**13
_TREE_TOLERANCE = 1e-4
# The closer candidates are to the wanted distribution, the less their number limits the fit.
_INDEPENDENT_SHARE = 0.1
# A fit needs so few candidates to tell what the tables are without noise.
_FEW_CANDIDATES, _CANDIDATES_PER_COEFFICIENT = 2**17, 8


@dataclasses.dataclass(frozen=True)
class _Group:
    """Tables that are looked up together, as one table over all of their axes."""

    axes: Support
    shape: Support
    numbers: list[int]  # the positions of the tables in the ``sets`` of the basis
    tables: list[Support]  # the axes of each table, in the order of ``axes``
    cascade: Cascade
    cells: NDArray[np.int64]  # the cell of each candidate in the common table


class CandidateBasis(FactoredBasis):
    """Coefficients of distributions over candidate records.

    ``codes``: shape (number of attributes, number of candidates), int32; distinct.
    ``log_base``: shape (number of candidates,): the log of the number of cells per candidate.
    """

    def __init__(
        self,
        shape: Sequence[int],
        supports: Iterable[Support],
        codes: NDArray[np.int32],
        log_base: NDArray[np.float64],
    ) -> None:
        super().__init__(shape, supports)
        self.codes = codes
        self._log_base = log_base
        self._groups = [self._group(*group) for group in _groups(self.shape, self.sets)]

    def thinned(self, least: float) -> CandidateBasis:
        """Returns the basis of every n-th candidate, of ``least`` or more; or else this basis."""
        # Candidates are in the order of their codes, so these are spread over all of them.
        number = max(_FEW_CANDIDATES, _CANDIDATES_PER_COEFFICIENT * self.num_coefficients, least)
        every = int(self.codes.shape[1] / number)
        if every < 2:
            return self
        codes = np.ascontiguousarray(self.codes[:, ::every])
        return CandidateBasis(self.shape, self.supports, codes, self._log_base[::every])

    def _group(self, mask: int, numbers: list[int]) -> _Group:
        axes = tuple(sorted(axes_of(mask), key=lambda axis: (self.shape[axis], axis)))
        tables = [tuple(axis for axis in axes if axis in self.sets[number]) for number in numbers]
        cells = record_cells(self.shape, self.codes, axes)
        cascade = Cascade(axes, self.shape, tables)
        shape = tuple(self.shape[axis] for axis in axes)
        return _Group(axes, shape, numbers, tables, cascade, cells)

    def log_moments(
        self, log_weights: NDArray[np.float64], shift: float = 0.0
    ) -> tuple[float, NDArray[np.float64]]:
        """Returns the log of the sum of weights, and the coefficients of their distribution."""
        log_sum, weights = self._normalised(log_weights)
        return log_sum, self.analyse(weights)

    def weights(self, log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the weights of the candidates, which sum to 1."""
        return self._normalised(log_weights)[1]

    def marginals(
        self, log_weights: NDArray[np.float64], wanted: Iterable[Support]
    ) -> list[NDArray[np.float64]]:
        """Returns marginals of the distribution over any attributes; each marginal sums to 1."""
        weights = self.weights(log_weights)
        return [record_table(self.shape, self.codes, weights, axes) for axes in wanted]

    def synthesise(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the sum of coefficients at each candidate: the transpose of ``analyse``."""
        tables = self.tables(coefficients)
        looked_up = []
        for group in self._groups:
            table = np.empty(group.shape)
            parts = zip(group.numbers, group.tables, strict=True)
            group.cascade.add_up([into_order(tables[place], axes) for place, axes in parts], table)
            looked_up.append((table.ravel(), group.cells))
        result = np.zeros(self.codes.shape[1])

        def add_up(part: slice) -> None:
            for table, cells in looked_up:
                result[part] += table.take(cells[part])

        in_parts(add_up, len(result))
        return result

    def analyse(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the coefficients of the table that has these values at the candidates."""
        marginals = [np.empty(0)] * len(self.sets)
        others = np.flatnonzero(values)  # a change of records concerns few candidates
        few = others if len(others) < len(values) // 2 else slice(None)
        weights = values[few]

        def sum_down(part: slice) -> None:
            for group in self._groups[part]:
                sums: NDArray[Any] = np.bincount(group.cells[few], weights, math.prod(group.shape))
                summed = group.cascade.sum_down(sums.reshape(group.shape))
                for number, axes, table in zip(group.numbers, group.tables, summed, strict=True):
                    marginals[number] = table.transpose(
                        [axes.index(axis) for axis in self.sets[number]]
                    )

        in_parts(sum_down, len(self._groups))
        return self.coefficients(marginals)

    def _normalised(self, log_weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logs = self._log_base + self.synthesise(log_weights)
        largest = float(logs.max())
        weights = np.exp(logs - largest)
        total = float(weights.sum())
        weights /= total
        return largest + math.log(total), weights


def candidate_basis(
    domain: Domain,
    supports: Iterable[Support],
    observed: NoisyCoefficients,  # coefficients of each support's own marginal, in records
    total: float,
    importance: NDArray[np.float64],  # shape (num_coefficients,): weights of squared errors
    signs: NDArray[np.float64],  # shape (num_coefficients,), independent fair signs
    number: int,  # of records to draw; equal records become one candidate
) -> CandidateBasis:
    """Returns candidates for a fit to noisy tables.

    Most candidates come from a small junction tree of the most dependent pairs of attributes, and
    of all sets inside its cliques, fitted to the noisy tables. The others have independent
    attributes, to cover records that are too rare under the tree.
    """
    layout = FactoredBasis(domain.shape, supports)
    pairs = _strongest_pairs(domain, layout, observed, total)
    singles = [(axis,) for axis in range(domain.num_attributes)]
    impossible = [(rule.axes, rule.mask(domain.shape)) for rule in domain.impossible]
    tree = TreeBasis(domain.shape, [(), *singles, *pairs], impossible)
    cliques = (tuple(sorted(clique.axes)) for clique in tree.tree.cliques)
    inside = [axes for clique in cliques for axes in supports_inside(clique, layout.slices)]
    tree = TreeBasis(domain.shape, [(), *singles, *inside], impossible)
    means = denoised(domain, tree, observed.restricted(layout, tree), total)
    weights, fair = (carry_over(layout.slices, values, tree) for values in (importance, signs))
    fit = fit_maximum_entropy(tree, means, total, weights, fair, tolerance=_TREE_TOLERANCE)
    drawn = [fit.log_weights, independent_log_weights(tree, means, total)]
    shares = [1 - _INDEPENDENT_SHARE, _INDEPENDENT_SHARE]
    records = []
    for log_weights, share in zip(drawn, shares, strict=True):
        tree.calibrate(log_weights)
        records.append(tree_records(tree.tree, int(share * number)))
    codes, copies = _distinct(domain.shape, np.concatenate(records, axis=1))
    log_mixture = np.logaddexp(
        *(
            tree.log_probabilities(log_weights, codes) + math.log(share)
            for log_weights, share in zip(drawn, shares, strict=True)
        )
    )
    # If a table of the tree rounds to 0, a record may have probability 0.
    possible = np.isfinite(log_mixture)
    log_base = np.log(copies[possible] / copies.sum()) - log_mixture[possible]
    return CandidateBasis(
        domain.shape, layout.supports, np.ascontiguousarray(codes[:, possible]), log_base
    )


def _distinct(
    shape: Sequence[int], codes: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Returns the distinct records in ascending order, and the number of copies of each."""
    keys = _keys(shape, codes)
    order = np.lexsort(keys[::-1])
    codes = codes[:, order]
    is_first = np.append(True, np.logical_or.reduce([np.diff(key[order]) != 0 for key in keys]))
    starts = np.flatnonzero(is_first)
    return codes[:, starts], np.diff(starts, append=codes.shape[1])


def _keys(shape: Sequence[int], codes: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """Returns sort keys for records: as few arrays of integers as possible, in order of codes."""
    keys: list[NDArray[np.int64]] = []
    axes: list[int] = []
    for axis in range(len(shape)):
        if math.prod(shape[place] for place in [*axes, axis]) >= 2**62:
            keys.append(record_cells(shape, codes, tuple(axes)))
            axes = []
        axes.append(axis)
    return [*keys, record_cells(shape, codes, tuple(axes))]


def _strongest_pairs(
    domain: Domain, layout: FactoredBasis, observed: NoisyCoefficients, total: float
) -> list[Support]:
    """Returns the pairs with the most mutual information that fit a small tree."""
    shares = {}
    for axis, size in enumerate(domain.shape):
        where = layout.slices.get((axis,))
        table = np.full(size, total / size)
        if where is not None and np.isfinite(observed.variances[where]).all():
            table += coefficients_table(observed.values[where], (size,))
        positive = np.maximum(table, np.finfo(float).tiny)
        shares[axis] = positive / positive.sum()
    information: dict[Support, float] = {}
    for pair in {support for support in layout.supports if len(support) == 2}:
        where = layout.slices[pair]
        if where.start == where.stop or not np.isfinite(observed.variances[where]).all():
            continue
        independent = total * np.outer(*(shares[axis] for axis in pair))
        difference = observed.values[where] - table_coefficients(independent)
        noise = float(observed.variances[where].sum())
        table = np.maximum(independent + less_noise(independent, difference, noise), 0.0)
        information[pair] = _mutual_information(table)
    joined = GrowingTree(domain.shape, (rule.axes for rule in domain.impossible), _TREE_CELLS)
    ranked = sorted(information, key=lambda pair: (-information[pair], pair))
    return [pair for pair in ranked if joined.join(pair)]


def _mutual_information(table: NDArray[np.float64]) -> float:
    """Returns the mutual information of the two attributes of a table >= 0, in nats."""
    from scipy.special import entr  # loads slowly

    number = float(table.sum())
    if not number > 0:
        return 0.0
    shares = table / number
    separate = entr(shares.sum(axis=1)).sum() + entr(shares.sum(axis=0)).sum()
    return float(separate - entr(shares).sum())


def _groups(shape: Sequence[int], sets: Sequence[Support]) -> list[tuple[int, list[int]]]:
    """Returns groups of axes, as masks, each with the numbers of the sets that it contains.

    Greedy: repeatedly adds the axis that completes the most sets for its size, as long as the group
    has at most ``_GROUP_CELLS`` cells.
    """

    def num_cells(mask: int) -> int:
        return math.prod(shape[axis] for axis in axes_of(mask))

    left = {number: mask_of(axes) for number, axes in enumerate(sets)}
    groups = []
    while left:
        group = max(left.values(), key=lambda mask: (num_cells(mask), mask))
        while wider := _widened(shape, group, left):
            group = wider
        inside = [number for number, mask in left.items() if mask & ~group == 0]
        for number in inside:
            del left[number]
        groups.append((group, inside))
    return groups


def _widened(shape: Sequence[int], group: int, left: Mapping[int, int]) -> int:
    """Returns the group with one more axis, or 0 if no axis fits."""
    best, gained = 0, 0.0
    cells = math.prod(shape[axis] for axis in axes_of(group))
    for axis, size in enumerate(shape):
        wider = group | 1 << axis
        if wider == group or cells * size > _GROUP_CELLS:
            continue
        masks = [mask for mask in left.values() if mask >> axis & 1]
        completed = sum(mask & ~wider == 0 for mask in masks)
        gain = (completed + 1e-3 * len(masks)) / math.log(max(size, 2))
        if gain > gained:
            best, gained = wider, gain
    return best


def record_cells(
    shape: Sequence[int], codes: Sequence[NDArray[np.int32]] | NDArray[np.int32], axes: Support
) -> NDArray[np.int64]:
    """Returns the cell number of each record in a table over the axes, in the given order."""
    cells = np.zeros(len(codes[0]), dtype=np.int64)
    for axis in axes:
        cells *= shape[axis]
        cells += codes[axis]
    return cells


def record_table(
    shape: Sequence[int],
    codes: Sequence[NDArray[np.int32]] | NDArray[np.int32],
    weights: NDArray[np.float64] | NDArray[np.int64],
    axes: Support,
) -> NDArray[np.float64]:
    """Returns the table of weighted records over some axes."""
    sizes = [shape[axis] for axis in axes]
    cells = record_cells(shape, codes, axes)
    table: NDArray[Any] = np.bincount(cells, weights, math.prod(sizes))
    return table.reshape(sizes)


def less_noise(
    table: NDArray[np.float64], difference: NDArray[np.float64], noise: float
) -> NDArray[np.float64]:
    """Returns the distances to move the cells of a table towards noisy cells, in records.

    Each cell moves by the part of its difference that is not expected to be noise, assuming that
    the total excess over noise is distributed in proportion to the squares of the counts. If noise
    cannot explain the difference of a cell, the cell moves by its whole difference.
    """
    cells = coefficients_table(difference, table.shape)
    of_cell = noise / table.size
    beyond = max(float(difference @ difference) - noise, 0.0)
    squares = table * table
    prior = beyond * squares / max(float(squares.sum()), np.finfo(float).tiny)
    kept = prior / np.maximum(prior + of_cell, np.finfo(float).tiny)
    return np.where(beyond_noise(cells, of_cell), cells, kept * cells)


def beyond_noise(cells: NDArray[np.float64], variance: float) -> NDArray[np.bool_]:
    """Returns a mask of the cells that are larger than any cell that noise alone would produce."""
    # Reference: Donoho and Johnstone (1994), the universal threshold.
    return np.abs(cells) > math.sqrt(2 * math.log(cells.size) * variance)
