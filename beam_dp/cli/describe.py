"""Plain tables of the card of a synthetic database or of released answers."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_dp.checks import is_integer
from beam_dp.cli.tables import counted, guarantee_text, unit_text
from beam_dp.domain import Attribute
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.errors import magnitude
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload
from beam_dp.releases.answers import AnswersRelease
from beam_dp.releases.left_out import LeftOut
from beam_dp.releases.synthetic_database import SyntheticDatabase

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_SHOWN_MARGINALS = 20
_SHOWN_NOISE = 10
_SHOWN_LABELS = 6
_CARD_OF_ANSWERS = (
    ("num_records", "records"),
    ("settings", "settings"),
    ("plan", "plan"),
    ("versions", "made with"),
)
_LABEL_LETTERS = 44  # of all that are shown of an attribute: its row fits 80 columns


def describe(release: SyntheticDatabase) -> RenderableType:
    """Returns what a release promises and how wrong it can be, for ``rich`` to print.

    Args:
        release: the release.

    Returns:
        Tables of the guarantee, the attributes, the errors and the noise.

    Example:
        >>> rich.print(describe(read_release("out/visits")))  # doctest: +SKIP
    """
    origin = "public" if release.num_records_is_public else "a noisy count"
    error = release.errors.get((), {}).get("standard_error")
    if error is not None and not release.num_records_is_public:
        origin += f", standard error {error:,.1f}"
    cells = magnitude(release.domain.num_cells)
    facts = {
        "mechanism": release.mechanism,
        **promise_facts(release.guarantee),
        "records": f"{release.num_records:,} ({origin})",
        **_small_facts(release),
        **_bins_facts(release),
        **left_out_facts(release.left_out),
        "cells": f"{cells} in the domain, {len(release.counts):,} released",
        "workload": workload_text(release.workload),
        "draw": release.draw_id,
    }
    attributes = map(_attribute_row, release.domain)
    parts: list[RenderableType] = [
        *facts_tables({"release": facts}),
        plain_table(("attribute", "type", "codes", "levels"), attributes),
    ]
    if release.domain.impossible:
        parts.append(first_lines("impossible", release.domain.to_json()["impossible"]))
    if release.left_out is not None:
        parts.append(left_out_table(release.left_out))
    parts.append(_errors(release))
    if release.noise:
        parts.append(noise_table(release.noise))
    rest = {"parameter": release.parameters, "fit": release.fit, "made with": release.versions}
    return below_each_other([*parts, *facts_tables(rest)])


def describe_answers(release: AnswersRelease) -> RenderableType:
    """Returns what a release of answers promises, and how its queries were answered.

    Args:
        release: the answers.

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


def workload_text(workload: Workload) -> str:
    """Returns how large a workload is, in a few words."""
    return f"{counted(len(workload), 'marginal')}, {counted(workload.num_cells(), 'cell')}"


def promise_facts(guarantee: Guarantee) -> dict[str, str]:
    """Returns what was promised, and to whom."""
    return {"promise": guarantee_text(guarantee), "protects": unit_text(guarantee)}


def below_each_other(parts: Sequence[RenderableType]) -> RenderableType:
    """Returns tables with an empty line between them."""
    from rich.console import Group
    from rich.text import Text

    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text()]
    return Group(*spaced[:-1])


def _small_facts(release: SyntheticDatabase) -> dict[str, str]:
    """What is told only of records that stand for more of them."""
    facts = {}
    if release.represented != release.num_records:
        facts["stand for"] = f"{release.represented:,} records: answers are scaled to them"
    if release.queries:
        told = counted(len(release.queries), "linear query", "linear queries")
        bound = release.query_error.get("bound")
        if bound is not None:
            beta = short_value(release.query_error.get("failure_probability"))
            told += f", all within {bound:,.1f} records, except with probability {beta}"
        facts["answers"] = told
    return facts


