"""Small horizons on disk or in buckets, for tests of what reads them."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from tiny import domain_of
from window_plans import marginals_of, person, plan_of

from beam_dp.mechanisms.windows.plan import WindowTablesPlan
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.kinds import commit_release
from beam_dp.releases.windows.horizon_files import (
    HorizonCard,
    begin_horizon,
    block_directory,
    window_directory,
)

DOMAIN = domain_of(2, 3)
WORKLOAD: Workload = marginals(DOMAIN, ways=1)
FIRST, SECOND = "1" * 32, "2" * 32


def leveled(num_windows: int = 6, block: int = 3, **options: Any) -> WindowTablesPlan:
    """The plan of windows of persons, and of blocks of three."""
    unit = person(2, num_windows)
    return plan_of(num_windows, unit, WORKLOAD, strategy="levels", block=block, **options)


def card_of(plan: Any, /, **changed: Any) -> HorizonCard:
    given = {
        "horizon": plan.horizon,
        "unit": plan.unit,
        "guarantee": plan.guarantee,
        "workload": plan.workload,
        "plan": plan.public,
        "source": {"event_time": "t", "arrival": "file_time"},
        "replayable": True,
    }
    return HorizonCard(**{**given, **changed})


def counts_of(number: int) -> np.ndarray:
    """The cells of a window: different ones in each."""
    return np.arange(6) + 10 * number


def commit_window(plan: Any, directory: str, number: int, horizon_id: str) -> Any:
    cells = np.resize(counts_of(number), plan.workload.domain.num_cells)
    held = marginals_of(plan, cells)
    release = plan.draw(number, held, NoiseSource(), horizon_id)
    assert commit_release(release, window_directory(directory, number))
    return release


def commit_block(plan: WindowTablesPlan, directory: str, number: int, horizon_id: str) -> Any:
    assert plan.blocks is not None and plan.block is not None
    held = sum(map(counts_of, plan.blocks.windows(number)))
    release = plan.draw_block(number, marginals_of(plan, held), NoiseSource(), horizon_id)
    assert commit_release(release, block_directory(directory, plan.block, number))
    return release


def released_horizon(
    directory: str, plan: WindowTablesPlan, windows: Iterable[int], blocks: Iterable[int] = ()
) -> str:
    """Begins a horizon and commits some of its windows and blocks; returns its id."""
    horizon_id = begin_horizon(directory, card_of(plan), FIRST)
    for number in windows:
        commit_window(plan, directory, number, horizon_id)
    for number in blocks:
        commit_block(plan, directory, number, horizon_id)
    return horizon_id
