"""The picture of docs/streams.md: the error of a sum against the number of windows that are summed.

    pip install 'beam_dp[benchmarks]'
    python benchmarks/window_pictures.py docs/error_by_windows.svg

Closed forms, which `tests/mechanisms/test_window_errors.py` compares with simulated horizons.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.domain import Domain, IntegerAttribute
from beam_dp.mechanisms.window_tables import plan_window_tables
from beam_dp.queries.workload import Workload
from beam_dp.windows import Horizon, WindowUnit

NUM_WINDOWS, DAY, SHARE = 168, 24, 0.3
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 96, 120, 144, 168)
# c, and whether days are measured, too; colours are told apart without red and green.
LINES = {
    "c = 168": (168, "independent", "#cc79a7", "-"),
    "c = 7": (7, "independent", "#0072b2", "-"),
    "c = 7, 30 % for days": (7, "levels", "#0072b2", "--"),
    "c = 1": (1, "independent", "#d55e00", "-"),
    "c = 1, 30 % for days": (1, "levels", "#d55e00", "--"),
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


def draw(path: pathlib.Path) -> None:
    """Draws all lines; the same bytes each time.

    Args:
        path: an SVG file.
    """
    # Only the picture needs it: it comes with the extra named benchmarks.
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "error_by_windows", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for label, (most, strategy, colour, style) in LINES.items():
        axes.plot(LENGTHS, errors(most, strategy), label=label, color=colour, linestyle=style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xticks([1, 3, 6, 12, 24, 48, 96, 168], ["1", "3", "6", "12", "24", "48", "96", "168"])
    axes.set_yticks([1, 3, 10, 30, 100, 300, 1000], ["1", "3", "10", "30", "100", "300", "1,000"])
    axes.set_xlabel("windows of an hour that are summed")
    axes.set_ylabel("error of one cell, in records")
    axes.grid(True, which="major", linewidth=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", help="an SVG file")
    draw(pathlib.Path(parser.parse_args().output))


if __name__ == "__main__":
    main()
