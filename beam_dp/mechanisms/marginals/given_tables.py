"""Makes records from noisy tables that were made elsewhere; this module never reads exact data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.checks import check_choice, check_is, checked_integer, checked_number
from beam_dp.domain.impossible import any_impossible
from beam_dp.domain.universe import Domain
from beam_dp.encoding.records import encode_column
from beam_dp.encoding.tables import Table
from beam_dp.errors import InputError, magnitude
from beam_dp.mechanisms.checks import MAX_RECORDS, Progress
from beam_dp.mechanisms.marginals import plan as plans, synthesis
from beam_dp.models.basis import on_one_thread
from beam_dp.noise.bound import Distribution
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import NoGuarantee
from beam_dp.privacy.loss import Loss
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database import promises
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable, Names
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Marginals

COUNT = "count"
# The noise of a cell is at least this number of grid units, so that its law is nearly continuous.
_LEAST_SCALE = 2**20
_MOST_COUNT, _MOST_ERROR, _LEAST_ERROR = 2.0**50, 2.0**40, 2.0**-20
_TABLE = "must each be three values: attribute names, counts and a standard error"


def synthesise(
    domain: Domain,
    tables: Sequence[tuple[Sequence[str], Any, float]],
    *,
    source: str,
    distribution: Literal["laplace", "gaussian"] = "laplace",
    num_records: int | Literal["noisy"] = "noisy",
) -> SyntheticDatabase:
    """Returns a synthetic database that fits noisy tables which were made elsewhere.

    The fit is that of ``MWEM`` after it has measured, so records, answers and error bars are those
    of any synthetic database.

    Privacy: post-processing of the tables. This package promises nothing: the release is exactly as
    private as the tables, and its card says so, with ``source``. ``beam-dp verify`` says "no
    promise of ours", and never that a guarantee holds.

    Accuracy: error bars are right if the counts are unbiased and the standard errors are. Negative
    counts must not be raised to 0, and small groups must not be missing.

    Args:
        domain: the domain of the records. Each attribute must be in a table.
        tables: for each table the names of its attributes, its noisy counts and the standard
            error of one count, in records. Counts are an array with one axis per attribute, in
            the given order, or a table (as ``release`` reads them) with these columns and a column
            ``count``, and with one row for each combination of levels. Counts may be negative or
            fractional.
        source: who promised what, such as ``"BigQuery, epsilon 1 per customer"``; free text.
        distribution: the law of the noise, from which bounds and margins follow. Those of Laplace
            noise are cautious for Gaussian noise.
        num_records: the number of records, if it is public; by default it follows from the tables.

    Raises:
        InputError: if an argument is not as described.

    Cost: that of the fit: seconds to a minute.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> domain = read_domain('{"age": 2, "sex": 2}')
        >>> tables = [(["age", "sex"], [[51.5, 20.25], [-1.5, 30.0]], 3.0)]
        >>> synthesise(domain, tables, source="a survey, epsilon 1").guarantee.source
        'a survey, epsilon 1'
    """
    check_is("domain", domain, Domain)
    guarantee = NoGuarantee(source)
    check_choice("distribution", distribution, ("laplace", "gaussian"))
    if num_records != "noisy":
        checked_integer("num_records", num_records, 1, MAX_RECORDS, note=" or 'noisy'")
    law: Distribution = "discrete_laplace" if distribution == "laplace" else "discrete_gaussian"
    described, counts = [], []
    for number, each in enumerate(_listed(tables), start=1):
        measured, table = _read(domain, each, law, f"tables, table {number}")
        described.append(measured)
        counts.append(table)
    asked = [each.names for each in described if each.names]
    for name in domain.names:
        if not any(name in names for names in asked):
            raise InputError("tables", name, "must have every attribute of the domain in a table")
    workload = Workload(domain, tuple(dict.fromkeys(asked)))
    plans.check_request(domain, workload, guarantee, "noisy")
    plan = GivenPlan(
        workload=workload,
        guarantee=guarantee,
        num_records=num_records,
        summary_tables=(),
        measurements=(),
        loss=Loss(),
        described=tuple(described),
        counts=tuple(counts),
    )
    return plan.release(Marginals(domain, {}), NoiseSource())


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenPlan(plans.MarginalsPlan):
    """The plan of a release that measures nothing: its noisy tables are given."""

    strategy: ClassVar[str] = promises.GIVEN

    mechanism: str = promises.GIVEN
    described: tuple[MeasuredTable, ...]
    counts: tuple[NDArray[np.float64], ...]

    @property
    def is_fixed(self) -> bool:
        """See ``MarginalsPlan``."""
        return True

    def _stated(self) -> dict[str, Any]:
        return {"strategy": self.strategy}

    @on_one_thread
    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Returns the release that fits the given tables; reads no exact table."""
        joined = plans.joined_sets(self.workload, self.workload)
        given = self.described, self.counts
        found = synthesis.synthesise(self, *given, noise, progress, joined=joined)
        return dataclasses.replace(found, within_bins="uniform")


