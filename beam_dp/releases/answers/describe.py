"""What `beam-dp describe` shows of a release of answers."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from beam_dp.releases.answers.release import AnswersRelease

if TYPE_CHECKING:
    from rich.console import RenderableType

from beam_dp.reports.terminal import below_each_other, facts_tables, plain_table, promise_facts

_CARD_OF_ANSWERS = (
    ("num_records", "records"),
    ("settings", "settings"),
    ("plan", "plan"),
    ("versions", "made with"),
)


def describe_answers(release: AnswersRelease) -> RenderableType:
    """Returns what a release of answers promises, and how its queries were answered.

    Returns:
        Tables of the card, and of the numbers of answers by route.
    """
    routes = collections.Counter(
        "refused" if row["error"] is not None else row["route"] for row in release.rows
    )
    rows = [(str(route), f"{number:,}") for route, number in routes.most_common()]
    card = release.card
    facts = {"mechanism": card.get("mechanism"), **promise_facts(release.guarantee)}
    facts["draw"] = release.draw_id
    tables: dict[str, dict[str, Any]] = {"release": facts}
    for key, title in _CARD_OF_ANSWERS:
        held = card.get(key)
        if isinstance(held, dict):
            # What the promise says is not said twice.
            said = {name: value for name, value in held.items() if name != "guarantee"}
            tables[title] = said
    return below_each_other([*facts_tables(tables), plain_table(("route", "answers"), rows)])
