"""Plain tables of the card of tables of a window."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING

from beam_dp.releases.synthetic_database.describe import workload_text
from beam_dp.releases.windows.window import WindowTables
from beam_dp.reports.terminal import (
    below_each_other,
    facts_tables,
    noise_table,
    plain_table,
    promise_facts,
    short_value,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN_MARGINALS = 20


def describe_window(release: WindowTables) -> RenderableType:
    """Returns what the release of a window promises and how wrong it can be.

    Returns:
        Tables for ``rich`` to print: the guarantee, the window, errors, noise.
    """
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
        *facts_tables({"parameter": release.parameters, "made with": release.versions}),
    ]
    return below_each_other(parts)


def errors_table(release: WindowTables) -> RenderableType:
    """Returns the errors of the marginals of a window: those of every window of a horizon."""
    errors = [
        (", ".join(names), short_value(math.sqrt(release.variance(names))))
        for names in release.workload.marginals[:_SHOWN_MARGINALS]
    ]
    if len(release.workload) > len(errors):
        errors.append((f"and {len(release.workload) - len(errors):,} more", ""))
    return plain_table(("marginal", "standard error of a cell (records)"), errors)


def moment(seconds: int) -> str:
    """Returns a time in UTC, or the seconds since 1970 where no calendar has it."""
    try:
        time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return str(seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
