"""The report of answers."""

from __future__ import annotations

import collections
from typing import Any

from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.reports.about import Told, noise_section
from beam_dp.reports.cells import Counts
from beam_dp.reports.markup import paragraph, section, table, text

_SHOWN_ANSWERS = 40


def report_answers(release: AnswersRelease, _: Counts | None) -> Told:
    """Returns the sections about the answers and about their noise."""
    rows = [row for row in release.rows if row.get("error") is None]
    refused = len(release.rows) - len(rows)
    routes = collections.Counter(str(row.get("route")) for row in rows)
    words = f"Queries answered: {len(rows):,}; refused: {refused:,}."
    shown = [
        (
            str(row.get("query", "")),
            *(_cell_value(row.get(name)) for name in ("value", "standard_error", "bound")),
        )
        for row in rows[:_SHOWN_ANSWERS]
    ]
    header = ("query", "records", "standard error", "within")
    caption = f"The first {len(shown):,} answers"
    return Told(
        "Answers",
        {"Answers": f"{len(rows):,}"},
        [
            section(
                "Answers",
                paragraph(text(words)),
                table("Answers by route", ("route", "answers"), routes.most_common(), (1,)),
                table(caption, header, shown, (1, 2, 3)) if shown else "",
            ),
            noise_section(release.noise),
        ],
    )


def _cell_value(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, int | float) else "not stated"
