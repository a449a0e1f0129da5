"""Records that a fit releases, and public records that a fit may start from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.encoding.records import encode_records
from beam_dp.encoding.tables import Table
from beam_dp.errors import InputError
from beam_dp.models import maximum_entropy, residual_basis
from beam_dp.models.basis import Basis, Coefficients
from beam_dp.models.record_moves import Target, improve_records
from beam_dp.models.rounding import round_systematically, round_to_records
from beam_dp.models.tree_basis import TreeBasis
from beam_dp.models.tree_marginals import tree_records
from beam_dp.privacy.guarantee import RECORD
from beam_dp.releases.synthetic_database.records import distinct_records
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

if TYPE_CHECKING:
    import pyarrow as pa

Records = tuple[Sequence[NDArray[Any]], NDArray[np.int64]]

# More records than this are copies of so many candidates: moving each would take hours, and the
# rounding of so many disappears in any noise.
MAX_CANDIDATES = 2**20
# Each lowers the error less than the one before; after three answers no longer come closer to the
# truth: what is left to fit is noise.
_NUM_SWEEPS = 3


def array_release(
    basis: residual_basis.ResidualBasis,
    domain: Domain,
    log_weights: NDArray[np.float64],
    num_records: int,
    importance: NDArray[np.float64],
    max_error: float,
) -> Records:
    """Returns the distinct records rounded from a dense hypothesis, and their counts.

    ``log_weights``: the hypothesis, shape (num_coefficients,).
    ``importance``: of the coefficients, shape (num_coefficients,).
    ``max_error``: root of the weighted squared error, in records, that rounding may leave.
    """
    weights = basis.weights(log_weights)
    counts = round_to_records(basis, weights, num_records, importance, max_error)
    cells = np.flatnonzero(counts)
    return domain.codes(cells), counts[cells]


def tree_release(
    domain: Domain,
    basis: TreeBasis,
    log_weights: NDArray[np.float64],
    num_records: int,
    loose: Sequence[Target],
    pairs: Sequence[residual_basis.Support],
) -> Records:
    """Returns the distinct records of a hypothesis over a junction tree, and their counts.

    Records are made from the tree, and moved towards the tables that it joins and those that it
    does not. Whole records that fit all of them at once leave out much of the noise. So that
    pairs which no table holds do not go astray meanwhile, they are kept at what the tree says.

    ``log_weights``: the hypothesis, shape (num_coefficients,).
    ``loose``: tables that the tree does not join, in records.
    """
    joined = zip(basis.sets, basis.marginals(log_weights, basis.sets), strict=True)
    num_candidates = min(num_records, MAX_CANDIDATES)
    share = num_candidates / max(num_records, 1)
    targets = [Target(axes, table * num_candidates, 1.0) for axes, table in joined]
    targets += [Target(each.axes, each.table * share, each.weight) for each in loose]
    held = {pair for each in targets for pair in combinations(each.axes, 2)}
    others = [pair for pair in pairs if pair not in held]
    tables = zip(others, basis.marginals(log_weights, others), strict=True)
    targets += [Target(axes, table * num_candidates, 1.0) for axes, table in tables]
    impossible = [(each.axes, each.mask(domain.shape)) for each in domain.impossible]
    codes = tree_records(basis.tree, num_candidates)
    _leave_out_impossible(domain, codes)
    improve_records(domain.shape, codes, targets, 0.0, _NUM_SWEEPS, impossible)
    distinct, counts = distinct_records(domain, list(codes))
    if num_candidates < num_records:
        counts = round_systematically(counts.astype(np.float64), num_records)
        distinct = tuple(column[counts > 0] for column in distinct)
    return distinct, counts[counts > 0]


def _leave_out_impossible(domain: Domain, codes: NDArray[np.int32]) -> None:
    """Replaces impossible records by copies of others, in place.

    A tree gives them no weight, but its tables may round to nothing where they meet.
    """
    if not domain.impossible:
        return
    matches = np.logical_or.reduce([each.matches(list(codes)) for each in domain.impossible])
    wrong, right = np.flatnonzero(matches), np.flatnonzero(~matches)
    if len(wrong) and len(right):
        codes[:, wrong] = codes[:, np.resize(right, len(wrong))]


def loose_targets(
    basis: TreeBasis,
    log_weights: NDArray[np.float64],
    total: int,
    layout: Coefficients,
    observed: maximum_entropy.NoisyCoefficients,
    loose: Sequence[residual_basis.Support],
) -> list[Target]:
    """Returns what records should say of measured tables that the tree does not join.

    The hypothesis's own table is moved towards the noisy one: each cell as far as its difference is
    expected to exceed noise, if what all of them exceed it by is shared out by the squares of the
    counts; the whole way where it is further off than noise takes any cell.

    ``log_weights``: the hypothesis, shape (num_coefficients,).
    ``observed``: everything observed, in records.
    """
    targets = []
    for axes, weights in zip(loose, basis.marginals(log_weights, loose), strict=True):
        table = total * weights
        where = layout.slices[axes]
        difference = observed.values[where] - residual_basis.table_coefficients(table)
        of_all = float(observed.variances[where].sum())
        targets.append(Target(axes, table + _less_noise(table, difference, of_all), 1.0))
    return targets


def _less_noise(
    table: NDArray[np.float64], difference: NDArray[np.float64], noise: float
) -> NDArray[np.float64]:
    """Returns how far the cells of a table are believed to be from noisy ones.

    ``table``: of the hypothesis, in records.
    ``difference``: coefficients of the noisy table less its own, in records.
    """
    cells = residual_basis.coefficients_table(difference, table.shape)
    of_cell = noise / table.size
    beyond = max(float(difference @ difference) - noise, 0.0)
    squares = table * table
    prior = beyond * squares / max(float(squares.sum()), np.finfo(float).tiny)
    kept = prior / np.maximum(prior + of_cell, np.finfo(float).tiny)
    return np.where(beyond_noise(cells, of_cell), cells, kept * cells)


def beyond_noise(cells: NDArray[np.float64], variance: float) -> NDArray[np.bool_]:
    """Returns which cells are larger than noise alone would make the largest of them.

    Reference: Donoho and Johnstone (1994), the universal threshold.
    """
    return np.abs(cells) > math.sqrt(2 * math.log(cells.size) * variance)


def record_coefficients(
    layout: Coefficients, codes: Sequence[NDArray[Any]], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Returns the coefficients of released records, shape (num_coefficients,), in records."""
    result = np.empty(layout.num_coefficients)
    for support, where in layout.slices.items():
        shape = [layout.shape[axis] for axis in support]
        cells = np.zeros(len(counts), dtype=np.int64)
        for axis in support:
            cells = cells * layout.shape[axis] + codes[axis]
        table = np.bincount(cells, weights=counts, minlength=math.prod(shape))
        result[where] = residual_basis.table_coefficients(table.astype(np.float64).reshape(shape))
    return result


