"""Tables and texts about releases for terminals and notebooks."""

from __future__ import annotations

import datetime
import io
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from beam_dp.checks import is_integer
from beam_dp.errors import InputError
from beam_dp.installed import check_installed
from beam_dp.views.markup import table, text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from beam_dp.privacy.guarantee import Guarantee
    from beam_dp.releases.release import AnyRelease, LeftOut

_SHOWN_NOISE = 10
_SHOWN_ITEMS = 6
_SHOWN_FOUND = 8
_LISTED, NAMED = 3, 12  # the number of names in a cell of a table, and in a sentence
_MOST_BARS = 60


def plain_table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Container[int] = ()
) -> Table:
    """Returns a table without lines; the strings may come from an untrusted release."""
    from rich.table import Table

    padding = (0, 2 if numbers else 3, 0, 0)
    table = Table(box=None, pad_edge=False, padding=padding, header_style="bold")
    for place, name in enumerate(header):
        justify: Literal["left", "right"] = "right" if place in numbers else "left"
        table.add_column(plain_text(name), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(plain_text, row))
    return table


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[int]
) -> None:
    """Prints a ``plain_table``."""
    from rich.console import Console

    Console().print(plain_table(header, rows, numbers))


def print_shown(number: int, total: int, noun: str) -> None:
    """Prints a line if a table does not show everything."""
    if number < total:
        print_wrapped(f"{number:,} of {total:,} {noun}; --limit shows more")


def print_wrapped(text: str) -> None:
    """Prints a sentence below a table, in lines of the width of the terminal."""
    from rich.console import Console

    if text:
        Console(highlight=False).print(plain_text(text))


def surely(failure_probability: float) -> str:
    """Returns the probability that a bound is kept, in words that start a sentence or follow it."""
    if failure_probability < 1e-4:  # not to be rounded to 100 %
        return f"except with probability {failure_probability:g}"
    return f"with probability {100 * (1 - failure_probability):.6g} %"


def together_text(failure_probability: float) -> str:
    """Returns the sentence about bounds that all answers keep at once."""
    start = surely(failure_probability)
    return f"{start[0].upper()}{start[1:]}, all answers are within their ± (proved) of the truth."


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Returns a number followed by a noun in the singular or plural."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def some(texts: Sequence[str]) -> str:
    """Returns the first texts of a list, for one line."""
    return ", ".join(texts[:_SHOWN_FOUND]) + (", ..." if len(texts) > _SHOWN_FOUND else "")


def words_of(texts: Sequence[str], limit: int = _LISTED) -> str:
    """Returns the first few texts, and how many more there are."""
    shown, num_more = ", ".join(texts[:limit]), len(texts) - limit
    return shown if num_more <= 0 else f"{shown} and {num_more:,} more"


def short(number: float) -> str:
    """Returns a number with three digits or, from 100 to below a million, as an integer."""
    if not math.isfinite(number):
        return "none"
    size = abs(number)
    if size >= 999_999.5:
        return next(
            f"{number / unit:,.2f}{letter}" if size < 1e15 else f"{number:.2e}"
            for unit, letter in ((1e12, " T"), (1e9, " G"), (1e6, " M"))
            if size >= 0.999_999_5 * unit
        )
    return f"{number:,.0f}" if size >= 99.95 else f"{number or 0.0:.3g}"


def guarantee_text(guarantee: Guarantee) -> str:
    """Returns epsilon, delta and the neighbouring relation as text."""
    relation = guarantee.neighboring.value.replace("_", " ")
    return f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g}, {relation}"


def unit_text(guarantee: Guarantee) -> str:
    """Returns a short description of the unit that a guarantee protects."""
    if guarantee.privacy_unit == "record":
        return "a record"
    limit = guarantee.max_records_per_unit
    used = "1 record is used" if limit == 1 else f"{limit:,} records are used"
    return f"one {guarantee.privacy_unit}, of which at most {used}"


