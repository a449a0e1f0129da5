"""Horizons, units and plans of windows for tests, and what a plan hands to the noise."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from noise_sources import Draw, NoNoise
from tiny import domain_of

import beam_dp as dp
from beam_dp.domain.horizon import Horizon, KeptWindows, WindowUnit, keep_windows
from beam_dp.mechanisms.windows.plan import WindowTablesPlan, plan_window_tables
from beam_dp.secret.summaries.histogram import Histogram, Marginals

HORIZON_ID = "0123456789abcdef" * 2
CELL = domain_of(1)

Placement = tuple[tuple[int, ...], ...]  # of a unit: for each window, how many records in each cell


def horizon_of(num_windows: int) -> Horizon:
    return Horizon("2026-11-23T00:00Z", "1h", num_windows, "30m")


def person(windows: int, protected: int, records: int = 1) -> WindowUnit:
    return WindowUnit("person_id", records, windows, protected)


RECORD = WindowUnit("record", 1, 1, 1)


def whole(domain: dp.Domain) -> dp.Workload:
    """One marginal that is the whole domain: its histogram."""
    return dp.Workload(domain, (domain.names,))


def plan_of(
    num_windows: int,
    unit: WindowUnit,
    workload: dp.Workload | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-9,
    **options: Any,
) -> WindowTablesPlan:
    workload = workload or whole(CELL)
    return plan_window_tables(workload, horizon_of(num_windows), unit, epsilon, delta, **options)


def marginals_of(plan: WindowTablesPlan, counts: Any) -> Marginals:
    domain = plan.workload.domain
    cells = np.broadcast_to(np.asarray(counts, np.int64), (domain.num_cells,)).copy()
    return Histogram(domain, cells).marginals(plan.summary_tables)


def kept_sets(num_windows: int, unit: WindowUnit) -> Iterator[tuple[int, ...]]:
    """All sets of windows in which a unit may be kept, whatever windows it has records in."""
    found = set()
    one = np.ones((2, 1), np.uint64)
    for present in itertools.product((False, True), repeat=num_windows):
        remembered, kept = KeptWindows.nothing(), []
        for number in np.flatnonzero(present).tolist():
            keep, remembered = keep_windows(remembered, one, number, unit, num_windows)
            kept += [number] if keep[0] else []
        found.add(tuple(kept))
    yield from sorted(found)


def placements(num_windows: int, unit: WindowUnit, num_cells: int) -> Iterator[Placement]:
    """All that a unit may hold in the windows of a horizon, once it is limited."""
    most = unit.max_records_per_unit
    tables = [t for t in itertools.product(range(most + 1), repeat=num_cells) if sum(t) <= most]
    nothing = (0,) * num_cells
    for kept in kept_sets(num_windows, unit):
        for chosen in itertools.product([t for t in tables if t != nothing], repeat=len(kept)):
            held = dict(zip(kept, chosen, strict=True))
            yield tuple(held.get(number, nothing) for number in range(num_windows))


def handed_out(plan: WindowTablesPlan, counts: Any, windows: range) -> list[Draw]:
    """What the draws of some windows, and of all blocks, hand to the noise source.

    Args:
        plan: of the windows.
        counts: shape (num_windows, num_cells).
        windows: that are looked at.
    """
    tables = np.asarray(counts, np.int64)
    source = NoNoise()
    for number in windows:
        plan.draw(number, marginals_of(plan, tables[number]), source, HORIZON_ID)
    if plan.blocks is not None:
        for number in range(len(plan.blocks)):
            held = tables[list(plan.blocks.windows(number))].sum(axis=0)
            plan.draw_block(number, marginals_of(plan, held), source, HORIZON_ID)
    return source.draws
