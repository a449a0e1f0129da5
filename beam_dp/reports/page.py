"""The report of a release: one page that needs no network and runs nothing."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from beam_dp.releases.kinds import of_kind
from beam_dp.releases.release import AnyRelease
from beam_dp.reports.about import (
    Told,
    citation_section,
    ledger_section,
    promise_section,
)
from beam_dp.reports.markup import folded, paragraph, section, table, text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from beam_dp.privacy.ledger.entries import Entry
    from beam_dp.reports.truth import Truth
    from beam_dp.verification.verdict import Verification

STYLE = pathlib.Path(__file__).with_name("style.css")

_PRIVATE = "PRIVATE: holds exact counts of records. Do not share."
# Nothing is loaded and no script runs, even if a text should have slipped through unescaped.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclasses.dataclass(frozen=True)
class Beside:
    """What a report shows beside the release itself.

    Args:
        details: what `beam-dp describe` prints.
        verdict: what `beam-dp verify` says last; or why it refuses the card.
        verification: that led to it; None where there is none.
        entry: of the ledger that paid, where it was asked.
        truth: of the records, where their owner compares. Private.
    """

    details: RenderableType
    verdict: str = ""
    verification: Verification | None = None
    entry: Entry | None = None
    truth: Truth | None = None


def report_page(release: AnyRelease, beside: Beside) -> str:
    """Returns the report of a release as one HTML file.

    Args:
        release: of any kind; every text that it holds may be hostile.
        beside: what is known from elsewhere. With ``truth`` the page is as private as the records,
            and says so in its title, on its screen, and on each printed page.

    Returns:
        Of the same arguments the same text, of under 2 MB.

    Raises:
        ReleaseError: if a window of a horizon is damaged.

    Cost: the cells of all attributes and of up to 400 pairs are asked: seconds.
    """
    told: Told = of_kind("report", release, beside.truth)
    is_private = beside.truth is not None
    title = f"{told.title}: differentially private release {release.id[:8]}"
    promise = promise_section(release, told.facts, beside.verdict, beside.verification)
    shown = section(
        "All that the card says", folded("What beam-dp describe prints", details(beside.details))
    )
    parts = [
        _truth_words(beside.truth),
        promise,
        *told.sections,
        ledger_section(release, beside.entry),
        citation_section(release, beside.verification),
        shown,
    ]
    name, mechanism = text(release.id), text(release.mechanism)
    lead = paragraph(f"Mechanism {mechanism}, {release.ID_OF} <code>{name}</code>", "muted")
    kind = ' class="is-private"' if is_private else ""
    mark = f'<div class="each-page" aria-hidden="true">{_PRIVATE}</div>' if is_private else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{'PRIVATE: ' if is_private else ''}{text(title)}</title>\n"
        f"<style>\n{STYLE.read_text('utf-8')}</style>\n</head>\n"
        f"<body{kind}>\n{mark}"
        f"<header><h1>{text(told.title)}</h1>{lead}</header>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n<footer><p>Made by <code>beam-dp report</code> from the release"
        + (" and its records" if is_private else " alone")
        + ". It loads nothing and runs nothing.</p></footer>\n</body>\n</html>\n"
    )


def _truth_words(truth: Truth | None) -> str:
    if truth is None:
        return ""
    words = (
        f"{_PRIVATE} It compares the release with the {truth.num_records:,} records that it is"
        f" about. Left out were {truth.num_left_out:,} outside the domain"
    )
    if truth.num_beyond:
        words += f" and {truth.num_beyond:,} beyond the limit of their unit"
    return paragraph(text(f"{words}.", 400), "private")


def details(shown: RenderableType) -> str:
    """Returns tables and texts of ``rich`` as HTML, in their order."""
    return "".join(_parts(shown))


def _parts(shown: RenderableType) -> Iterator[str]:
    if isinstance(shown, Group):
        for each in shown.renderables:
            yield from _parts(each)
    elif isinstance(shown, Table):
        header = [str(column.header) for column in shown.columns]
        cells = [map(str, column.cells) for column in shown.columns]
        rows = list(itertools.zip_longest(*cells, fillvalue=""))
        yield table(header[0], ["" if not each.strip() else each for each in header], rows)
    elif isinstance(shown, Text) and shown.plain.strip():
        yield paragraph(text(shown.plain, 1_000))
