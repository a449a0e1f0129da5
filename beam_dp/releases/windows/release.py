"""Released tables of one window or block of windows, and of a horizon, which sums windows."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, check_id, checked_integer, is_integer
from beam_dp.domain.horizon import MAX_WINDOWS, MECHANISM, Blocks, Horizon, block_weight
from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError, magnitude
from beam_dp.models.basis import Support
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.workload import OfWorkload, Workload
from beam_dp.releases.error_bars import Estimate, MarginalAnswer
from beam_dp.releases.release import Displayed, Release, library_versions, plain_json
from beam_dp.releases.synthetic_database.measured_tables import (
    MeasuredTable,
    cell_variance,
    laplace_variance,
    support_variances,
)
from beam_dp.releases.synthetic_database.noisy_tables import NoisyTables
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

Level = Literal["window", "block"]

_MAX_SUBSETS = 2**20  # the largest number of attribute sets whose variances are added up
_ALL = slice(None)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WindowTables(OfWorkload, Release):
    """Public, unbiased tables of the records of one window or of one block of windows.

    Counts may be negative or fractional. Counts are never clipped: clipped counts would make sums
    of many windows, most of which are empty, far too large. ``guarantee`` covers all jointly
    protected windows. ``plan``: the public parameters, as JSON values.
    """

    KIND: ClassVar[str] = "window_tables"
    mechanism: ClassVar[str] = MECHANISM

    horizon_id: str  # of the horizon that contains the window; 32 hexadecimal digits
    level: Level  # "window" or "block"
    number: int  # of the window or of the block, from 0
    start: int  # of the first window, in seconds since 1970 in UTC
    end: int  # of the last window, in seconds since 1970 in UTC
    workload: Workload
    tables: Mapping[Names, NDArray[np.float64]]  # one axis per attribute, float64, records
    measured: tuple[MeasuredTable, ...]  # with their noise; they cover every marginal
    plan: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=library_versions)

    def __post_init__(self) -> None:
        for name in ("draw_id", "horizon_id"):
            check_id(name, getattr(self, name))
        check_choice("level", self.level, ("window", "block"))
        checked_integer("number", self.number, 0, MAX_WINDOWS - 1)
        checked_integer("start", self.start)
        checked_integer("end", self.end, self.start + 1)
        check_subsets(self.workload, self.measured)
        if set(self.tables) != set(self.workload):
            raise InputError("tables", len(self.tables), "must be one of each marginal")
        for names in self.workload:
            table, shape = self.tables[names], self.domain.restrict(names).shape
            if table.shape != shape or table.dtype != np.float64 or not np.isfinite(table).all():
                condition = f"must be of shape {shape} and finite"
                raise InputError("tables", ",".join(names), condition)
            if not math.isfinite(self.variance(names)):
                raise InputError("noise", ",".join(names), "must measure every marginal")
        for name in ("plan", "versions"):
            object.__setattr__(self, name, plain_json(dict(getattr(self, name))))

    def __repr__(self) -> str:
        return (
            f"WindowTables(level={self.level!r}, number={self.number},"
            f" marginals={len(self.workload)}, draw_id={self.draw_id!r})"
        )

    @functools.cached_property
    def card(self) -> dict[str, Any]:
        """The content of the card, as JSON values."""
        return {
            "mechanism": self.mechanism,
            "guarantee": self.guarantee.to_json(),
            "horizon_id": self.horizon_id,
            "level": self.level,
            "number": self.number,
            "start": self.start,
            "end": self.end,
            "domain": self.domain.to_json(),
            "workload": self.workload.to_json(),
            "noise": self.noise,
            "parameters": dict(self.plan),
            "versions": dict(self.versions),
        }

    @property
    def noise(self) -> list[dict[str, Any]]:
        """The noise of each measured table."""
        return [table.to_json() for table in self.measured]

    @property
    def variances(self) -> Mapping[Support, float]:
        """The variance of every coefficient, as ``support_variances`` returns them."""
        return _variances(self.workload, self.measured)

    def variance(self, names: Names) -> float:
        """Returns the variance of a cell of a released marginal, in squared records."""
        return _cell_variances(self.workload, self.measured)[names]

    @property
    def estimate(self) -> NoisyTables:
        """The tables as an estimate; each question must be about the attributes of one table."""
        smallest = laplace_variance(self.measured)
        return NoisyTables(self.workload, self.tables, self.variances, smallest)

    def answer(self, workload: Workload) -> list[MarginalAnswer]:
        """Returns a workload's marginals, each from a released marginal with all its attributes."""
        return self.estimate.answer(workload)

    def answer_queries(self, queries: Iterable[LinearQuery]) -> list[Estimate]:
        """Returns the answers of linear queries about attributes of a released marginal."""
        return self.estimate.answer_queries(queries)

    def noisy_number(self) -> tuple[float, float]:
        """Returns the sum of the smallest table and the standard error of the sum."""
        smallest = min(self.tables.values(), key=np.size)
        return float(smallest.sum()), math.sqrt(self.variances[()])


