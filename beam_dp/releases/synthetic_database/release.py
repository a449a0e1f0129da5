"""Synthetic databases: released records, and the distribution that the records come from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, check_id, checked_integer
from beam_dp.domain.attributes import Value
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError
from beam_dp.installed import check_installed
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import noise_variance
from beam_dp.queries.dense_tables import VectorQuery
from beam_dp.queries.linear import LinearQuery, LiteralQuery
from beam_dp.queries.workload import Workload
from beam_dp.releases.earlier_stage import PaidTogether, hidden_units, may_be_cut, not_described
from beam_dp.releases.error_bars import Estimate, MarginalAnswer
from beam_dp.releases.release import LeftOut, Release, library_versions, plain_json
from beam_dp.releases.synthetic_database.bin_sums import BinMeans, BinSums
from beam_dp.releases.synthetic_database.estimates import Estimates
from beam_dp.releases.synthetic_database.measured_tables import NoisyMeasurements
from beam_dp.releases.synthetic_database.proved_bounds import ProvedBounds
from beam_dp.releases.synthetic_database.questions import Question
from beam_dp.releases.synthetic_database.records import (
    FittedTables,
    arrow_table,
    check_records_format,
    checked_records,
    value_columns,
)
from beam_dp.releases.synthetic_database.shards import (
    WITHIN_BINS,
    DrawnColumn,
    Positions,
    RecordShard,
    RowBlock,
    bin_positions,
    drawn_columns,
    moved_positions,
    num_shards,
    parts_of,
    row_blocks,
)

if TYPE_CHECKING:
    import pyarrow as pa


# The name of the record count in the noise of ``SmallDB``.
NUM_RECORDS = "number of records"
# What ``dir`` lists; other fields and methods are for files, reports and verification.
_FOR_USERS = (
    "answer answer_queries card domain guarantee head not_described num_records query records rows"
    " sample summary to_arrow to_pandas to_polars workload"
)
_ERROR_FIELDS = ("standard_error", "bound", "failure_probability")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SyntheticDatabase(PaidTogether, Release):
    """A public release of synthetic records, to be copied and queried at no further privacy cost.

    Args:
        domain: the domain of the records.
        workload: the marginals that the release was made for.
        guarantee: the privacy guarantee for the people in the data.
        mechanism: the name of the mechanism that made the release.
        num_records: the number of released records; the number of records in the data, public or a
            paid noisy count, unless ``num_represented`` is given.
        num_records_is_public: True if the number of records in the data is public, False if noisy.
        num_represented: the number of records that answers are scaled to, if another number of
            records is released. By default, the number of released records.
        queries: the linear queries that the release was made for, if not for all cells of
            marginals.
        query_error: the ``bound`` on the errors of these queries, and its ``failure_probability``.
        codes: the distinct released records, in ascending lexicographic order: one array of shape
            (m,) per attribute, in the smallest unsigned type for the attribute's codes.
        counts: the number of rows equal to each distinct record, shape (m,), int64, >= 1; the sum
            is ``num_records``.
        within_bins: the released value of a bin: ``"density"`` for values that are drawn more
            densely towards fuller bins (see ``bin_positions``), ``"uniform"`` for uniform ones,
            ``"midpoint"`` for the middle.
        potentials: pairs (names, table): attribute names in domain order, and a table of finite
            logarithms, float64, one axis per attribute. The hypothesis, which is the fitted
            distribution, gives a possible cell the weight exp(sum of the tables' values).
        record_tables: attribute sets whose noisy tables were fitted by the records, not by the
            hypothesis. Queries on these sets, or on supersets, are answered from the records.
        draw_id: the id of this draw of noise; 32 hexadecimal digits.
        noise: the noise of each measured table, as stated on the card.
        errors: the standard_error, bound and failure_probability for the marginals of the workload
            and for marginals inside these.
        plan: the public parameters of the mechanism.
        fit: statements about how well the hypothesis fits the noisy measurements.
        versions: the versions of the libraries that made the release.
        left_out: noisy counts of the records outside the domain, if the budget covers these counts.
        discovered: the release of the domain, if one guarantee covers both releases.
        records_per_unit: the choice of the records per unit, if the guarantee covers it, too.
        measurements: the noisy tables that ``noise`` describes; None if the release was not made
            from tables, or was made by a version that did not keep tables.
        records_format: the format of the file of records, one of ``RECORDS_FORMATS``.
        bin_sums: noisy sums of where numbers lie within their bins, if they were measured.

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
    within_bins: str = "midpoint"
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
    bin_sums: BinSums | None = None

    def __post_init__(self) -> None:
        check_id("draw_id", self.draw_id)
        if not self.domain.attributes:
            raise InputError("domain", self.domain.num_cells, "must have attributes")
        self._check_domain(self.workload)
        check_records_format(self.domain, self.records_format)
        check_choice("within_bins", self.within_bins, WITHIN_BINS)
        number = int(self.num_records)
        records = checked_records(self.domain, self.codes, self.counts, number)
        for query in self.queries:
            if query.shape != self.domain.shape:
                condition = f"must be over a domain of shape {self.domain.shape}"
                raise InputError("queries", query.shape, condition)
        checked = {
            "num_records": number,
            "codes": records.codes,
            "counts": records.counts,
            "potentials": tuple(map(self._potential, self.potentials)),
            "record_tables": tuple(self._ordered(tuple(names)) for names in self.record_tables),
            "errors": {self._ordered(names): _error(error) for names, error in self.errors.items()},
            "queries": tuple(self.queries),
            "query_error": _error(self.query_error),
            "noise": plain_json(list(self.noise)),
            "plan": plain_json(dict(self.plan)),
            "fit": plain_json(dict(self.fit)),
            "versions": plain_json(dict(self.versions)),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
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
        if self.drawn:
            small["within_bins"] = self.within_bins
        if self.not_described:
            small["not_described"] = self.not_described
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
            **({} if self.bin_sums is None else {"bin_sums": self.bin_sums.to_json()}),
            **({} if self.left_out is None else {"left_out": self.left_out.to_json()}),
            **self.earlier_json(),
            "versions": dict(self.versions),
        }

    @cached_property
    def other_shares(self) -> dict[str, float]:
        """The share of the released rows in ``other``, by attribute."""
        return {
            attribute.name: int(self.counts[codes == attribute.other_code].sum())
            / max(self.num_records, 1)
            for attribute, codes in zip(self.domain, self.codes, strict=True)
            if attribute.other_code is not None
        }

    @cached_property
    def hidden_units(self) -> dict[str, float]:
        """About how many units each end of a column with found bins cuts off, by name."""
        noise = () if self.discovered is None else self.discovered.noise
        return {step["measured"]: hidden_units(step) for step in noise if "levels" in step}

    @cached_property
    def not_described(self) -> dict[str, str]:
        """The columns of which the records say little, with the reason, by name."""
        hidden = self.hidden_units
        max_records = self.limited_guarantee.max_records_per_unit
        cut: list[str] = []
        for name, attribute in zip(self.domain.names, self.domain, strict=True):
            if isinstance(attribute, BinnedAttribute) and name in hidden:
                counts = self.record_marginal((name,))[: attribute.num_levels] * self.fitted.scale
                if may_be_cut(attribute, counts, hidden[name], max_records):
                    cut.append(name)
        return not_described(self.domain, self.other_shares, cut)

    @property
    def limited_guarantee(self) -> Guarantee:
        """The guarantee without the choice of the records per unit, with the chosen number."""
        chosen = self.records_per_unit
        return self.guarantee if chosen is None else chosen.main

    @property
    def records_domain(self) -> Domain:
        """The domain."""
        return self.domain

    def answer(self, workload: Workload) -> list[MarginalAnswer]:
        """Returns the marginals of a workload, from the hypothesis or the records.

        For error bars of single cells, use ``query().group_by("age", "sex").count()``.

        Args:
            workload: any marginals of the release's domain.

        Returns:
            One answer per marginal, in workload order, with the error that the release states for
            the marginal; None if the release was not made for the marginal.

        Raises:
            InputError: if the domain differs, or if more than 2^28 cells are needed together.
        """
        self._check_domain(workload)
        tables = self.fitted.marginals(workload)
        return [
            MarginalAnswer(names, tables[names], **self.errors.get(names, {})) for names in workload
        ]

    def answer_queries(self, queries: Iterable[LinearQuery]) -> list[Estimate]:
        """Returns answers to linear queries about the release's domain, in records.

        Args:
            queries: any queries. An answer comes from the noisy tables or from the fitted
                distribution, whichever is better, with its error: see ``estimates``. Queries that
                the release was made for get the stated bound.

        Raises:
            InputError: if a query has another domain, or concerns more than 2^28 cells.

        Cost: the tables of all queried sets of attributes; about 100 microseconds per query.
        """
        asked = list(queries)
        for query in asked:
            if query.shape != self.domain.shape:
                condition = f"must be over a domain of shape {self.domain.shape}"
                raise InputError("queries", query.shape, condition)
        promised, error = frozenset(self.queries), self.query_error
        vectors = [
            VectorQuery.of_literals(query) for query in asked if isinstance(query, LiteralQuery)
        ]
        estimates = iter(self.bounded.of(vectors, len(asked)))
        answers = []
        for query in asked:
            if isinstance(query, LiteralQuery):
                answer = next(estimates)
            else:
                answer = Estimate(self._explicit(query), reason="its values are listed by cell")
            if query in promised:
                bound, probability = error.get("bound"), error.get("failure_probability")
                answer = replace(answer, bound=bound, failure_probability=probability)
            answers.append(answer)
        return answers

    def query(self, condition: str | None = None) -> Question:
        """Returns a question about the records that satisfy a condition: counts, means, groups.

        Args:
            condition: a condition such as ``"sex == 'female' and age < 40"`` (``read_condition``);
                by default, all records.

        Raises:
            InputError: if the condition is invalid; the error names ``where``.

        Example:
            >>> release.query("age < 40").group_by("sex").count().to_pandas()  # doctest: +SKIP
        """
        everybody = Question(self.bounded, {}, bins=self.bin_means)
        return everybody if condition is None else everybody.where(condition)

    @cached_property
    def fitted(self) -> FittedTables:
        """The marginals of the hypothesis or of the records."""
        return FittedTables(
            self.domain,
            self.potentials,
            self.record_tables,
            self.codes,
            self.counts,
            self.represented,
        )

    @cached_property
    def estimates(self) -> Estimates:
        """Answers to weighted sums, with errors."""
        return Estimates(self.fitted, self.measurements, self.public_number)

    @cached_property
    def bounded(self) -> ProvedBounds:
        """The answers of ``estimates``, with proved bounds."""
        return ProvedBounds(self.estimates)

    def _explicit(self, query: LinearQuery) -> float:
        """Returns the answer of the hypothesis to a query whose values are listed by cell."""
        (marginal,) = self.answer(Workload(self.domain, (self.domain.names,)))
        return query.mean(marginal.values.ravel() / self.represented) * self.represented

    @cached_property
    def positions(self) -> dict[str, Positions]:
        """Where values lie within bins, by column; empty if they are the middles of the bins."""
        positions = {} if self.within_bins == "midpoint" else {**self._usual_positions}
        for name, means in self.bin_means.items() if self.within_bins == "density" else ():
            positions[name] = moved_positions(positions[name], means.shares)
        return positions

    @cached_property
    def bin_means(self) -> dict[str, BinMeans]:
        """The means of bins by column, if their sums were measured."""
        if self.bin_sums is None:
            return {}
        usual = {name: ends.mean(axis=1) for name, ends in self._usual_positions.items()}
        scale = np.float64(self.fitted.scale)
        counts = {name: scale * self.record_marginal((name,)) for name in usual}
        return self.bin_sums.means(self.domain, counts, usual)

    @cached_property
    def _usual_positions(self) -> dict[str, Positions]:
        binned = [column for column in self.domain if isinstance(column, BinnedAttribute)]
        return {
            column.name: bin_positions(
                column, self.record_marginal((column.name,))[: column.num_levels], self.within_bins
            )
            for column in binned
        }

    @cached_property
    def drawn(self) -> dict[str, DrawnColumn]:
        """The columns with values drawn within bins, by name."""
        return drawn_columns(self.domain, tuple(self.codes), self.positions)

    @property
    def represented(self) -> int:
        """The number of records that the released records represent."""
        return self.num_records if self.num_represented is None else self.num_represented

    @property
    def public_number(self) -> int | None:
        """The number of records, if it is public."""
        return self.represented if self.num_records_is_public else None

    def noisy_number(self) -> tuple[float, float] | None:
        """See ``Release``; the number is the number of represented records."""
        # SmallDB's records represent a number that is public or has its own noise.
        scales = [entry["scale"] for entry in self.noise if entry.get("what") == NUM_RECORDS]
        if scales:
            error = math.sqrt(noise_variance("discrete_laplace", scales[0]))
        elif self.num_records_is_public:
            error = None
        else:
            error = self.errors.get((), {}).get("standard_error")
        return None if error is None else (self.represented, error)

    def record_marginal(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Returns a marginal of the released records, with one axis per name, in the given order.

        Args:
            names: distinct attribute names.

        Returns:
            The numbers of records, int64.

        Raises:
            InputError: if a name is unknown or given twice, or there are more than 2^28 cells.

        Cost: about 20 ns per distinct record.
        """
        return self.fitted.record_marginal(names)

    def __len__(self) -> int:
        return self.num_records

    def __dir__(self) -> list[str]:
        return _FOR_USERS.split()

    def rows(self) -> list[dict[str, Value]]:
        """Returns the records of ``to_arrow`` as dictionaries by column, about 1 kB each."""
        return [row for table in self.arrow_tables() for row in table.to_pylist()]

    def blocks(self) -> Iterator[RowBlock]:
        """Yields the released records in the order of the release, block by block, as codes.

        Order and values within bins are random, but fixed for a draw: see ``shards.py``.
        """
        for part in parts_of(self.counts, self.draw_id, self.num_shards):
            yield from row_blocks(part, self.draw_id, self.drawn)

    @property
    def num_shards(self) -> int:
        """The number of files of records."""
        return num_shards(self.domain, self.num_records, bool(self.positions))

    def shards(self) -> Iterator[RecordShard]:
        """Yields the rows of each file of records, in order."""
        about = {
            "beam_dp.mechanism": self.mechanism,
            "beam_dp.guarantee": json.dumps(self.guarantee.to_json(), ensure_ascii=False),
        }
        for place, part in enumerate(parts_of(self.counts, self.draw_id, self.num_shards)):
            yield RecordShard(
                domain=self.domain,
                draw_id=self.draw_id,
                records_format=self.records_format,
                positions=self.positions,
                statements=about,
                number=place,
                num_shards=self.num_shards,
                codes=tuple(self.codes),
                part=part,
            )

    def records(self, batch_size: int = 65_536) -> Iterator[dict[str, list[Value]]]:
        """Yields the released records in the order of the release, as columns of values by name.

        Args:
            batch_size: the number of records in each batch except the last batch, >= 1.
        """
        waiting: list[list[NDArray[Any]]] = []
        for block in self.blocks():
            waiting.append([block.records, *block.values.values()])
            joined = [np.concatenate(parts) for parts in zip(*waiting, strict=True)]
            whole = len(joined[0]) // batch_size * batch_size
            for start in range(0, whole, batch_size):
                yield self._batch([column[start : start + batch_size] for column in joined])
            waiting = [[column[whole:] for column in joined]]
        if waiting and len(waiting[0][0]):
            yield self._batch(waiting[0])

    def _batch(self, rows: Sequence[NDArray[Any]]) -> dict[str, list[Value]]:
        """Returns columns of values, given the place of each row's record and the drawn values."""
        codes = [column[rows[0]] for column in self.codes]
        return value_columns(self.domain, codes, dict(zip(self.drawn, rows[1:], strict=True)))

    def arrow_tables(self) -> Iterator[pa.Table]:
        """Yields the table of ``to_arrow`` block by block."""
        for block in self.blocks():
            codes = [column[block.records] for column in self.codes]
            yield arrow_table(self.domain, codes, block.values)

    def to_arrow(self) -> pa.Table:
        """Returns the released records in the order of the release, one column per attribute.

        A column has the type of the attribute's values, and null is null. If the values have
        several types, such as numbers and ``"other"``, all values of the column are strings.
        """
        check_installed("pyarrow")
        import pyarrow as pa

        return pa.concat_tables(self.arrow_tables())

    def to_pandas(self) -> Any:
        """Returns the records of ``to_arrow`` as a pandas DataFrame; needs pandas."""
        check_installed("pandas")
        return self.to_arrow().to_pandas()

    def head(self, rows: int = 5) -> Any:
        """Returns the first records, at most 1,000, as a pandas DataFrame."""
        checked_integer("rows", rows, least=0, most=1000, note="; to_pandas() returns all")
        check_installed("pandas")
        return next(self.arrow_tables()).slice(0, rows).to_pandas()

    def to_polars(self) -> Any:
        """Returns the released records as a polars DataFrame; needs ``pip install polars``."""
        check_installed("polars")
        import polars

        return polars.DataFrame(self)

    def sample(self, rows: int, *, where: str | None = None, seed: int = 0) -> pa.Table:
        """Returns new records from the fitted distribution, all or those with a condition.

        Privacy: post-processing of the release, which spends nothing; new records reveal no more
        than the release, also about rare conditions, and are as wrong as its answers.

        Accuracy: independent draws with exactly the conditional distribution of the hypothesis;
        ``record_tables`` play no part. A release without a hypothesis (``SmallDB``, or fitted
        candidates) draws its records that satisfy the condition, in proportion to their counts.

        Args:
            rows: the number of records, from 1 to 2^28.
            where: a condition such as ``"sex == 'female' and age < 40"`` (``read_condition``).
            seed: another seed draws other records; the same seed draws the same ones again.

        Returns:
            A table like that of ``to_arrow``, in random order.

        Raises:
            InputError: if an argument is invalid, or no fitted record satisfies the condition.

        Cost: one pass over the junction tree, and about 1 microsecond per record and attribute.

        Example:
            >>> release.sample(500, where="age < 40").to_pandas()  # doctest: +SKIP
        """
        from beam_dp.releases.synthetic_database.sampling import sampled_table

        return sampled_table(self.fitted, self.positions, self.draw_id, rows, where, seed)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the released records for any library that reads Arrow's C stream.

        Example:
            >>> polars.DataFrame(release)  # doctest: +SKIP
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _check_domain(self, workload: Workload) -> None:
        condition = "must be of the release's domain"
        self.domain.check_same(workload.domain, "workload", len(workload), condition)

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
