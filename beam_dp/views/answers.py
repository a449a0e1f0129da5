"""What `beam-dp describe`, `report` and `answer` show of answers."""

from __future__ import annotations

import argparse
import collections
from typing import TYPE_CHECKING, Any, NoReturn

from beam_dp.errors import InputError
from beam_dp.flags.questions import refuse_others
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.views import terminal
from beam_dp.views.cells import Truth
from beam_dp.views.markup import folded, table
from beam_dp.views.page import Told, noise_words

if TYPE_CHECKING:
    from rich.console import RenderableType


_CARD_OF_ANSWERS = (
    ("num_records", "records"),
    ("settings", "settings"),
    ("plan", "plan"),
    ("versions", "made with"),
)
_SHOWN_ANSWERS = 40


def describe(release: AnswersRelease) -> RenderableType:
    """Returns tables with the fields of the card and how many answers each route gave."""
    routes = collections.Counter(
        "refused" if row["error"] is not None else row["route"] for row in release.rows
    )
    refused = routes["refused"]
    headline = f"Answers to {len(release.rows) - refused:,} queries; {refused:,} were refused."
    rows = [(str(route), f"{number:,}") for route, number in routes.most_common()]
    facts = {"mechanism": release.mechanism, **terminal.promise_facts(release.guarantee)}
    facts["draw"] = release.draw_id
    tables: dict[str, dict[str, Any]] = {"release": facts}
    for key, title in _CARD_OF_ANSWERS:
        entry = release.card.get(key)
        if isinstance(entry, dict):
            # The first table states the guarantee.
            tables[title] = {name: value for name, value in entry.items() if name != "guarantee"}
    return terminal.below_each_other(
        [
            terminal.plain_text(headline, "bold"),
            *terminal.facts_tables(tables),
            terminal.plain_table(("route", "answers"), rows, (1,)),
        ]
    )


def report(release: AnswersRelease, _: Truth | None) -> Told:
    """Returns the sections about the answers and about their noise."""
    rows = [row for row in release.rows if row.get("error") is None]
    refused = len(release.rows) - len(rows)
    routes = collections.Counter(str(row.get("route")) for row in rows)
    shown = []
    for row in rows[:_SHOWN_ANSWERS]:
        values = [row.get(name) for name in ("value", "standard_error", "bound")]
        numbers = ["not stated" if value is None else terminal.short(value) for value in values]
        shown.append((str(row.get("query", "")), *numbers))
    header = ("query", "records", "standard error", "within")
    caption = f"The first {len(shown):,} answers"
    by_route = table("Answers by route", ("route", "answers"), routes.most_common(), (1,))
    return Told(
        "Answers to queries",
        f"Queries answered: {len(rows):,}; refused: {refused:,}",
        "",
        {},
        {
            "Answers": (table(caption, header, shown, (1, 2, 3)) if shown else "")
            + folded("Answers by route", by_route)
        },
        noise_words(release.noise),
    )


def answer(_: AnswersRelease, options: argparse.Namespace) -> NoReturn:
    """Raises an error: a release of answers can't answer further queries."""
    refuse_others(options, ("interval", "quantile", "sparse"))
    condition = "contains answers and can't answer further queries: see beam-dp describe"
    raise InputError("release", options.directory, condition)