def _listed(tables: Any) -> list[Any]:
    if isinstance(tables, str) or not isinstance(tables, Sequence) or not tables:
        raise InputError("tables", type(tables).__name__, "must be a list of at least one table")
    return [*tables]


def _read(
    domain: Domain, given: Any, law: Distribution, where: str
) -> tuple[MeasuredTable, NDArray[np.float64]]:
    """Returns the description of a table and its counts, with its attributes in domain order."""
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 3:
        raise InputError(where, type(given).__name__, _TABLE)
    listed, counts, error = given
    is_names = isinstance(listed, Sequence) and all(isinstance(name, str) for name in listed)
    names: Names = (listed,) if isinstance(listed, str) else tuple(listed) if is_names else ()
    if not is_names or len(set(names)) < len(names):
        raise InputError(where, listed, "must have distinct attribute names, as strings")
    axes = domain.axes(names)
    sizes = tuple(domain.shape[axis] for axis in axes)
    of_one = "the standard error of one count"
    deviation = checked_number(f"{where}, {of_one}", error, least=_LEAST_ERROR, most=_MOST_ERROR)
    is_array = isinstance(counts, np.ndarray | list | tuple | int | float | np.generic)
    table = _array(counts, where) if is_array else _counts_of(counts, domain, names, where)
    if table.shape != sizes:
        condition = f"must have the shape {sizes} of {', '.join(names)}"
        raise InputError(where, table.shape, condition)
    if not (np.abs(table) <= _MOST_COUNT).all():
        raise InputError(where, "a count", f"must be a number of at most {_MOST_COUNT:g}")
    order = np.argsort(axes)
    ordered = tuple(names[place] for place in order)
    return _described(ordered, law, deviation), np.ascontiguousarray(table.transpose(order))


def _array(counts: Any, where: str) -> NDArray[np.float64]:
    try:
        return np.array(counts, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(where, type(counts).__name__, "must be an array of numbers") from None


def _counts_of(given: Any, domain: Domain, names: Names, where: str) -> NDArray[np.float64]:
    """Returns the array of a table with a column for each attribute and the column ``count``."""
    try:
        read = Table(given)
        for name in names:
            read.check_column("domain", name, domain[name])
        read.check_column("domain", COUNT)
    except InputError as error:
        raise InputError(where, error.value, error.condition) from None
    rows = pa.Table.from_batches(read.batches([*names, COUNT]))
    try:
        counts = rows[COUNT].cast(pa.float64()).to_numpy()
    except pa.ArrowException:
        raise InputError(where, str(rows[COUNT].type), "must have numbers as counts") from None
    inner = domain.restrict(names)
    if inner.num_cells > plans.MAX_COEFFICIENTS:
        condition = f"must have at most {plans.MAX_COEFFICIENTS:,} cells"
        raise InputError(where, magnitude(inner.num_cells), condition)
    codes = [encode_column(attribute, rows[attribute.name]) for attribute in inner]
    for attribute, column in zip(inner, codes, strict=True):
        outside = np.flatnonzero(column < 0)
        if len(outside):
            row = f"row {outside[0]}, {attribute.name}"
            raise InputError(where, row, "must be in the domain; rows are counted from 0")
    index = inner.cell_index(codes)
    numbers = np.bincount(index, minlength=inner.num_cells)
    cells = inner.codes(np.arange(inner.num_cells))
    never = any_impossible(inner.impossible, cells)
    may_lack = np.zeros(len(numbers), np.bool_) if never is None else never
    wrong = np.flatnonzero((numbers > 1) | ((numbers == 0) & ~may_lack))
    if len(wrong):
        pairs = zip(inner, cells, strict=True)
        labels = ", ".join(attribute.label(int(codes[wrong[0]])) for attribute, codes in pairs)
        condition = f"must be in one row; {len(wrong):,} combinations are missing or repeated"
        raise InputError(where, labels, condition)
    table = np.zeros(inner.num_cells)
    table[index] = counts
    return table.reshape(inner.shape)


def _described(names: Names, law: Distribution, deviation: float) -> MeasuredTable:
    """Returns the description of noise with a standard deviation, on a grid that is fine."""
    grid = 2 ** max(0, math.ceil(math.log2(_LEAST_SCALE / deviation)))
    scale = deviation * grid
    if law == "discrete_laplace":
        # The inverse of ``noise_variance``.
        scale = 0.5 / math.asinh(math.sqrt(0.5) / scale)
    return MeasuredTable(names, "table", law, scale, grid)