def _bins_facts(release: SyntheticDatabase) -> dict[str, str]:
    """What the released values of attributes with bins are, where there are any."""
    if not any(isinstance(attribute, BinnedAttribute) for attribute in release.domain):
        return {}
    drawn = "drawn uniformly in its bin: what is known of a value is its bin"
    return {"in bins": drawn if release.bin_values else "the middle of a bin stands for its values"}


def left_out_facts(left_out: LeftOut | None) -> dict[str, str]:
    """Returns how many records were left out, and from what budget that was paid."""
    if left_out is None:
        return {}
    shares = [
        f"epsilon {part['epsilon']:.4g}, delta {part['delta']:g} for {what}"
        for what, part in (
            ("the release", left_out.budget["release"]),
            ("the count of what was left out", left_out.budget["left_out"]),
        )
    ]
    beta = short_value(left_out.failure_probability)
    return {
        "budget": "; ".join(shares),
        "left out": f"{left_out.total:,} records outside the domain (a noisy count, standard error"
        f" {left_out.sum_standard_error:,.1f}; except with probability {beta} within"
        f" {left_out.sum_bound:,.0f} of the truth)",
    }


def left_out_table(left_out: LeftOut) -> RenderableType:
    """Returns the counts of records outside the domain, the largest first."""
    counts = sorted(left_out.counts.items(), key=lambda each: -each[1])
    rows = [(f"attribute {name}", value) for name, value in counts[:_SHOWN_NOISE]]
    if left_out.impossible is not None:
        rows.append(("an impossible combination", left_out.impossible))
    errors = (left_out.standard_error, left_out.bound, left_out.failure_probability)
    shown = [(place, f"{value:,}", *map(short_value, errors)) for place, value in rows]
    if len(counts) > _SHOWN_NOISE:
        shown.append((f"and {len(counts) - _SHOWN_NOISE:,} more: see card.json", "", "", "", ""))
    header = ("left out at", "records", "standard error", "bound", "fails with")
    return plain_table(header, shown)


def _errors(release: SyntheticDatabase) -> RenderableType:
    """The marginals of the workload, those with the largest error first."""
    from rich.console import Group
    from rich.text import Text

    def size(names: tuple[str, ...]) -> float:
        error = release.errors.get(names, {}).get("standard_error")
        return -1.0 if error is None else error

    ordered = sorted(release.workload, key=size, reverse=True)
    num_stated = sum(size(names) >= 0 for names in ordered)
    rows = []
    for names in ordered[:_SHOWN_MARGINALS]:
        error = release.errors.get(names, {})
        rows.append((", ".join(names), *(short_value(error.get(key)) for key in _ERROR_COLUMNS)))
    parts: list[RenderableType] = [plain_table(("marginal", *_ERROR_COLUMNS.values()), rows)]
    parts.append(
        Text("standard error of a cell and bound of all, in records; how often the bound fails")
    )
    smaller = num_stated - _SHOWN_MARGINALS
    if smaller > 0:
        parts.append(Text(f"and {smaller:,} more, with no larger errors"))
    not_shown = len(ordered) - max(num_stated, _SHOWN_MARGINALS)
    if not_shown > 0:
        parts.append(
            Text(f"and {not_shown:,} more that were not measured whole: no error is stated")
        )
    return Group(*parts)


_ERROR_COLUMNS = {
    "standard_error": "standard error",
    "bound": "bound",
    "failure_probability": "fails with",
}


def _attribute_row(attribute: Attribute) -> tuple[str, ...]:
    size = attribute.size

    def told(number: int) -> str:
        labels = [attribute.label(code) for code in range(number)]
        return "  ".join(labels if number == size else [*labels, "...", attribute.label(size - 1)])

    whole = [told(size)] if size <= _SHOWN_LABELS else []
    parts = [told(number) for number in range(min(size - 2, _SHOWN_LABELS - 1), 0, -1)]
    # Where none fits, the first and the last one are shown however long they are.
    fitting = [text for text in whole + parts if len(text) <= _LABEL_LETTERS]
    shown = (fitting or (whole + parts)[-1:])[0]
    return attribute.name, attribute.kind, f"{size:,}", shown