def check_subsets(workload: Workload, measured: Iterable[MeasuredTable] = ()) -> None:
    """Raises InputError if marginals or measured tables contain too many sets of attributes."""
    inside = sum(2 ** len(names) for names in workload)
    if inside > _MAX_SUBSETS:
        condition = "sets of attributes inside its marginals: must be at most 2^20"
        raise InputError("workload", magnitude(inside), condition)
    tables = sum(min(2 ** len(table.names), inside) for table in measured)
    if tables > _MAX_SUBSETS:
        condition = "sets of attributes inside what is measured: must be at most 2^20"
        raise InputError("noise", magnitude(tables), condition)


# Cached, because all windows of a horizon have the same variances.
@functools.lru_cache(maxsize=16)
def _variances(workload: Workload, measured: tuple[MeasuredTable, ...]) -> Mapping[Support, float]:
    domain = workload.domain
    supports = [domain.axes(names) for names in workload.closure()]
    return MappingProxyType(support_variances(domain, supports, measured, False))


@functools.lru_cache(maxsize=16)
def _cell_variances(
    workload: Workload, measured: tuple[MeasuredTable, ...]
) -> Mapping[Names, float]:
    domain, variances = workload.domain, _variances(workload, measured)
    of_names = {names: cell_variance(domain, variances, domain.axes(names)) for names in workload}
    return MappingProxyType(of_names)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class HorizonRelease(OfWorkload, Displayed):
    """The public releases of all windows of a horizon so far; some windows may be missing.

    Sums of windows, such as sliding windows and running totals, are the least squares estimates
    from the released tables of windows and blocks. No noise is drawn and no budget is spent again.

    Args:
        horizon: the windows.
        horizon_id: the id of the horizon; 32 hexadecimal digits.
        guarantee: the privacy guarantee for all windows that are protected together.
        workload: the marginals that are released for each window.
        windows: the tables or the synthetic database of each released window, by the number of the
            window. The mapping may read releases on demand.
        block: the number of windows per block; None if no blocks are measured.
        blocks: the tables of each released block, by the number of the block.
        card: the content of ``horizon.json``, as JSON values.

    Raises:
        InputError: if a field is not as described.
    """

    KIND: ClassVar[str] = "horizon"
    ID_OF: ClassVar[str] = "horizon"
    mechanism: ClassVar[str] = MECHANISM

    horizon: Horizon
    horizon_id: str
    guarantee: Guarantee
    workload: Workload
    windows: Mapping[int, WindowTables | SyntheticDatabase]
    block: int | None = None
    blocks: Mapping[int, WindowTables] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_id("horizon_id", self.horizon_id)
        if self.block is not None:
            Blocks(self.horizon.num_windows, self.block)
        object.__setattr__(self, "card", plain_json(dict(self.card)))

    def __repr__(self) -> str:
        return (
            f"HorizonRelease(released={len(self.windows)} of {self.horizon.num_windows} windows,"
            f" horizon_id={self.horizon_id!r})"
        )

    @property
    def id(self) -> str:
        """The id of the horizon."""
        return self.horizon_id

    @property
    def plan(self) -> Mapping[str, Any]:
        """The public parameters of the plan, which the release of every window repeats."""
        plan: Mapping[str, Any] = self.card.get("plan", {})
        return plan

    @property
    def noise(self) -> Sequence[Mapping[str, Any]]:
        """Empty, because the release of each window states the noise of the window."""
        return ()

    @property
    def records_domain(self) -> Domain:
        """See ``AnyRelease``."""
        return self.domain

    @property
    def released(self) -> tuple[int, ...]:
        """The numbers of the released windows, in ascending order."""
        return tuple(sorted(self.windows))

    def answer(self, workload: Workload, windows: slice = _ALL) -> list[MarginalAnswer]:
        """Returns the marginals of the records of some windows together.

        Args:
            workload: marginals whose attributes are all in one released marginal.
            windows: a slice of windows such as ``slice(10, 34)``; by default the whole horizon.

        Returns:
            For each marginal the values, the standard error of a cell, and a bound on the errors of
            all cells of the marginal together, except with probability 0.05.

        Raises:
            InputError: if a window has not been released yet, or the release can't answer.

        Cost: reading these windows, and the windows of their blocks.
        """
        return self.summed(windows).answer(workload)

    def answer_queries(
        self, queries: Iterable[LinearQuery], windows: slice = _ALL
    ) -> list[Estimate]:
        """Returns the answers of linear queries about the records of some windows together.

        Args:
            queries: queries about attributes of one released marginal.
            windows: see ``answer``.

        Returns:
            Values in records, standard errors and error bounds. All bounds are true together,
            except with probability 0.05.

        Raises:
            InputError: see ``answer``.
        """
        return self.summed(windows).answer_queries(queries)

    def summed(self, windows: slice) -> NoisyTables | SyntheticDatabase:
        """Returns an estimate for the records of some windows together, for many questions.

        Raises InputError if a window has not been released yet, or if the windows can't be summed.
        """
        first, stop = self._ends(windows)
        missing = next(
            (number for number in range(first, stop) if number not in self.windows), None
        )
        if missing is not None:
            raise InputError("windows", missing, "must be released; this window is not, yet")
        one = self.windows[first]
        if isinstance(one, SyntheticDatabase):
            if stop > first + 1:
                condition = "must be one window: those of synthetic databases can't be summed"
                raise InputError("windows", f"{first}:{stop}", condition)
            return one
        self._check("window", first, one)
        tables = {names: np.zeros_like(table) for names, table in one.tables.items()}
        variances = dict.fromkeys(one.variances, 0.0)
        measured: set[MeasuredTable] = set()
        for release, factor in self._terms(first, stop, one.measured[0].variance):
            for names, table in tables.items():
                table += factor * release.tables[names]
            for support, variance in release.variances.items():
                variances[support] += factor**2 * variance
            measured.update(release.measured)
        return NoisyTables(self.workload, tables, variances, laplace_variance(measured))

    def _ends(self, windows: slice) -> tuple[int, int]:
        """Returns the first window of a slice and the window after the last one."""
        limit = self.horizon.num_windows
        first = 0 if windows.start is None else windows.start
        stop = limit if windows.stop is None else windows.stop
        fits = is_integer(first) and is_integer(stop) and windows.step in (None, 1)
        if not (fits and 0 <= first < stop <= limit):
            shown = f"{windows.start}:{windows.stop}"
            condition = f"must be from a first window to before a later one, of 0 to {limit}"
            raise InputError("windows", shown, condition)
        return first, stop

    def _terms(
        self, first: int, stop: int, window_variance: float
    ) -> Iterator[tuple[WindowTables, float]]:
        """Yields tables and factors whose weighted sum is the best estimate of some windows.

        If a block and all its windows were released, the factor of the block is ``block_weight``,
        and this weight is subtracted from the factor of each window of the block.
        """
        if self.block is None:
            for number in range(first, stop):
                yield self._tables("window", number), 1.0
            return
        blocks = Blocks(self.horizon.num_windows, self.block)
        for number, members in blocks.parts(first, stop):
            inside, weight = members, 0.0
            windows = blocks.windows(number)
            if number in self.blocks and all(window in self.windows for window in windows):
                block = self._tables("block", number)
                ratio = block.measured[0].variance / window_variance
                inside, weight = windows, block_weight(len(members), len(windows), ratio)
                yield block, weight
            for place in inside:
                yield self._tables("window", place), (place in members) - weight

    def _tables(self, level: Level, number: int) -> WindowTables:
        """Returns tables of a window or block, after checking that they belong to this horizon."""
        release = self.windows[number] if level == "window" else self.blocks[number]
        if not isinstance(release, WindowTables):
            raise InputError(level, number, "must contain tables, as the other releases do")
        self._check(level, number, release)
        return release

    def _check(self, level: Level, number: int, release: WindowTables) -> None:
        of_release = release.horizon_id, release.level, release.number, release.workload
        if of_release != (self.horizon_id, level, number, self.workload):
            raise InputError(level, number, "must contain tables of this horizon with this number")
