"""Synthetic databases: released records, and the distribution that they come from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Value
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.installed import check_arrow
from beam_dp.noise.bound import noise_variance
from beam_dp.queries.linear import LinearQuery, LiteralQuery
from beam_dp.queries.vector_query import VectorQuery
from beam_dp.queries.workload import Workload
from beam_dp.releases.error_bars import Estimate, MarginalAnswer
from beam_dp.releases.left_out import LeftOut
from beam_dp.releases.release import Release, library_versions, plain_json
from beam_dp.releases.synthetic_database.arrow import arrow_table
from beam_dp.releases.synthetic_database.estimates import Estimates
from beam_dp.releases.synthetic_database.measured_tables import NoisyMeasurements
from beam_dp.releases.synthetic_database.proved_bounds import ProvedBounds
from beam_dp.releases.synthetic_database.questions import Question
from beam_dp.releases.synthetic_database.records import (
    FittedTables,
    RowBlock,
    check_records_format,
    checked_codes,
    checked_values,
    row_blocks,
)

if TYPE_CHECKING:
    import pyarrow as pa

Names = tuple[str, ...]

# What ``SmallDB`` calls it among its noise.
NUM_RECORDS = "number of records"
_ERROR_FIELDS = ("standard_error", "bound", "failure_probability")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SyntheticDatabase(Release):
    """A release: everything here is public, and may be copied and queried at no further cost.

    Args:
        domain: the universe, indexed.
        workload: the marginals that it was made for.
        guarantee: what was promised to the people in the data.
        mechanism: name of the mechanism that made it.
        num_records: number of released records; public, or a noisy count that was paid for.
        num_records_is_public: which of the two it is.
        num_represented: number of records that the released ones represent, if those are fewer:
            answers are scaled to it. By default the number of released records.
        queries: linear queries that it was made for, where these are not all cells of marginals.
        query_error: of every answer to these: bound, failure_probability.
        codes: the distinct released records, in ascending lexicographic order: one array of shape
            (m,) an attribute, kept in the smallest unsigned type that holds its codes.
        counts: shape (m,), int64, how many records equal each, >= 1; sums to ``num_records``.
        bin_values: of each attribute with bins the released value of each record, shape
            (num_records,), in the order of ``codes``, and of equal records in that of ``rows``:
            int64 where values are whole numbers or times, else float64, and 0 where the record is
            in no bin. Empty where the middle of a bin stands for all of it.
        potentials: attribute names in domain order with a table of logarithms, float64, finite,
            one axis an attribute. The hypothesis weighs possible cells by exp of their sum.
        record_tables: attribute sets whose noisy tables the records were fitted to and the
            hypothesis was not. The records answer for them and for what holds them.
        draw_id: names this one draw of noise; 32 hexadecimal digits.
        noise: what was added to which tables, as the card states it.
        errors: for marginals of the workload, and those inside them: standard_error, bound,
            failure_probability.
        plan: the mechanism's public parameters.
        fit: how well the hypothesis fits the noisy measurements.
        versions: of the libraries that made it.
        left_out: noisy counts of the records outside the domain, where they were paid for.
        measurements: the noisy tables that it was made from, which ``noise`` describes; None where
            it was not made from tables, or by a version that did not keep them.
        records_format: of the file of records, one of ``RECORDS_FORMATS``.

    Raises:
        InputError: if a field is not as described.
    """

    KIND: ClassVar[str] = "synthetic_database"

    domain: Domain
    workload: Workload
    mechanism: str
    num_records: int
    num_records_is_public: bool
    codes: Sequence[NDArray[Any]]
    counts: NDArray[np.int64]
    potentials: Sequence[tuple[Names, NDArray[np.float64]]]
    bin_values: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    record_tables: Sequence[Names] = ()
    num_represented: int | None = None
    queries: Sequence[LinearQuery] = ()
    query_error: Mapping[str, float | None] = field(default_factory=dict)
    noise: Sequence[Mapping[str, Any]] = ()
    errors: Mapping[Names, Mapping[str, float | None]] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=library_versions)
    left_out: LeftOut | None = None
    measurements: NoisyMeasurements | None = None
    records_format: str = "avro"

    def __post_init__(self) -> None:
        if not isinstance(self.draw_id, str) or not re.fullmatch("[0-9a-f]{32}", self.draw_id):
            raise InputError("draw_id", self.draw_id, "must be 32 hexadecimal digits")
        if not self.domain.attributes:
            raise InputError("domain", self.domain.num_cells, "must have attributes")
        self._check_domain(self.workload)
        object.__setattr__(self, "num_records", int(self.num_records))
        check_records_format(self.domain, self.records_format)
        self._check_records()
        object.__setattr__(self, "potentials", tuple(map(self._potential, self.potentials)))
        record_tables = tuple(self._ordered(tuple(names)) for names in self.record_tables)
        object.__setattr__(self, "record_tables", record_tables)
        errors = {self._ordered(names): _error(entry) for names, entry in self.errors.items()}
        object.__setattr__(self, "errors", errors)
        for query in self.queries:
            if query.shape != self.domain.shape:
                condition = f"must be over a domain of shape {self.domain.shape}"
                raise InputError("queries", query.shape, condition)
        object.__setattr__(self, "queries", tuple(self.queries))
        object.__setattr__(self, "query_error", _error(self.query_error))
        object.__setattr__(self, "noise", plain_json(list(self.noise)))
        for name in ("plan", "fit", "versions"):
            object.__setattr__(self, name, plain_json(dict(getattr(self, name))))
        if self.left_out is not None:
            self.left_out.check(self.domain)
        if self.measurements is not None:
            self.measurements.check(self.domain)

    def __repr__(self) -> str:
        return (
            f"SyntheticDatabase(mechanism={self.mechanism!r}, num_records={self.num_records},"
            f" attributes={list(self.domain.names)}, draw_id={self.draw_id!r})"
        )

    @cached_property
    def card(self) -> dict[str, Any]:
        """The content of the card, as JSON values."""
        number = "public" if self.num_records_is_public else "noisy"
        measured = self.measurements
        small: dict[str, Any] = {}
        if self.num_represented is not None:
            small["num_represented"] = self.num_represented
        if self.queries:
            small["queries"] = [query.to_json() for query in self.queries]
            small["query_error"] = dict(self.query_error)
        if self.bin_values:
            small["within_bins"] = self.within_bins
        if self.records_format != "avro":
            small["records_format"] = self.records_format
        return {
            "mechanism": self.mechanism,
            "guarantee": self.guarantee.to_json(),
            "num_records": {number: self.num_records},
            "domain": self.domain.to_json(),
            "workload": self.workload.to_json(),
            "parameters": dict(self.plan),
            "noise": list(self.noise),
            **({} if measured is None else {"measurements": measured.stated()}),
            "errors": [{"marginal": list(names), **e} for names, e in self.errors.items()],
            "fit": dict(self.fit),
            "record_tables": [list(names) for names in self.record_tables],
            **small,
            **({} if self.left_out is None else {"left_out": self.left_out.to_json()}),
            "versions": dict(self.versions),
        }

    @property
    def records_domain(self) -> Domain:
        """The domain."""
        return self.domain

    def answer(self, workload: Workload) -> list[MarginalAnswer]:
        """Returns the marginals of a workload, from the hypothesis or the records.

        A marginal whose cells each have an error bar is ``query().group_by("age", "sex").count()``.

        Args:
            workload: any marginals of the release's domain, also ones it was not made for.

        Returns:
            One answer a marginal, in workload order. The errors are those that the release states
            for this marginal; None for one that it was not made for.

        Raises:
            InputError: if it is of another domain, or needs more than 2^28 cells at once.
        """
        self._check_domain(workload)
        tables = self.fitted.marginals(workload)
        return [
            MarginalAnswer(names, tables[names], **self.errors.get(names, {})) for names in workload
        ]

    def answer_queries(self, queries: Iterable[LinearQuery]) -> list[Estimate]:
        """Returns answers to linear queries of the release's domain, in records.

        Args:
            queries: any. Each gets the better of two answers, from the noisy tables or from what
                was fitted to them, with its error: see ``estimates``. Those that the release was
                made for get the bound that it states.

        Raises:
            InputError: if a query is of another domain, or concerns more than 2^28 cells.

        Cost: the tables of all sets of attributes that are asked about; about 100 microseconds a
            query.
        """
        asked = list(queries)
        for query in asked:
            if query.shape != self.domain.shape:
                condition = f"must be over a domain of shape {self.domain.shape}"
                raise InputError("queries", query.shape, condition)
        own, stated = frozenset(self.queries), self.query_error
        vectors = [
            VectorQuery.of_literals(each) for each in asked if isinstance(each, LiteralQuery)
        ]
        estimates = iter(self.bounded.of(vectors, len(asked)))
        found = []
        for query in asked:
            if isinstance(query, LiteralQuery):
                answer = next(estimates)
            else:
                answer = Estimate(self._explicit(query), reason="its values are listed by cell")
            if query in own:
                bound, probability = stated.get("bound"), stated.get("failure_probability")
                answer = replace(answer, bound=bound, failure_probability=probability)
            found.append(answer)
        return found

    def query(self, condition: str | None = None) -> Question:
        """Returns the records for which a condition holds, to be counted, grouped and averaged.

        Args:
            condition: such as ``"sex == 'female' and age < 40"``: see ``read_condition``; by
                default all records.

        Raises:
            InputError: naming ``where``, if the condition is invalid.

        Example:
            >>> release.query("age < 40").group_by("sex").count().to_pandas()  # doctest: +SKIP
        """
        everybody = Question(self.bounded, {})
        return everybody if condition is None else everybody.where(condition)

    @cached_property
    def fitted(self) -> FittedTables:
        """Marginals of the hypothesis or the records."""
        records = self.codes, self.counts, self.represented
        return FittedTables(self.domain, self.potentials, self.record_tables, *records)

    @cached_property
    def estimates(self) -> Estimates:
        """Answers to weighted sums, with their errors."""
        public = self.num_records if self.num_records_is_public else None
        return Estimates(self.fitted, self.measurements, public)

    @cached_property
    def bounded(self) -> ProvedBounds:
        """The same answers with proved bounds."""
        return ProvedBounds(self.estimates)

    def _explicit(self, query: LinearQuery) -> float:
        """A query by its value at every cell, from the hypothesis."""
        (marginal,) = self.answer(Workload(self.domain, (self.domain.names,)))
        return query.mean(marginal.values.ravel() / self.represented) * self.represented

    @property
    def within_bins(self) -> str:
        """``"uniform"`` where values were drawn within bins, else ``"midpoint"``."""
        return "uniform" if self.bin_values else "midpoint"

    @property
    def represented(self) -> int:
        """Number of records that the released ones represent."""
        return self.num_records if self.num_represented is None else self.num_represented

    def noisy_number(self) -> tuple[float, float] | None:
        """See ``Release``; the number of represented records, if those are more."""
        if self.num_represented is not None:
            # Chosen records represent a number that had noise of its own, or was public.
            scales = [each["scale"] for each in self.noise if each.get("what") == NUM_RECORDS]
            error = math.sqrt(noise_variance("discrete_laplace", scales[0])) if scales else None
        elif self.num_records_is_public:
            error = None
        else:
            error = self.errors.get((), {}).get("standard_error")
        return None if error is None else (self.represented, error)

    def record_marginal(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Returns a marginal of the released records: one axis a name, in the order given.

        Args:
            names: attributes, each once.

        Returns:
            int64, records.

        Raises:
            InputError: if a name is unknown or given twice, or the marginal has more than 2^28
                cells.

        Cost: about 20 ns a distinct record.
        """
        return self.fitted.record_marginal(names)

    def rows(self) -> Iterator[RowBlock]:
        """Yields the released records in their order, block by block, as codes.

        The order is random and belongs to the draw: see ``records.py``.
        """
        return row_blocks(self.counts, self.draw_id, self.bin_values)

    def records(self, batch_size: int = 65_536) -> Iterator[dict[str, list[Value]]]:
        """Yields the released records in their order, as columns of values by attribute name.

        Args:
            batch_size: records in each batch but the last, >= 1.
        """
        waiting: list[list[NDArray[Any]]] = []
        for block in self.rows():
            waiting.append([block.records, *block.values.values()])
            joined = [np.concatenate(each) for each in zip(*waiting, strict=True)]
            whole = len(joined[0]) // batch_size * batch_size
            for start in range(0, whole, batch_size):
                yield self._batch([each[start : start + batch_size] for each in joined])
            waiting = [[each[whole:] for each in joined]]
        if waiting and len(waiting[0][0]):
            yield self._batch(waiting[0])

    def _batch(self, rows: Sequence[NDArray[Any]]) -> dict[str, list[Value]]:
        """Columns of values, given of each row the place of its record, and the drawn values."""
        drawn = dict(zip(self.bin_values, rows[1:], strict=True))
        batch = {}
        for attribute, column in zip(self.domain, self.codes, strict=True):
            codes = column[rows[0]]
            values = attribute.decode(codes)
            if isinstance(attribute, BinnedAttribute) and drawn:
                numbers = drawn[attribute.name].tolist()
                for place in np.flatnonzero(codes < attribute.num_levels).tolist():
                    values[place] = attribute.released(numbers[place])
            batch[attribute.name] = values
        return batch

    def arrow_tables(self) -> Iterator[pa.Table]:
        """Yields ``to_arrow`` block by block."""
        for block in self.rows():
            codes = [column[block.records] for column in self.codes]
            yield arrow_table(self.domain, codes, block.values)

    def to_arrow(self) -> pa.Table:
        """Returns the released records in their order, one column an attribute.

        Values are of the attribute's own type, and null is null. Where they are of several types,
        as numbers beside ``"other"`` are, all of them are texts.
        """
        check_arrow()
        import pyarrow as pa

        return pa.concat_tables(self.arrow_tables())

    def to_pandas(self) -> Any:
        """Returns the released records as a pandas frame: ``to_arrow``, as pyarrow converts it.

        Raises:
            ModuleNotFoundError: if pandas is not installed.
        """
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hands the released records to any library that reads Arrow's C stream.

        Example:
            >>> polars.DataFrame(release)  # doctest: +SKIP
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _check_domain(self, workload: Workload) -> None:
        condition = "must be of the release's domain"
        self.domain.check_same(workload.domain, "workload", len(workload), condition)

    def _check_records(self) -> None:
        counts = np.asarray(self.counts)
        if counts.ndim != 1 or counts.dtype.kind not in "iu":
            raise InputError("counts", counts.shape, "must be a vector of integers")
        counts = counts.astype(np.int64)
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "codes", checked_codes(self.domain, self.codes, len(counts)))
        if not (counts >= 1).all() or int(counts.sum()) != self.num_records:
            condition = f"must be >= 1 each and sum to num_records, {self.num_records}"
            raise InputError("counts", int(counts.sum()), condition)
        values = checked_values(self.domain, tuple(self.codes), counts, self.bin_values)
        object.__setattr__(self, "bin_values", values)

    def _potential(
        self, potential: tuple[Names, NDArray[np.float64]]
    ) -> tuple[Names, NDArray[np.float64]]:
        names, table = self._ordered(potential[0]), np.array(potential[1], np.float64)
        shape = self.domain.restrict(names).shape
        if table.shape != shape:
            raise InputError("potentials", table.shape, f"must have the shape {shape} of {names}")
        if not np.isfinite(table).all():
            raise InputError("potentials", names, "must be finite")
        return names, table

    def _ordered(self, names: Names) -> Names:
        axes = self.domain.axes(names)
        if list(axes) != sorted(set(axes)):
            raise InputError("attributes", names, "must be distinct and in domain order")
        return tuple(names)


def _error(entry: Mapping[str, float | None]) -> dict[str, float | None]:
    unknown = set(entry) - set(_ERROR_FIELDS)
    if unknown:
        raise InputError("errors", sorted(unknown), f"must be among {', '.join(_ERROR_FIELDS)}")
    return {name: plain_json(entry.get(name)) for name in _ERROR_FIELDS}