def promise_facts(guarantee: Guarantee) -> dict[str, str]:
    """Returns the guarantee and the protected unit as facts."""
    return {"promise": guarantee_text(guarantee), "protects": unit_text(guarantee)}


def printed_lines(shown: RenderableType) -> list[str]:
    """Returns the lines that ``rich`` prints, without colours."""
    from rich.console import Console

    file = io.StringIO()
    # In Jupyter, rich would show HTML in place of writing to the file.
    console = Console(
        file=file, width=100, force_terminal=False, force_jupyter=False, color_system=None
    )
    console.print(shown)
    return file.getvalue().splitlines()


def below_each_other(parts: Sequence[RenderableType]) -> RenderableType:
    """Returns a group of tables, separated by empty lines."""
    from rich.console import Group
    from rich.text import Text

    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text()]
    return Group(*spaced[:-1])


def left_out_facts(left_out: LeftOut | None) -> dict[str, str]:
    """Returns facts about the count of records outside the domain and the budget of the count."""
    if left_out is None:
        return {}
    parts = {"release": "the release", "left_out": "the count of records outside the domain"}
    shares = [
        f"epsilon {left_out.budget[name]['epsilon']:.4g}, delta {left_out.budget[name]['delta']:g}"
        f" for {what}"
        for name, what in parts.items()
    ]
    sure = surely(left_out.failure_probability)
    return {
        "budget": "; ".join(shares),
        "left out": f"{left_out.total:,} records outside the domain (a noisy count with standard"
        f" error {left_out.sum_standard_error:,.1f}; {sure} within {left_out.sum_bound:,.0f} of"
        " the truth)",
    }


def left_out_table(left_out: LeftOut) -> RenderableType:
    """Returns a table with the counts of records outside the domain, the largest count first."""
    counts = sorted(left_out.counts.items(), key=lambda pair: -pair[1])
    rows = [(f"attribute {name}", value) for name, value in counts[:_SHOWN_NOISE]]
    if left_out.impossible is not None:
        rows.append(("an impossible combination", left_out.impossible))
    errors = (left_out.standard_error, left_out.bound)
    shown = [(place, f"{value:,}", *map(short_value, errors)) for place, value in rows]
    if len(counts) > _SHOWN_NOISE:
        shown.append((f"and {len(counts) - _SHOWN_NOISE:,} more: see card.json", "", "", ""))
    return plain_table(("left out at", "records", "standard error", "bound"), shown, (1, 2, 3))


def facts_tables(facts: Mapping[str, Mapping[str, Any]]) -> list[RenderableType]:
    """Returns one table of names and values for each title with values."""
    return [
        plain_table((title, ""), [(key, short_value(value)) for key, value in values.items()])
        for title, values in facts.items()
        if values
    ]


