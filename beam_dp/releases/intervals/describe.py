"""Plain tables of the card of interval counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.reports.terminal import (
    below_each_other,
    facts_tables,
    left_out_facts,
    noise_text,
    promise_facts,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


def describe_intervals(release: IntervalRelease) -> RenderableType:
    """Returns what a release of interval counts promises and how wrong it can be.

    Returns:
        Tables for ``rich`` to print: the guarantee, the attribute, errors, noise.
    """
    attribute = release.attribute
    num_leaves = release.num_leaves
    facts = {
        "counts": f"all {num_leaves * (num_leaves + 1) // 2:,} intervals of {attribute.name}",
        "strategy": release.choice[0],
        **promise_facts(release.guarantee),
        "levels": f"{num_leaves:,}, from {attribute.label(0)} to {attribute.label(num_leaves - 1)}",
        "error": f"{math.sqrt(release.mean_squared_error):,.1f} records,"
        " the root of the mean squared error over all intervals",
        "noise": f"{noise_text(release.choice[1])}, scale {release.scale / release.grid:.4g}",
        **left_out_facts(release.left_out),
        "draw": release.draw_id,
    }
    levels = {"other": "other", "nullable": "null"}
    left_out = [name for field, name in levels.items() if getattr(attribute, field)]
    if left_out:
        facts["not counted"] = f"records whose {attribute.name} is {' and '.join(left_out)}"
    tables = {"release": facts, "parameter": release.plan, "made with": release.versions}
    return below_each_other(facts_tables(tables))
