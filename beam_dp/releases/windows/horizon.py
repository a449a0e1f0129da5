"""The released windows of a horizon, and the answers of sums of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from beam_dp.checks import is_integer
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.workload import Workload
from beam_dp.releases.plain import plain_json
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable, laplace_variance
from beam_dp.releases.synthetic_database.noisy_tables import NoisyTables
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.released_answers import MarginalAnswer, QueryAnswer
from beam_dp.releases.windows.window import Level, WindowTables
from beam_dp.windows.blocks import Blocks, block_weight
from beam_dp.windows.horizon import Horizon
from beam_dp.windows.promise import MECHANISM

WindowRelease = WindowTables | SyntheticDatabase
_ALL = slice(None)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class HorizonRelease:
    """All that is released of a horizon so far: public, also while windows are still missing.

    Sums of windows, such as sliding windows and running totals, are answered from their tables
    and from those of blocks, with the least squares estimate of what is released so far: nothing
    is drawn or paid for again.

    Args:
        horizon: the windows.
        horizon_id: names the horizon; 32 hexadecimal digits.
        guarantee: what was promised, of all windows that are protected together.
        workload: the marginals that are released of each window.
        windows: the release of each window that is there, by its number: tables, or a synthetic
            database. It may read them when they are asked for.
        block: how many windows a block has; None where none are measured.
        blocks: the tables of each block that is there, by its number.
        card: what its ``horizon.json`` says, as JSON values.

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
    windows: Mapping[int, WindowRelease]
    block: int | None = None
    blocks: Mapping[int, WindowTables] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{32}", str(self.horizon_id)):
            raise InputError("horizon_id", self.horizon_id, "must be 32 hexadecimal digits")
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
        """The public parameters of the plan, which each release of a window repeats."""
        stated: Mapping[str, Any] = self.card.get("plan", {})
        return stated

    @property
    def noise(self) -> Sequence[Mapping[str, Any]]:
        """Empty: each release of a window states its own noise."""
        return ()

    @property
    def records_domain(self) -> None:
        """None: records of windows are not compared with the answers."""

    @property
    def domain(self) -> Domain:
        """The universe."""
        return self.workload.domain

    @property
    def released(self) -> tuple[int, ...]:
        """The numbers of the windows that are released, in ascending order."""
        return tuple(sorted(self.windows))

    def answer(self, workload: Workload, windows: slice = _ALL) -> list[MarginalAnswer]:
        """Returns the marginals of the records of some windows together.

        Args:
            workload: any marginals that each lie inside one of the released ones.
            windows: from the first to before the last one, such as ``slice(10, 34)``; by default
                all of the horizon.

        Returns:
            For each marginal its values, the standard error of a cell, and a bound that all its
            cells keep at once, except with probability 0.05.

        Raises:
            InputError: if one of the windows is not released yet, or the release can't answer.

        Cost: that of reading these windows, and those of the blocks that they are in.
        """
        return self.summed(windows).answer(workload)

    def answer_queries(
        self, queries: Iterable[LinearQuery], windows: slice = _ALL
    ) -> list[QueryAnswer]:
        """Returns the answers of linear queries about the records of some windows together.

        Args:
            queries: each about attributes of one of the released marginals.
            windows: as of ``answer``.

        Returns:
            Values in records, standard errors, and bounds that all these answers keep at once,
            except with probability 0.05.

        Raises:
            InputError: as of ``answer``.
        """
        return self.summed(windows).answer_queries(queries)

    def summed(self, windows: slice) -> NoisyTables | SyntheticDatabase:
        """Returns the estimate of some windows together, which answers many questions.

        Args:
            windows: as of ``answer``.

        Raises:
            InputError: if one of the windows is not released yet, or they can't be summed.
        """
        first, stop = self._ends(windows)
        missing = next((each for each in range(first, stop) if each not in self.windows), None)
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
        """The first window of a slice, and the one after its last."""
        most = self.horizon.num_windows
        first = 0 if windows.start is None else windows.start
        stop = most if windows.stop is None else windows.stop
        fits = is_integer(first) and is_integer(stop) and windows.step in (None, 1)
        if not (fits and 0 <= first < stop <= most):
            shown = f"{windows.start}:{windows.stop}"
            condition = f"must be from a first window to before a later one, of 0 to {most}"
            raise InputError("windows", shown, condition)
        return first, stop

    def _terms(
        self, first: int, stop: int, window_variance: float
    ) -> Iterator[tuple[WindowTables, float]]:
        """Yields the tables whose sum, by these factors, is the best estimate of some windows.

        Where a block was released, and all its windows were, each of these has its factor less the
        block's weight, and the block has the weight: see ``windows.blocks.block_weight``.
        """
        if self.block is None:
            for number in range(first, stop):
                yield self._tables("window", number), 1.0
            return
        blocks = Blocks(self.horizon.num_windows, self.block)
        for number, held in blocks.parts(first, stop):
            inside, weight = held, 0.0
            windows = blocks.windows(number)
            if number in self.blocks and all(each in self.windows for each in windows):
                block = self._tables("block", number)
                ratio = block.measured[0].variance / window_variance
                inside, weight = windows, block_weight(len(held), len(windows), ratio)
                yield block, weight
            for each in inside:
                yield self._tables("window", each), (each in held) - weight

    def _tables(self, level: Level, number: int) -> WindowTables:
        """The tables of a window or of a block, if they are of this horizon."""
        release = self.windows[number] if level == "window" else self.blocks[number]
        if not isinstance(release, WindowTables):
            raise InputError(level, number, "must hold tables, as the others do")
        self._check(level, number, release)
        return release

    def _check(self, level: Level, number: int, release: WindowTables) -> None:
        held = release.horizon_id, release.level, release.number, release.workload
        if held != (self.horizon_id, level, number, self.workload):
            raise InputError(level, number, "must hold tables of this horizon, of this number")
