"""What `beam-dp describe`, `report` and `answer` show of a domain."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from beam_dp.domain.discover import OpenAttribute
from beam_dp.errors import InputError, shown
from beam_dp.flags.questions import refuse_others
from beam_dp.releases.domain.release import DomainRelease, Found
from beam_dp.releases.earlier_stage import not_described
from beam_dp.views import terminal
from beam_dp.views.cells import Truth, column_warnings
from beam_dp.views.markup import table
from beam_dp.views.page import Told, noise_words
from beam_dp.views.terminal import counted

if TYPE_CHECKING:
    from rich.console import RenderableType


_SHOWN_LEVELS = 20
_ABOUT = (
    "Numbers of privacy units are noisy, and those of values that were found are too large by"
    " chance. All other values of a column are in other. Missing and unreadable values of a column"
    " of bins are in its middle bin, if neither null nor other has a level."
)
_ABOUT_TYPES = (
    "Numbers of privacy units are noisy. A value votes for the narrowest type that reads it; an"
    " unclear vote means text."
)


def describe(release: DomainRelease) -> RenderableType:
    """Returns tables of the guarantee, the noise and the levels of every open attribute."""
    whole = release.discovered.whole
    facts = {
        "mechanism": release.mechanism,
        **terminal.promise_facts(release.guarantee),
        "with the release": f"{terminal.guarantee_text(whole)}, for this domain and the release"
        " that uses it",
        "draw": release.draw_id,
    }
    parts: list[RenderableType] = [
        terminal.plain_text(f"{found_text(release)}.", "bold"),
        *(
            terminal.plain_text(f"Warning: {warning}.", "bold")
            for warning in column_warnings(not_described(release.result.attributes, {}))
        ),
        *terminal.facts_tables({"release": facts}),
    ]
    for attribute, result, noise in release.columns():
        fields = {name: value for name, value in noise.items() if name != "measured"}
        rows = _rows(attribute, result)
        parts += terminal.facts_tables({f"noise of {shown(attribute.name)}": fields})
        parts.append(terminal.plain_table(_header(attribute), rows[:_SHOWN_LEVELS], (1, 2)))
        if len(rows) > _SHOWN_LEVELS:
            parts.append(terminal.plain_text(f"and {len(rows) - _SHOWN_LEVELS:,} more"))
    parts.append(terminal.plain_text(_ABOUT_TYPES if release.readings else _ABOUT))
    fields = {name: value for name, value in release.plan.items() if name != "job"}
    rest = {"parameter": fields, "made with": release.versions}
    return terminal.below_each_other([*parts, *terminal.facts_tables(rest)])


def report(release: DomainRelease, _: Truth | None) -> Told:
    """Returns one section per open attribute, and the noise."""
    sections = {
        f"Found in {attribute.name[:60]}": table(
            attribute.name, _header(attribute), _rows(attribute, result), (1, 2)
        )
        for attribute, result, _ in release.columns()
    }
    noise = noise_words(release.noise)
    warnings = column_warnings(not_described(release.result.attributes, {}))
    about = _ABOUT_TYPES if release.readings else _ABOUT
    return Told("Domain", found_text(release), about, {}, sections, noise, warnings)


def found_text(release: DomainRelease) -> str:
    """Returns the types, or the numbers of values and bins, that were found, in one line."""
    texts = [f"{reading} for {name}" for name, reading in release.readings.items()] or [
        f"{counted(len(result.counts), 'value' if attribute.has_values else 'bin')} of"
        f" {attribute.name}"
        for attribute, result, _ in release.columns()
    ]
    more = f" and those of {len(texts) - 6:,} more attributes" if len(texts) > 6 else ""
    return f"Found {', '.join(texts[:6])}{more}"


def _header(attribute: OpenAttribute) -> tuple[str, str, str]:
    return attribute.name, "privacy units", "standard error"


def _rows(attribute: OpenAttribute, result: Found) -> list[tuple[str, str, str]]:
    """Returns the found levels with their noisy counts."""
    if not attribute.has_bins:
        labels = [str(value) for value in result.values]
    else:
        closed = attribute.closed(result.values)
        labels = [closed.label(code) for code in range(len(result.counts))]
    numbers = zip(result.counts.tolist(), result.standard_errors.tolist(), strict=True)
    return [
        (label, f"{count:,.0f}", terminal.short(error))
        for label, (count, error) in zip(labels, numbers, strict=True)
    ]


def answer(_: DomainRelease, options: argparse.Namespace) -> NoReturn:
    """Raises an error: a domain only lists what was found."""
    refuse_others(options, ("interval", "quantile", "sparse"))
    condition = "is a domain, which answers no queries: see beam-dp describe"
    raise InputError("release", options.directory, condition)
