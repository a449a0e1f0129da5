"""What notebooks show of releases, plans and answers, and pictures of answers by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_dp.errors import InputError
from beam_dp.views.markup import table, text
from beam_dp.views.terminal import printed_lines, promise_facts, short_value

if TYPE_CHECKING:
    from beam_dp.privacy.guarantee import Guarantee
    from beam_dp.releases.release import AnyRelease

_MOST_BARS = 60


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
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InputError("plot", "matplotlib", "must be installed") from None
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
