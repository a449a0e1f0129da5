"""What `beam-dp describe` prints of the tables of a window, and of a horizon."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from beam_dp.releases.synthetic_database.describe import workload_text
from beam_dp.releases.windows.release import HorizonRelease, WindowTables
from beam_dp.reports.terminal import (
    below_each_other,
    counted,
    facts_tables,
    moment,
    noise_table,
    plain_table,
    promise_facts,
    short_value,
)
from beam_dp.windows.horizon import Blocks, span_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN_MARGINALS = 20
_SHOWN_RUNS = 20  # rows of a table
_WRITTEN_RUNS = 6  # in a line


def describe_window_tables(release: WindowTables) -> RenderableType:
    """Returns what the release of a window promises and how wrong it can be."""
    number, error = release.noisy_number()
    facts = {
        release.level: f"{release.number:,}, {moment(release.start)} to {moment(release.end)}",
        **promise_facts(release.guarantee),
        "records": f"{number:,.1f} (a noisy count, standard error {error:,.1f})",
        "workload": workload_text(release.workload),
        "horizon": release.horizon_id,
        "draw": release.draw_id,
    }
    parts = [
        *facts_tables({"release": facts}),
        errors_table(release),
        noise_table([each.to_json() for each in release.measured]),
        *facts_tables({"parameter": release.plan, "made with": release.versions}),
    ]
    return below_each_other(parts)


def errors_table(release: WindowTables) -> RenderableType:
    """Returns the errors of the marginals of a window; all windows of a horizon have the same."""
    errors = [
        (", ".join(names), short_value(math.sqrt(release.variance(names))))
        for names in release.workload.marginals[:_SHOWN_MARGINALS]
    ]
    if len(release.workload) > len(errors):
        errors.append((f"and {len(release.workload) - len(errors):,} more", ""))
    return plain_table(("marginal", "standard error of a cell (records)"), errors)


def describe_horizon(release: HorizonRelease) -> RenderableType:
    """Returns what a horizon promises, what of it is released, and how wrong that can be.

    Reads one of the released windows, since all have the same noise.

    Raises:
        ReleaseError: if that window is damaged.
    """
    horizon, stated = release.horizon, release.card
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
    horizon, stated = release.horizon, release.card
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


def runs(numbers: Iterable[int]) -> list[range]:
    """Returns ascending numbers as runs of consecutive ones.

    Example:
        >>> runs([0, 1, 2, 7])
        [range(0, 3), range(7, 8)]
    """
    found: list[range] = []
    for number in numbers:
        if found and found[-1].stop == number:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


def shown_runs(numbers: Iterable[int]) -> str:
    """Returns ascending numbers as text, at most six runs of them.

    Example:
        >>> shown_runs([0, 1, 2, 7])
        '0 to 2, 7'
    """
    found = runs(numbers)
    texts = [f"{run.start}" if len(run) == 1 else f"{run.start} to {run[-1]}" for run in found]
    more = [f"{len(texts) - _WRITTEN_RUNS:,} more runs"] if len(texts) > _WRITTEN_RUNS else []
    return ", ".join([*texts[:_WRITTEN_RUNS], *more])
