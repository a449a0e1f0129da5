"""Public records, or those of an earlier release, that a hypothesis may start from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.encoding.records import encode_records
from beam_dp.encoding.tables import Table
from beam_dp.errors import InputError
from beam_dp.mechanisms.marginals.released_records import record_coefficients
from beam_dp.models.basis import Basis
from beam_dp.models.maximum_entropy import (
    NoisyCoefficients,
    fit_maximum_entropy,
    independent_log_weights,
    independent_variances,
)
from beam_dp.privacy.guarantee import RECORD
from beam_dp.releases.synthetic_database.records import distinct_records
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

if TYPE_CHECKING:
    import pyarrow as pa

# Noisy tables correct a start: it need not be solved as well as the fit, in five times the time.
_COARSER = 30


@dataclass(frozen=True, eq=False)
class StartingRecords:
    """Records whose distribution a hypothesis starts from, and leaves as far as noisy tables say.

    Privacy: they must be public, or an earlier release, whose own budget was spent then. Nothing
    that is measured or promised follows from them; they are read where noisy tables are fitted.

    Args:
        domain: the universe.
        source: what the card calls them: the draw id of a release, or how many were public.
        codes: distinct records, one array of shape (m,) an attribute.
        counts: shape (m,), how many equal each.
    """

    domain: Domain
    source: str
    codes: Sequence[NDArray[Any]]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, records: Any, domain: Domain) -> StartingRecords:
        """Returns the records of a release, or those of a public table that the domain holds.

        Args:
            records: a ``SyntheticDatabase``, a table as ``beam_dp.release`` takes, or such records.
            domain: of the release that starts from them.

        Raises:
            InputError: if they are of another domain, or the table lacks a column or has no record
                inside the domain.
        """
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
        """Returns public records that the domain holds.

        Args:
            batches: with a column for each attribute.
            domain: of the release that starts from them.

        Raises:
            InputError: if none is inside the domain.
        """
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

        Args:
            basis: of the log-weights.
            importance: of the coefficients, shape (num_coefficients,).
            signs: shape (num_coefficients,), independent fair signs.
            tolerance: nats a coefficient within which steps of the fit to noisy tables are solved.
        """
        total = int(self.counts.sum())
        values = record_coefficients(basis, self.codes, self.counts)
        for support, where in basis.slices.items():
            values[where] /= np.sqrt(basis.cells_summed(support))
        independent = np.zeros_like(values)  # uniform, then as these records are
        for _ in range(2):
            variances = total * independent_variances(basis, independent)
            sample = NoisyCoefficients(values, variances)
            independent = independent_log_weights(basis, sample, total)
        found = fit_maximum_entropy(
            basis, sample, total, importance, signs, tolerance=_COARSER * tolerance
        )
        return found.log_weights
