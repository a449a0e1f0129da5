"""Plans releases from marginals. Plans use public numbers only and do not read any records.

The shares of the budget for choosing marginals: in rounds, ``rounds._SELECTION_SHARE``; by scores,
``selection._SCORES_SHARE``, and in the checks that follow, the shares of ``scores.CHECKS``.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.checks import check_is
from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError, magnitude
from beam_dp.mechanisms.checks import NumRecords, Progress, check_num_records
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.marginals.measurements import Measurement, num_noisy_cells
from beam_dp.mechanisms.resources import (
    Resources,
    candidate_resources,
    fit_resources,
    records_bytes,
)
from beam_dp.models.basis import Support
from beam_dp.models.elimination import GrowingTree, cliques_fit, num_clique_cells
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.steps import Step
from beam_dp.queries.workload import OfWorkload, Workload
from beam_dp.releases.synthetic_database.bin_sums import placed_columns, sums_step
from beam_dp.releases.synthetic_database.measured_tables import cell_variance, support_variances
from beam_dp.releases.synthetic_database.noisy_tables import unit_costs
from beam_dp.releases.synthetic_database.records import distinct_records
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.strategies import (
    Drawn,
    MeasureAll,
    Strategy,
    strategy_steps,
)
from beam_dp.releases.verdict import Figures
from beam_dp.secret.encoding.records import encode_records
from beam_dp.secret.encoding.tables import Table
from beam_dp.secret.summaries.histogram import Marginals

# A hypothesis is a single array if the domain has at most this many cells.
MAX_ARRAY_CELLS = 2**18
# Otherwise a hypothesis is a tree of at most this many cells, or at most this many candidates.
MAX_CANDIDATE_TREE = 2**18
MAX_CANDIDATES = 2**19
# Limits of a hypothesis that joins a whole workload: cells of the domain, or cells of the tree.
MAX_CELLS = 2**26
MAX_TREE_CELLS = 2**24
# Selected sets get a smaller tree, so that a fit (a few hundred passes) takes about a minute.
MAX_SELECTED_CELLS = 2**21
MAX_COEFFICIENTS = 2**26
MAX_SUM = 2**62
# Five standard deviations of a noisy number of records may be at most as many records.
MAX_ROWS_FROM_NOISE = 1e8


@dataclasses.dataclass(frozen=True, eq=False)
class StartingRecords:
    """Records whose distribution is the prior of a hypothesis; noisy tables then change it.

    ``source``: the name on the card: the draw id of a release, or the number of public records.
    ``codes``: distinct records, one array of shape (m,) per attribute; ``counts``: shape (m,).

    Privacy: the records must be public, or an earlier release, which spent its own budget. The
    promise is true for any records. A selection measures, with noise, how far they are from the
    exact tables, and this decides what else is measured; elsewhere, only the fit reads them.
    """

    domain: Domain
    source: str
    codes: Sequence[NDArray[Any]]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, records: Any, domain: Domain) -> StartingRecords:
        """Returns the records of a release, or the records of a public table inside the domain."""
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
        """Returns the public records that are inside the domain."""
        encoded = (encode_records(domain, RECORD, False, batch) for batch in batches)
        columns = [*zip(*(block.code_columns(domain) for block in encoded), strict=True)]
        num_records = sum(map(len, columns[0])) if columns else 0
        if not num_records:
            condition = "must contain a record inside the domain"
            raise InputError("start_from", "public records", condition)
        codes, counts = distinct_records(domain, [np.concatenate(parts) for parts in columns])
        return cls(domain, f"{num_records} public records", codes, counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginalsPlan(OfWorkload, Plan):
    """A mechanism's public parameters for a synthetic database."""

    # True if a hypothesis is fitted to noisy tables.
    fits_tables: ClassVar[bool] = True
    # True if every fit also starts from ``start_from``.
    starts_fits: ClassVar[bool] = True
    # True if all measurements and their scales are decided before any record is read.
    is_fixed: ClassVar[bool] = False
    # True if the mechanism itself decides how many records are released.
    sets_num_rows: ClassVar[bool] = False

    # What the card states of a strategy that verification knows.
    parameters: Strategy | None = None
    workload: Workload  # the marginals or queries that the release must answer
    num_records: NumRecords  # the public number of records, or ``"noisy"``
    summary_tables: tuple[Names, ...]  # attribute sets whose exact tables the mechanism reads
    measurements: tuple[Measurement, ...]  # the measurements before any selection
    within_bins: str = "midpoint"  # how values within a bin are written, one of ``WITHIN_BINS``
    records_format: str = "avro"  # one of ``RECORDS_FORMATS``
    num_synthetic_records: int | None = None  # the number of released records, if set by the user
    bin_sums: Measurement | None = None  # of where numbers lie within their bins
    start_from: StartingRecords | None = None  # if ``fits_tables``, where the hypothesis starts
    asked: Any = None  # the request as the ledger's entry states it; None for ``workload``

    @property
    def public(self) -> dict[str, Any]:
        """See ``Plan``."""
        start = {} if self.start_from is None else {"start_from": self.start_from.source}
        return {**super().public, **start}

    def entry(self) -> dict[str, Any]:
        """See ``Plan``."""
        asked = {"num_records": self.num_records, "workload": self._asked()}
        return {**asked, **super().entry()}

    def identity(self) -> dict[str, Any]:
        """See ``Plan``."""
        return {
            **super().identity(),
            "domain": self.domain.to_json(),
            "workload": self.workload.to_json(),
            "parameters": self.public,
            **({} if self.bin_sums is None else {"bin_sums": self.bin_sums.to_json()}),
        }

    def card(self) -> dict[str, Any]:
        """See ``Plan``."""
        rows = self.num_synthetic_records
        fewer = {} if rows is None else {"num_synthetic_records": rows}
        return {
            **self.identity(),
            "num_records": self.num_records,
            "workload": self._asked(),
            "within_bins": self.within_bins,
            "records_format": self.records_format,
            **fewer,
            **self._counted_left_out(),
        }

    def starting_from(self, records: StartingRecords) -> MarginalsPlan:
        """Returns the plan that uses some records, which are public or an earlier release."""
        return dataclasses.replace(self, start_from=records)

    def _asked(self) -> Any:
        return self.workload.to_json() if self.asked is None else self.asked

    @property
    def counted(self) -> Domain:
        """The domain of records as they are counted, perhaps with their places within bins."""
        placed = () if self.bin_sums is None else placed_columns(self.domain)
        return dataclasses.replace(self.domain, placed=placed)

    @property
    def total_is_public(self) -> bool:
        """True if the number of records is public."""
        return self.num_records != "noisy"

    @property
    def facts(self) -> dict[str, str]:
        """More lines for a preview, by name."""
        return {}

    def num_rows(self, total: int) -> int:
        """Returns the number of released records, given the public or noisy number of records."""
        return self.num_synthetic_records or total

    @property
    def num_rows_from_noise(self) -> float:
        """How many records may be released for noise alone: five deviations of a noisy number."""
        if self.total_is_public or self.num_synthetic_records or self.sets_num_rows:
            return 0.0
        variances = support_variances(self.domain, [()], self.measurements_of_total, False)
        return 5 * math.sqrt(cell_variance(self.domain, variances, ()))

    @property
    def disk_bytes(self) -> float:
        """See ``Plan``; of a private number of records, only what noise may add."""
        rows = self.num_rows(0 if self.num_records == "noisy" else self.num_records)
        return records_bytes(self.domain, rows + self.num_rows_from_noise, self.records_format)

    @property
    def measurements_of_total(self) -> Sequence[Measurement]:
        """The measurements that every draw makes, from which a noisy number of records follows."""
        return self.measurements

    @property
    def resources(self) -> Resources:
        """The memory and time for measuring and fitting."""
        measured = num_noisy_cells(self.domain, self.measurements)
        if fits_an_array(self.domain):
            return fit_resources(self.domain.num_cells, measured)
        sets, limit = [self.domain.axes(names) for names in self.workload.maximal()], MAX_CANDIDATES
        if not joins_fit(self.workload):
            limit = MAX_SELECTED_CELLS
        elif tree_fits(self.domain, sets, MAX_CANDIDATE_TREE):
            return fit_resources(tree_cells(self.domain, sets), measured)
        # In a small domain, many of the drawn candidates are equal.
        usual = min(MAX_CANDIDATES, self.domain.num_cells // 4)
        return candidate_resources(usual, limit, measured)

    @property
    def memory_bytes(self) -> float:
        """The worker's memory for a draw, without the exact tables."""
        return self.resources.memory_bytes

    @property
    def steps(self) -> Sequence[Step]:
        """See ``Plan``. The steps are derived from the strategy's parameters and the measurements.

        If the package does not know a plan's strategy, the steps are its ``measurements``.
        """
        figures = Figures()
        steps = strategy_steps(self._charged(), self._drawn(), figures)
        for fault in figures.faults:
            raise InputError("mechanism", self.mechanism, f"must have a consistent plan: {fault}")
        sums = () if self.bin_sums is None else (self.bin_sums,)
        return [*steps, *(sums_step(measured, self.guarantee) for measured in sums)]

    def _charged(self) -> Strategy | None:
        """The parameters, without a cost limit that does not bound the kept records."""
        parameters, kept_by = self.parameters, self.unit_costs
        if not isinstance(parameters, MeasureAll) or parameters.max_unit_cost is None:
            return parameters
        limit = unit_costs(self.domain, self.measurements, parameters.max_unit_cost)
        if kept_by is not None and limit.holds(kept_by):
            return parameters
        return dataclasses.replace(parameters, max_unit_cost=None)

    def _stated(self) -> dict[str, Any]:
        return {} if self.parameters is None else self.parameters.to_json()

    def _drawn(self) -> Drawn:
        """What is known before the draw, in the form that a card states."""
        return Drawn(self.domain, self.guarantee, [each.to_json() for each in self.measurements])

    @abstractmethod
    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Returns a release that keeps ``guarantee``.

        ``marginals``: the exact tables, which include ``summary_tables``; secret.
        """


@runtime_checkable
class Mechanism(Protocol):
    """Turns exact marginals into a synthetic database: the only way from secret to public.

    To add one, inherit from this class and write ``name`` and ``plan``; docs/mechanisms.md has a
    complete example. A mechanism contains only public parameters. The plan contains all decisions
    made before a record is read; ``MarginalsPlan.release`` draws the noise. Everything that the
    plan draws must be in its ``measurements`` or ``steps``: before a budget is spent, and again
    before noise is drawn, the privacy loss is recomputed, and a plan that breaks its guarantee or
    declares too small a loss is refused.
    """

    name: ClassVar[str]  # on cards and in ledgers
    summary: ClassVar[str] = ""  # the description after the name in the help of programs
    # True if the mechanism answers any linear queries, not only marginals.
    answers_linear_queries: ClassVar[bool] = False

    @abstractmethod
    def plan(
        self, domain: Domain, workload: Any, guarantee: Guarantee, num_records: NumRecords
    ) -> MarginalsPlan:
        """Returns the plan of a release, or raises InputError; uses public numbers only.

        ``workload``: marginals; any linear queries if ``answers_linear_queries``.
        ``num_records``: the public number of records, or ``"noisy"``.
        """
        ...

    def release(
        self,
        plan: MarginalsPlan,
        marginals: Marginals,
        noise: NoiseSource,
        progress: Progress | None = None,
    ) -> SyntheticDatabase:
        """Returns a release that keeps ``plan.guarantee``: see ``MarginalsPlan.release``."""
        return plan.release(marginals, noise, progress)


def fits_an_array(domain: Domain) -> bool:
    """Returns whether hypotheses over a domain are single arrays."""
    return domain.num_cells <= MAX_ARRAY_CELLS and not domain.impossible


def tree_cells(domain: Domain, sets: Iterable[Support]) -> int:
    """Returns the number of cells of the junction tree that joins the attribute sets."""
    impossible = (rule.axes for rule in domain.impossible)
    return num_clique_cells(domain.shape, [*sets, *impossible])


def tree_fits(domain: Domain, sets: Iterable[Support], max_cells: int) -> bool:
    """Returns whether the junction tree that joins the sets has at most ``max_cells`` cells."""
    impossible = (rule.axes for rule in domain.impossible)
    return cliques_fit(domain.shape, [*sets, *impossible], max_cells)


def growing_tree(domain: Domain, max_cells: int) -> GrowingTree:
    """Returns a tree of the domain's impossible combinations, to which pairs can be joined."""
    return GrowingTree(domain.shape, (rule.axes for rule in domain.impossible), max_cells)


def joins_fit(workload: Workload) -> bool:
    """Returns whether one hypothesis can join all marginals of a workload."""
    domain = workload.domain
    if domain.num_cells <= MAX_CELLS and not domain.impossible:
        return True
    sets = [domain.axes(names) for names in workload.maximal()]
    return tree_fits(domain, sets, MAX_TREE_CELLS)


def holds_all(workload: Workload) -> bool:
    """Returns whether an array, or else a small tree, can join all marginals of a workload."""
    domain = workload.domain
    sets = [domain.axes(names) for names in workload.maximal()]
    return fits_an_array(domain) or tree_fits(domain, sets, MAX_CANDIDATE_TREE)


def check_joins(workload: Workload) -> None:
    """Refuses a workload whose marginals cannot all be joined by one hypothesis."""
    if joins_fit(workload):
        return
    domain = workload.domain
    _check_tree(domain, MAX_TREE_CELLS)
    sets = [domain.axes(names) for names in workload.maximal()]
    raise InputError(
        "workload",
        f"a junction tree of {magnitude(tree_cells(domain, sets))} cells",
        f"must have at most {MAX_TREE_CELLS:,} for this mechanism; use fewer or smaller marginals,"
        " or mwem, which selects some of them",
    )


def check_selects(domain: Domain) -> None:
    """Refuses a domain whose own tree is so large that no marginal could join the tree."""
    _check_tree(domain, MAX_SELECTED_CELLS)


def _check_tree(domain: Domain, max_cells: int) -> None:
    """Refuses a domain whose own tree is too large before any marginal is added."""
    num_cells = tree_cells(domain, [])
    if num_cells <= max_cells:
        return
    if domain.impossible:
        name, advice = "impossible", "declare fewer, or of fewer attributes together"
    else:
        name, advice = "domain", "use fewer and wider bins"
    raise InputError(
        name,
        f"a junction tree of {magnitude(num_cells)} cells",
        f"must have at most {max_cells:,} before any marginal is added; {advice}",
    )


def check_array(domain: Domain) -> None:
    """Refuses a domain that is not a single array."""
    if domain.impossible:
        condition = "must not be declared for this mechanism"
        raise InputError("impossible", f"{len(domain.impossible)} combinations", condition)
    if domain.num_cells > MAX_CELLS:
        raise InputError(
            "domain",
            f"{magnitude(domain.num_cells)} cells",
            f"must have at most 2^26 = {MAX_CELLS:,} cells for this mechanism;"
            f" {_what_fits(domain)}",
        )


def check_request(
    domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
) -> None:
    """Refuses requests that no mechanism can fulfil."""
    check_is("domain", domain, Domain)
    check_is("workload", workload, Workload)
    check_is("guarantee", guarantee, Guarantee)
    condition = "must be of the release's domain"
    domain.check_same(workload.domain, "workload", len(workload), condition)
    check_num_records(num_records, guarantee)
    largest = max(domain, key=lambda attribute: attribute.size)
    if largest.size > MAX_COEFFICIENTS:
        raise InputError(
            "domain",
            f"{largest.name} of {magnitude(largest.size)} codes",
            f"an attribute must have at most {MAX_COEFFICIENTS:,}: use fewer and wider bins",
        )

    def num_cells(names: Names) -> int:
        return math.prod(domain.shape[axis] for axis in domain.axes(names))

    # Check the largest marginal first: even listing all of its subsets could be too expensive.
    num_coefficients = max(
        math.prod(domain.shape[axis] + 1 for axis in domain.axes(names)) for names in workload
    )
    if num_coefficients <= MAX_COEFFICIENTS:
        num_coefficients = sum(map(num_cells, workload.closure()))
    if num_coefficients > MAX_COEFFICIENTS:
        raise InputError(
            "workload",
            f"{num_coefficients:,} cells with all smaller marginals",
            f"must have at most {MAX_COEFFICIENTS:,}: use fewer or smaller marginals",
        )


def check_sums(num_records: NumRecords, measurements: Iterable[Measurement]) -> None:
    """Refuses a public number of records whose sums would not fit 64-bit integers."""
    # Sums that overflow would still be private, but would have no meaning.
    limit = MAX_SUM // max((measurement.grid for measurement in measurements), default=1)
    if num_records != "noisy" and num_records > limit:
        condition = f"must be at most {limit:,}, or epsilon less, for sums to fit 64-bit integers"
        raise InputError("num_records", num_records, condition)


def check_num_rows(plan: MarginalsPlan) -> None:
    """Refuses a noisy number of records whose noise alone would fill a disk with records."""
    rows = plan.num_rows_from_noise
    if rows > MAX_ROWS_FROM_NOISE:
        condition = (
            f"must be given: the noisy number of records may be {rows:,.0f} too large, more than"
            f" {MAX_ROWS_FROM_NOISE:,.0f}; or spend more epsilon, or keep fewer records per unit"
        )
        raise InputError("num_synthetic_records", None, condition)


def _what_fits(domain: Domain) -> str:
    """Returns advice for a refusal: how many attributes would fit, counted from the first."""
    cells, fitting = 1, 0
    for size in domain.shape:
        if cells * size > MAX_CELLS:
            break
        cells, fitting = cells * size, fitting + 1
    if not fitting:
        name = domain.names[0]
        return f"{name!r} alone has {magnitude(domain.shape[0])}: use fewer and wider bins"
    return (
        f"the first {fitting} of its {domain.num_attributes} attributes have {cells:,}:"
        " leave attributes out, or use fewer and wider bins"
    )
