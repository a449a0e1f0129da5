"""The table and the picture of ``error_by_queries.py``."""

from __future__ import annotations

import pathlib
from typing import Any

# The order of the table; colours are told apart without red and green.
_LINES = {
    "uniform": ("uniform, no data", "#999999", ":"),
    "laplace": ("Laplace, pure", "#e69f00", "-"),
    "gaussian": ("Gaussian", "#d55e00", "-"),
    "mwem": ("MWEM", "#0072b2", "-"),
    "mwem_textbook": ("MWEM, textbook", "#56b4e9", "--"),
    "private_mw": ("PrivateMW", "#009e73", "-"),
    "small_db": ("SmallDB, pure", "#cc79a7", "-"),
}
_TITLES = {
    "conjunctions": "65,536 cells, random conjunctions",
    "subsets": "16 cells, random sets of cells",
}
# Growth in |Q|, drawn from the least number of queries on.
_GUIDES = {"laplace": (1.0, "|Q|"), "gaussian": (0.5, "sqrt |Q|")}


def markdown(rows: list[dict[str, Any]]) -> str:
    """Returns the tables of the largest and of the mean error."""
    parts = [
        "# Error against the number of queries\n\n"
        "`BEAM_DP_DATA=DIR python benchmarks/error_by_queries.py` makes this page, its JSON and"
        " the picture\nin docs/mechanisms.md, which says what was measured. NLTCS, 21,574"
        " records, epsilon 1, delta 1e-9 (0\nfor Laplace and SmallDB), add-or-remove-one, public"
        " number of records. Errors are shares of the\nrecords, of answers as they come, not"
        " clipped; means over up to 10 runs with standard errors; one run where no error\nis given,"
        " for long runs are repeated less.\n"
    ]
    for panel, title in _TITLES.items():
        for kind in ("largest", "mean"):
            parts.append(f"\n## {title}: {kind} error\n\n{_table(rows, panel, kind)}")
    return "".join(parts)


def _table(rows: list[dict[str, Any]], panel: str, kind: str) -> str:
    here = {(row["mechanism"], row["num_queries"]): row for row in rows if row["panel"] == panel}
    numbers = sorted({number for _, number in here})
    lines = ["| queries | " + " | ".join(f"{number:,}" for number in numbers) + " |"]
    lines.append("| --- " * (len(numbers) + 1) + "|")
    for name, (label, _, _) in _LINES.items():
        cells = [_cell(here.get((name, number)), kind) for number in numbers]
        if any(cells):
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, Any] | None, kind: str) -> str:
    if row is None:
        return ""
    mean, spread = row[kind]
    return f"{mean:.2g}" if row["runs"] == 1 else f"{mean:.2g} ± {spread:.1g}"


def draw(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Draws the largest errors of both panels; the same bytes for the same rows.

    Args:
        rows: as measured.
        path: an SVG file.
    """
    # Only the picture needs it: it comes with the extra named benchmarks.
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "error_by_queries", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    figure, all_axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
    for axes, (panel, title) in zip(all_axes, _TITLES.items(), strict=True):
        for name, (label, colour, style) in _LINES.items():
            found = [row for row in rows if (row["panel"], row["mechanism"]) == (panel, name)]
            if not found:
                continue
            numbers = [row["num_queries"] for row in found]
            errors, spreads = zip(*(row["largest"] for row in found), strict=True)
            axes.errorbar(
                numbers, errors, yerr=spreads, label=label, color=colour, linestyle=style,
                marker="o", markersize=3, capsize=2,
            )  # fmt: skip
            if name in _GUIDES:
                power, text = _GUIDES[name]
                guide = [errors[-1] * (number / numbers[-1]) ** power for number in numbers]
                axes.plot(numbers, guide, color=colour, linewidth=0.6, linestyle="--")
                axes.annotate(
                    text, (numbers[-1], guide[-1]), (0, 5), textcoords="offset points",
                    ha="right", color=colour,
                )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.set_title(title)
        axes.set_xlabel("number of queries |Q|")
        axes.grid(True, which="major", linewidth=0.3)
    all_axes[0].set_ylabel("largest error, share of the records")
    handles = {}
    for axes in all_axes:
        handles.update(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
