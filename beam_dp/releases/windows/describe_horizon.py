"""Plain tables of a horizon: what was promised of it, and which windows are released so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_dp.releases.synthetic_database.describe import workload_text
from beam_dp.releases.windows.answer import runs, shown_runs
from beam_dp.releases.windows.describe import errors_table, moment
from beam_dp.releases.windows.horizon import HorizonRelease
from beam_dp.releases.windows.window import WindowTables
from beam_dp.reports.terminal import (
    below_each_other,
    counted,
    facts_tables,
    plain_table,
    promise_facts,
)
from beam_dp.windows.blocks import Blocks
from beam_dp.windows.horizon import span_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN_RUNS = 20


def describe_horizon(release: HorizonRelease) -> RenderableType:
    """Returns what is promised of a horizon, what is released of it, and how wrong that can be.

    Args:
        release: as ``read_windows`` returned it. Of the windows that are there it reads one, as all
            have the same noise.

    Returns:
        Tables for ``rich`` to print.

    Raises:
        ReleaseError: if that window is damaged.
    """
    horizon, stated = release.horizon, release.parameters
    found = runs(release.released)
    parts = facts_tables({"horizon": _facts(release)})
    if found:
        rows = [(shown_runs(run), *map(moment, horizon.times(run))) for run in found[:_SHOWN_RUNS]]
        if len(found) > _SHOWN_RUNS:
            rows.append((f"and {counted(len(found) - _SHOWN_RUNS, 'more run')}", "", ""))
        parts.append(plain_table(("released windows", "from", "to"), rows))
        first = release.windows[found[0].start]
        if isinstance(first, WindowTables):
            parts.append(errors_table(first))
    return below_each_other([*parts, *facts_tables({n: stated[n] for n in ("source", "plan")})])


def _facts(release: HorizonRelease) -> dict[str, str]:
    horizon, stated = release.horizon, release.parameters
    ends = f"{moment(horizon.start)} to {moment(horizon.end)}"
    facts = {
        **promise_facts(release.guarantee),
        "promise": stated["promise"],
        "windows": f"{horizon.num_windows:,} of {horizon.window_text}, {ends}; each waits"
        f" {span_text(horizon.grace)} for late records",
        "released": f"{len(release.windows):,} of {horizon.num_windows:,} windows",
        "workload": workload_text(release.workload),
        "source": "can be read again" if stated["replayable"] else "can't be read again",
        "horizon": release.horizon_id,
    }
    if release.block is not None:
        most = len(Blocks(horizon.num_windows, release.block))
        facts["blocks"] = f"{len(release.blocks):,} of {most:,} released, {release.block:,} windows"
    return facts
