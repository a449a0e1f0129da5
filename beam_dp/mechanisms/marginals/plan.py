"""Plans of releases from marginals, decided from public numbers before any record is read."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain import Domain
from beam_dp.errors import InputError, magnitude
from beam_dp.hypotheses.elimination import cliques_fit, num_clique_cells
from beam_dp.hypotheses.residual_basis import Support
from beam_dp.mechanisms.marginals.measurements import (
    Measurement,
    Names,
)
from beam_dp.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import Loss
from beam_dp.queries.workload import Workload
from beam_dp.releases import SyntheticDatabase
from beam_dp.summaries import Marginals

if TYPE_CHECKING:
    from beam_dp.mechanisms.left_out import LeftOutPlan

Progress = Callable[[str, int, int], None]
NumRecords = int | Literal["noisy"]

# A hypothesis is one array up to this many cells, and a junction tree above.
MAX_CELLS = 2**26
MAX_TREE_CELLS = 2**24
# Selected sets make a smaller tree: a fit costs a few hundred passes over its cells, about a
# minute at this size.
MAX_SELECTED_CELLS = 2**21
MAX_COEFFICIENTS = 2**26
MAX_RECORDS = 2**40
MAX_SUM = 2**62
LEAST_FAILURE_PROBABILITY = 1e-100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """A mechanism's public parameters for one release.

    Noise is drawn from the fields of a plan; what the card states is made of them and never read
    back, so that nothing that is done to it changes a release.

    Args:
        workload: what the release must answer.
        guarantee: what the mechanism keeps.
        num_records: the public number of records, or ``"noisy"``.
        summary_tables: attribute sets whose exact tables the mechanism reads.
        measurements: what is measured before any selection.
        loss: what the release may reveal, for a ledger, with all that it counts besides.
        ledger_release: the entry of the ledger that paid for it, if one did.
        left_out: how the records outside the domain are counted, where that was asked for.
    """

    strategy: ClassVar[str]

    workload: Workload
    guarantee: Guarantee
    num_records: NumRecords
    summary_tables: tuple[Names, ...]
    measurements: tuple[Measurement, ...]
    loss: Loss
    ledger_release: str | None = None
    left_out: LeftOutPlan | None = None

    @property
    def promised(self) -> Guarantee:
        """What the release promises, with all that it counts besides."""
        return self.guarantee if self.left_out is None else self.left_out.guarantee

    @property
    def public(self) -> dict[str, Any]:
        """The parameters that the card states, as JSON values; a copy."""
        stated = self._stated()
        if self.ledger_release is not None:
            stated["ledger_release"] = self.ledger_release
        return stated

    @abstractmethod
    def _stated(self) -> dict[str, Any]:
        """Returns what the card states of this strategy, as JSON values."""

    @property
    def domain(self) -> Domain:
        """The universe."""
        return self.workload.domain

    @property
    def total_is_public(self) -> bool:
        """True where the number of records is known to everybody."""
        return self.num_records != "noisy"


class Mechanism(Protocol):
    """Turns exact marginals into a release: the only door from secret to public."""

    @property
    def name(self) -> str:
        """The name on the card."""
        ...

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
    ) -> Plan:
        """Returns what would be done, or raises InputError: from public numbers alone."""
        ...

    def release(
        self,
        plan: Plan,
        marginals: Marginals,
        noise: NoiseSource,
        progress: Progress | None = None,
    ) -> SyntheticDatabase:
        """Returns a release that keeps ``plan.guarantee``."""
        ...


def fits_an_array(domain: Domain) -> bool:
    """Returns whether hypotheses over a domain are one array, and not a junction tree."""
    return domain.num_cells <= MAX_CELLS and not domain.impossible


def tree_cells(domain: Domain, sets: Iterable[Support]) -> int:
    """Returns the cells of the junction tree that joins some attribute sets."""
    impossible = (each.axes for each in domain.impossible)
    return num_clique_cells(domain.shape, [*sets, *impossible])


def tree_fits(domain: Domain, sets: Iterable[Support], max_cells: int) -> bool:
    """Returns whether the junction tree that joins some attribute sets is small enough."""
    impossible = (each.axes for each in domain.impossible)
    return cliques_fit(domain.shape, [*sets, *impossible], max_cells)


def joins_fit(workload: Workload) -> bool:
    """Returns whether one hypothesis can join all marginals of a workload."""
    domain = workload.domain
    if fits_an_array(domain):
        return True
    sets = [domain.axes(names) for names in workload.maximal()]
    return tree_fits(domain, sets, MAX_TREE_CELLS)


def check_joins(workload: Workload, advice: str) -> None:
    """Refuses a workload whose marginals no one hypothesis can join.

    Args:
        workload: whose marginals are all measured.
        advice: what else would fit.

    Raises:
        InputError: naming the workload.
    """
    if joins_fit(workload):
        return
    domain = workload.domain
    _check_tree(domain, MAX_TREE_CELLS)
    sets = [domain.axes(names) for names in workload.maximal()]
    raise InputError(
        "workload",
        f"a junction tree of {magnitude(tree_cells(domain, sets))} cells",
        f"must have at most {MAX_TREE_CELLS:,} for this mechanism; {advice}",
    )


def check_selects(domain: Domain) -> None:
    """Refuses a domain that leaves a selection no room: nothing could join its tree.

    Raises:
        InputError: naming the impossible combinations, or the domain.
    """
    _check_tree(domain, MAX_SELECTED_CELLS)


def _check_tree(domain: Domain, max_cells: int) -> None:
    """Refuses a domain whose own tree is too large, whatever is measured."""
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
    """Refuses a domain that is not one array.

    Raises:
        InputError: naming the domain.
    """
    if domain.impossible:
        condition = "must be none for this mechanism"
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
    """Refuses what no mechanism can do.

    Raises:
        InputError: naming the parameter.
    """
    if workload.domain != domain:
        raise InputError("workload", len(workload), "must be of the release's domain")
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

    # The largest marginal first: listing all of its subsets could be too much already.
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


def check_num_records(num_records: NumRecords, guarantee: Guarantee) -> None:
    """Refuses a number of records that is none, or private where the relation makes it public.

    Raises:
        InputError: naming it.
    """
    if num_records != "noisy":
        checked_integer("num_records", num_records, 1, MAX_RECORDS, note=" or 'noisy'")
    elif guarantee.neighboring is Neighboring.REPLACE_ONE:
        condition = "must be a number: it is public under replace_one"
        raise InputError("num_records", num_records, condition)


def check_noise(guarantee: Guarantee, scales: Iterable[float]) -> None:
    """Refuses a guarantee whose noise would not fit 64-bit integers, before it is drawn.

    Raises:
        InputError: naming epsilon.
    """
    if not max(scales, default=0.0) <= MAX_SCALE:
        raise InputError(
            "epsilon",
            guarantee.epsilon,
            "is too small for this workload and max_records_per_unit:"
            " noise must have a scale of at most 2^50",
        )


def check_sums(num_records: NumRecords, measurements: Iterable[Measurement]) -> None:
    """Refuses a public number of records whose sums would not fit 64-bit integers.

    Such sums would be as private, but mean nothing.

    Raises:
        InputError: naming the number.
    """
    most = MAX_SUM // max((each.grid for each in measurements), default=1)
    if num_records != "noisy" and num_records > most:
        condition = f"must be at most {most:,}, or epsilon less, for sums to fit 64-bit integers"
        raise InputError("num_records", num_records, condition)


def check_failure_probability(failure_probability: float) -> None:
    """Refuses a probability of bounds being wrong that has no use, or that sums would lose.

    Raises:
        InputError: naming it.
    """
    name = "failure_probability"
    checked_number(name, failure_probability, least=LEAST_FAILURE_PROBABILITY, below=1)


def check_calibration(calibration: str) -> None:
    """Refuses an unknown calibration."""
    if calibration not in ("tight", "textbook"):
        raise InputError("calibration", calibration, "must be 'tight' or 'textbook'")


def _what_fits(domain: Domain) -> str:
    """Returns advice: how many attributes, in their order, would fit."""
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