def plain_table(header: tuple[str, ...], rows: Any) -> RenderableType:
    """Returns a table without lines, of texts that a release may have chosen."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in header:
        table.add_column(plain_text(column), overflow="fold")
    for row in rows:
        table.add_row(*map(plain_text, row))
    return table


def facts_tables(facts: Mapping[str, Mapping[str, Any]]) -> list[RenderableType]:
    """Returns a table of names and values for each title that has any."""
    return [
        plain_table((title, ""), [(key, short_value(value)) for key, value in values.items()])
        for title, values in facts.items()
        if values
    ]


def first_lines(title: str, entries: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A table of the first entries of a card, one a line."""
    lines = [
        ", ".join(f"{key} {short_value(value)}" for key, value in entry.items())
        for entry in entries[:_SHOWN_NOISE]
    ]
    if len(entries) > _SHOWN_NOISE:
        lines.append(f"and {len(entries) - _SHOWN_NOISE:,} more: see card.json")
    return plain_table((title,), [(line,) for line in lines])


def noise_table(entries: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Returns what got noise, of which distribution, and how much of it.

    Args:
        entries: as a card states them; the first ones are shown, one a line.
    """
    from rich.console import Group
    from rich.text import Text

    rows = [_noise_row(entry) for entry in entries[:_SHOWN_NOISE]]
    if len(entries) > _SHOWN_NOISE:
        rows.append((f"and {len(entries) - _SHOWN_NOISE:,} more: see card.json", "", "", ""))
    header = ("noise", "of a cell", "scale", "standard deviation")
    parts: list[RenderableType] = [plain_table(header, rows)]
    if any("standard_deviation" in entry for entry in entries):
        parts.append(Text("scale and standard deviation of one cell's noise, in records"))
    if any(_is_residual(entry) for entry in entries):
        parts.append(Text("(beyond): what a table tells beyond those of fewer of its attributes"))
    return Group(*parts)


def _noise_row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    names = entry.get("attributes")
    if isinstance(names, list):
        measured = ", ".join(map(str, names)) or "number of records"
        measured += " (beyond)" if names and _is_residual(entry) else ""
    else:
        measured = short_value(entry.get("what", entry.get("tables")))
    scale, grid = entry.get("scale"), entry.get("grid", 1)
    if isinstance(scale, float) and is_integer(grid) and 0 < grid < 2**53:
        scale /= grid  # units of the grid make one record
    deviation = entry.get("standard_deviation")
    told = "" if deviation is None else short_value(deviation)
    return measured, noise_text(entry.get("distribution")), short_value(scale), told


def noise_text(distribution: Any) -> str:
    """Returns the name of a distribution as people write it.

    Example:
        >>> noise_text("discrete_laplace")
        'discrete Laplace'
    """
    words = short_value(distribution).replace("_", " ")
    return words.replace("laplace", "Laplace").replace("gaussian", "Gaussian")


def _is_residual(entry: Mapping[str, Any]) -> bool:
    return entry.get("measured") == "residual"


def short_value(value: Any) -> str:
    """Returns a value of a card, short enough for a table."""
    if value is None:
        return "not stated"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        shown = " ".join(short_value(each) for each in value[:_SHOWN_LABELS])
        return shown + (f" ... ({len(value):,})" if len(value) > _SHOWN_LABELS else "")
    if isinstance(value, dict):
        return "; ".join(f"{key} {short_value(each)}" for key, each in value.items())
    return str(value)


def plain_text(text: str) -> Text:
    """Returns the text without markup, and without control characters, which a terminal would obey.

    Args:
        text: anything, such as a name that a release holds.
    """
    from rich.text import Text

    shown = (letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return Text("".join(shown))