def first_lines(title: str, entries: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Returns a table of the first entries of a card, one entry per line."""
    lines = [
        ", ".join(f"{key} {short_value(value)}" for key, value in entry.items())
        for entry in entries[:_SHOWN_NOISE]
    ]
    if len(entries) > _SHOWN_NOISE:
        lines.append(f"and {len(entries) - _SHOWN_NOISE:,} more: see card.json")
    return plain_table((title,), [(line,) for line in lines])


def noise_table(entries: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Returns a table of measurements with the distribution and the scale of the noise."""
    from rich.console import Group
    from rich.text import Text

    rows = [_noise_row(entry) for entry in entries[:_SHOWN_NOISE]]
    if len(entries) > _SHOWN_NOISE:
        rows.append((f"and {len(entries) - _SHOWN_NOISE:,} more: see card.json", "", "", ""))
    header = ("measured", "noise of a cell", "scale", "standard deviation")
    parts: list[RenderableType] = [plain_table(header, rows, (2, 3))]
    if any("standard_deviation" in entry for entry in entries):
        parts.append(Text("Scale and standard deviation are measured in records."))
    if any(_is_residual(entry) for entry in entries):
        parts.append(Text("(beyond): the part that smaller tables do not explain."))
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
        scale /= grid  # grid units to records
    deviation = entry.get("standard_deviation")
    error = "" if deviation is None else short_value(deviation)
    return measured, noise_text(entry.get("distribution")), short_value(scale), error


def noise_text(distribution: Any) -> str:
    """Returns the name of a distribution as people write it, such as ``discrete Laplace``."""
    words = short_value(distribution).replace("_", " ")
    return words.replace("laplace", "Laplace").replace("gaussian", "Gaussian")


def _is_residual(entry: Mapping[str, Any]) -> bool:
    return entry.get("measured") == "residual"


def short_value(value: Any) -> str:
    """Returns a value of a card as a string that is short enough for a table."""
    if value is None:
        return "not stated"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        shown = " ".join(short_value(inner) for inner in value[:_SHOWN_ITEMS])
        return shown + (f" ... ({len(value):,})" if len(value) > _SHOWN_ITEMS else "")
    if isinstance(value, dict):
        return "; ".join(f"{key} {short_value(inner)}" for key, inner in value.items())
    return str(value)


def plain_text(text: str, style: str = "") -> Text:
    """Returns a string as a ``Text`` without markup and control characters."""
    from rich.text import Text

    shown = (letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return Text("".join(shown), style=style)


def moment(seconds: int, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """Returns a time in UTC, or the seconds since 1970 if ``datetime`` can't represent the time."""
    try:
        time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return str(seconds)
    return time.strftime(form)


def summary_of(release: AnyRelease) -> str:
    """Returns what `beam-dp describe` prints, as plain text."""
    from beam_dp.releases.parts import view_of

    shown = view_of(release.KIND).describe(release)
    return "\n".join(line.rstrip() for line in printed_lines(shown))


def release_html(release: AnyRelease) -> str:
    """Returns the summary of a release as HTML."""
    lines = "\n".join(map(text, summary_of(release).splitlines()))
    return f"<pre>{lines}</pre>"


def plan_html(mechanism: str, guarantee: Guarantee, public: Mapping[str, Any]) -> str:
    """Returns a table of what a plan promises and of its public parameters."""
    facts = {"mechanism": mechanism, **promise_facts(guarantee)}
    facts |= {name: short_value(value) for name, value in public.items()}
    return table("Plan", ("parameter", "value"), facts.items())


def answers_html(columns: Sequence[tuple[bool, Sequence[str]]], number: int) -> str:
    """Returns a table of answers; a column is whether it is text, its name and its values."""
    names, *rows = zip(*(values for _, values in columns), strict=True)
    numbers = [place for place, (is_text, _) in enumerate(columns) if not is_text]
    caption = "Answers" if number == len(rows) else f"{len(rows)} of {number:,} answers"
    return table(caption, names, rows, numbers)


def plot_answers(columns: Mapping[str, Sequence[Any]], num_groups: int, axes: Any) -> Any:
    """Draws a bar for each answer, with its margin, by matplotlib; returns the axes."""
    check_installed("matplotlib")
    from matplotlib import pyplot

    names = list(columns)
    groups, answer = names[:num_groups], names[num_groups]
    values = [0.0 if value is None else value for value in columns[answer]]
    if len(values) > _MOST_BARS:
        condition = f"must be at most {_MOST_BARS} bars: ask about fewer groups"
        raise InputError("plot", len(values), condition)
    margins = [0.0 if margin is None else margin for margin in columns.get("margin", ())]
    written = [map(str, columns[name]) for name in groups]
    labels = [", ".join(row) for row in zip(*written, strict=True)] or [answer]
    if axes is None:
        _, axes = pyplot.subplots(layout="constrained")
    places = range(len(values))
    axes.bar(places, values, yerr=margins or None, capsize=3)
    axes.set_xticks(places, labels, rotation=0 if max(map(len, labels)) < 8 else 90)
    axes.set_xlabel(", ".join(groups))
    axes.set_ylabel(f"{answer}, with 95 % margins")
    return axes