# Noisy tables correct a start: it need not be solved as well as the fit, in five times the time.
_COARSER = 30


@dataclass(frozen=True, eq=False)
class StartingRecords:
    """Records whose distribution a hypothesis starts from, and leaves as far as noisy tables say.

    ``source``: what the card calls them: the draw id of a release, or how many were public.
    ``codes``: distinct records, one array of shape (m,) an attribute.
    ``counts``: shape (m,), how many equal each.

    Privacy: they must be public, or an earlier release, whose own budget was spent then. Nothing
    that is measured or promised follows from them; they are read where noisy tables are fitted.
    """

    domain: Domain
    source: str
    codes: Sequence[NDArray[Any]]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, records: Any, domain: Domain) -> StartingRecords:
        """Returns the records of a release, or those of a public table that the domain holds."""
        if isinstance(records, SyntheticDatabase):
            records = cls(records.domain, records.draw_id, records.codes, records.counts)
        if isinstance(records, cls):
            condition = "must be of the same domain"
            domain.check_same(records.domain, "start_from", records.source, condition)
            return records
        try:
            table = Table(records)
        except InputError as error:
            raise InputError("start_from", error.value, error.condition) from None
        for attribute in domain:
            table.check_column("start_from", attribute.name, attribute)
        return cls.of_batches(table.batches(list(domain.names)), domain)

    @classmethod
    def of_batches(cls, batches: Iterable[pa.RecordBatch], domain: Domain) -> StartingRecords:
        """Returns public records that the domain holds."""
        encoded = (encode_records(domain, RECORD, False, batch) for batch in batches)
        columns = [*zip(*(each.code_columns(domain) for each in encoded), strict=True)]
        num_records = sum(map(len, columns[0])) if columns else 0
        if not num_records:
            condition = "must hold a record inside the domain"
            raise InputError("start_from", "public records", condition)
        codes, counts = distinct_records(domain, [np.concatenate(each) for each in columns])
        return cls(domain, f"{num_records} public records", codes, counts)

    def log_weights(
        self,
        basis: Basis,
        importance: NDArray[np.float64],
        signs: NDArray[np.float64],
        tolerance: float,
    ) -> NDArray[np.float64]:
        """Returns the hypothesis that fits these records alone, shape (num_coefficients,).

        They are a sample, of which the hypothesis keeps what is not by chance, as if each
        coefficient had the variance that it has among so many independent attributes.

        ``importance``: of the coefficients, shape (num_coefficients,).
        ``signs``: shape (num_coefficients,), independent fair signs.
        """
        total = int(self.counts.sum())
        values = record_coefficients(basis, self.codes, self.counts)
        for support, where in basis.slices.items():
            values[where] /= np.sqrt(basis.cells_summed(support))
        independent = np.zeros_like(values)  # uniform, then as these records are
        for _ in range(2):
            variances = total * maximum_entropy.independent_variances(basis, independent)
            sample = maximum_entropy.NoisyCoefficients(values, variances)
            independent = maximum_entropy.independent_log_weights(basis, sample, total)
        found = maximum_entropy.fit_maximum_entropy(
            basis, sample, total, importance, signs, tolerance=_COARSER * tolerance
        )
        return found.log_weights
