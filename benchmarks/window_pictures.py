"""The picture of docs/streams.md: the error of a sum against the number of windows that are summed.

    python benchmarks/window_pictures.py docs/error_by_windows.svg

Closed forms, which `tests/mechanisms/test_window_plan.py` compares with simulated horizons.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.domain.horizon import Horizon, WindowUnit
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.windows.plan import plan_window_tables
from beam_dp.queries.workload import Workload
from benchmarks.pictures import Axis, Line, lines

NUM_WINDOWS, DAY, SHARE = 168, 24, 0.3
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 96, 120, 144, 168)
# c, whether days are measured, too, and how the line is drawn.
LINES: dict[str, tuple[int, Any, int, str]] = {
    "c = 168": (168, "independent", 6, ""),
    "c = 7": (7, "independent", 3, ""),
    "c = 7, 30 % for days": (7, "levels", 3, "dashed"),
    "c = 1": (1, "independent", 2, ""),
    "c = 1, 30 % for days": (1, "levels", 2, "dashed"),
}


def errors(most: int, strategy: Any) -> list[float]:
    """Returns the root mean squared errors of sums of ``LENGTHS`` windows, in records a cell.

    Args:
        most: in how many windows of the week records of a unit are used.
        strategy: ``independent``, or ``levels`` with a share for days.
    """
    plan = plan_window_tables(
        Workload(Domain((IntegerAttribute("age", 0, 9),)), (("age",),)),
        Horizon(0, "1h", NUM_WINDOWS, 0),
        WindowUnit("person_id", 1, most, NUM_WINDOWS),
        epsilon=1.0,
        delta=1e-9,
        strategy=strategy,
        block=DAY,
        share=SHARE,
    )
    return [plan.error(f"trailing:{length}") for length in LENGTHS]


def picture() -> str:
    """Returns the picture of all lines."""
    drawn = [
        Line(
            label,
            [(x, y, 0.0) for x, y in zip(LENGTHS, errors(most, strategy), strict=True)],
            *style,
        )
        for label, (most, strategy, *style) in LINES.items()
    ]
    across = Axis("windows of an hour that are summed", (1, 3, 6, 12, 24, 48, 96, 168))
    title = "Error of a sum against the number of windows that are summed"
    return lines(title, {"": drawn}, across, Axis("error of one cell, in records"))


def main() -> None:
    """Draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", help="an SVG file")
    pathlib.Path(parser.parse_args().output).write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
