"""Released tables of one window of a stream, or of one block of windows."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, checked_integer
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, magnitude
from beam_dp.models.residual_basis import Support
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.workload import Workload
from beam_dp.releases.plain import library_versions, plain_json
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database.measured_tables import (
    MeasuredTable,
    Names,
    cell_variance,
    laplace_variance,
    support_variances,
)
from beam_dp.releases.synthetic_database.noisy_tables import NoisyTables
from beam_dp.releases.synthetic_database.released_answers import MarginalAnswer, QueryAnswer
from beam_dp.windows.horizon import MAX_WINDOWS
from beam_dp.windows.promise import MECHANISM

Level = Literal["window", "block"]

# Attribute sets that variances are added up over.
_MAX_SUBSETS = 2**20


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WindowTables(Release):
    """Unbiased tables of the records of one window, or of one block: everything here is public.

    Counts may be negative, and need not be whole. They are never clipped: sums of many windows,
    most of them empty, would be far too large.

    Args: as of ``Release``, where ``guarantee`` is of all windows that are promised together, and
        horizon_id: names the horizon that the window is of; 32 hexadecimal digits.
        level: whether it is one window, or a block of them.
        number: of the window, or of the block, from 0.
        start: of the first window, in seconds since 1970 in UTC.
        end: of the last window.
        workload: the marginals.
        tables: of each marginal, one axis an attribute, float64, records.
        measured: what was measured, with how much noise; it covers every marginal.
        plan: its public parameters, as JSON values; public.
        versions: of the libraries that made it.

    Raises:
        InputError: if a field is not as described.
    """

    KIND: ClassVar[str] = "window_tables"
    mechanism: ClassVar[str] = MECHANISM

    horizon_id: str
    level: Level
    number: int
    start: int
    end: int
    workload: Workload
    tables: Mapping[Names, NDArray[np.float64]]
    measured: tuple[MeasuredTable, ...]
    plan: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=library_versions)

    def __post_init__(self) -> None:
        for name in ("draw_id", "horizon_id"):
            if not re.fullmatch("[0-9a-f]{32}", str(getattr(self, name))):
                raise InputError(name, getattr(self, name), "must be 32 hexadecimal digits")
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
        """The content of its card, as JSON values."""
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
        """What was measured, with how much noise."""
        return [each.to_json() for each in self.measured]

    @property
    def domain(self) -> Domain:
        """The universe."""
        return self.workload.domain

    @property
    def variances(self) -> Mapping[Support, float]:
        """The variance of every coefficient: see ``measured_tables.support_variances``."""
        return _variances(self.workload, self.measured)

    def variance(self, names: Names) -> float:
        """Returns the variance of a cell of one of its marginals, in squared records."""
        return _cell_variances(self.workload, self.measured)[names]

    @property
    def estimate(self) -> NoisyTables:
        """Its tables, which answer whatever lies inside one of them."""
        smallest = laplace_variance(self.measured)
        return NoisyTables(self.workload, self.tables, self.variances, smallest)

    def answer(self, workload: Workload) -> list[MarginalAnswer]:
        """Returns the marginals of a workload: see ``NoisyTables.answer``."""
        return self.estimate.answer(workload)

    def answer_queries(self, queries: Iterable[LinearQuery]) -> list[QueryAnswer]:
        """Returns the answers of linear queries: see ``NoisyTables.answer_queries``."""
        return self.estimate.answer_queries(queries)

    def noisy_number(self) -> tuple[float, float]:
        """See ``Release``: the sum of the smallest table."""
        smallest = min(self.tables.values(), key=np.size)
        return float(smallest.sum()), math.sqrt(self.variances[()])


def check_subsets(workload: Workload, measured: Iterable[MeasuredTable] = ()) -> None:
    """Refuses marginals and measured tables inside which there are too many sets of attributes.

    Raises:
        InputError: naming the workload, or the noise.
    """
    inside = sum(2 ** len(names) for names in workload)
    if inside > _MAX_SUBSETS:
        condition = "sets of attributes inside its marginals: must be at most 2^20"
        raise InputError("workload", magnitude(inside), condition)
    tables = sum(min(2 ** len(each.names), inside) for each in measured)
    if tables > _MAX_SUBSETS:
        condition = "sets of attributes inside what is measured: must be at most 2^20"
        raise InputError("noise", magnitude(tables), condition)


# All windows of a horizon have the same.
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
    found = {names: cell_variance(domain, variances, domain.axes(names)) for names in workload}
    return MappingProxyType(found)
