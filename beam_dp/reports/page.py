"""The report about a release: one HTML page that needs no network and runs no scripts."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from beam_dp.privacy.guarantee import RECORD, Guarantee, Neighboring
from beam_dp.releases.kinds import of_kind
from beam_dp.releases.release import AnyRelease, Release, library_versions
from beam_dp.reports.markup import facts, folded, paragraph, section, table, text
from beam_dp.reports.terminal import short, short_value

if TYPE_CHECKING:
    from rich.console import RenderableType

    from beam_dp.privacy.ledger.entries import Entry
    from beam_dp.reports.cells import Counts
    from beam_dp.verification.verdict import Verification

STYLE = pathlib.Path(__file__).with_name("style.css")

_PRIVATE = "PRIVATE: holds exact counts of records. Do not share."
# The policy prevents loading and scripts even if a string is not escaped by mistake.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_MAX_POWER = 20.0  # for larger epsilons, the value of e^epsilon is not shown
_PAPERS = {
    "mwem": "M. Hardt, K. Ligett, F. McSherry. A simple and practical algorithm for differentially"
    " private data release. NIPS 2012",
    "small_db": "A. Blum, K. Ligett, A. Roth. A learning theory approach to noninteractive database"
    " privacy. J. ACM, 2013",
    "private_mw": "M. Hardt, G. Rothblum. A multiplicative weights mechanism for privacy-preserving"
    " data analysis. FOCS 2010",
    "sparse_mw": "A. Blum, A. Roth. Fast private data release algorithms for sparse queries. 2011",
    "top_queries": "D. Durfee, R. Rogers. Practical differentially private top-k selection with"
    " pay-what-you-get composition. NeurIPS 2019",
    "sparse_project": "A. Blum, A. Roth. Fast private data release algorithms for sparse queries."
    " 2011",
    "count_sketch": "M. Charikar, K. Chen, M. Farach-Colton. Finding frequent items in data"
    " streams. ICALP 2002",
    "stability_histogram": "A. Korolova, K. Kenthapadi, N. Mishra, A. Ntoulas. Releasing search"
    " queries and clicks privately. WWW 2009",
}
_BOOK = "C. Dwork, A. Roth. The algorithmic foundations of differential privacy. 2014"


class Told(NamedTuple):
    """The part of a report that depends on the kind of the release."""

    title: str
    facts: Mapping[str, str]  # facts to show with the promise
    sections: list[str]  # HTML sections; empty sections are left out


@dataclasses.dataclass(frozen=True)
class Beside:
    """Information from outside the release that a report also shows."""

    details: RenderableType  # the output of `beam-dp describe`
    verdict: str = ""  # the last line of `beam-dp verify`, or its error message
    verification: Verification | None = None  # None if verification rejects the card
    entry: Entry | None = None  # the entry of the ledger that paid, if a ledger was given
    truth: Counts | None = None  # the private exact counts, if the owner compares the records


def report_page(release: AnyRelease, beside: Beside) -> str:
    """Returns the report as one HTML file under 2 MB, private if ``beside.truth`` is given."""
    told: Told = of_kind("report", release, beside.truth)
    is_private = beside.truth is not None
    title = f"{told.title}: differentially private release {release.id[:8]}"
    promise = _promise_section(release, told.facts, beside)
    details = folded("What beam-dp describe prints", "".join(_parts(beside.details)))
    parts = [
        _truth_words(beside.truth),
        promise,
        *told.sections,
        _ledger_section(release, beside.entry),
        _citation_section(release, beside.verification),
        section("Everything on the card", details),
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


def _truth_words(truth: Counts | None) -> str:
    if truth is None:
        return ""
    words = (
        f"{_PRIVATE} It compares the release with the {truth.num_records:,} records that it is"
        f" about. Not counted: {truth.num_left_out:,} records outside the domain"
    )
    if truth.num_beyond:
        words += f" and {truth.num_beyond:,} beyond the limit of their unit"
    return paragraph(text(f"{words}.", 400), "private")


def _parts(shown: RenderableType) -> Iterator[str]:
    """Yields ``rich`` tables and texts as HTML, in order."""
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


def paid_by(release: AnyRelease) -> str | None:
    """Returns the id of the ledger entry that the card names; None if the card names no entry."""
    inside = [each for each in release.card.values() if isinstance(each, Mapping)]
    places = [release.plan, *inside, release.card]
    found = [each["ledger_release"] for each in places if "ledger_release" in each]
    return str(found[0]) if found else None


def _promise_section(release: AnyRelease, told: Mapping[str, str], beside: Beside) -> str:
    """Returns the promise in plain words, and whether the noise on the card keeps the promise."""
    promised = release.guarantee
    unit = _unit(promised)
    parts = [paragraph(text(words, 1_000), kind) for words, kind in _words(promised, unit)]
    used = promised.max_records_per_unit
    entries = {
        "Epsilon": f"{promised.epsilon:g}",
        "Delta": f"{promised.delta:g}",
        "Protects": unit + (f", at most {used:,} records of each" if used > 1 else ""),
        "Neighbouring data": promised.neighboring.value.replace("_", " "),
        **told,
    }
    parts.insert(1, facts(entries))
    if beside.verdict:
        parts += _verified(beside.verdict, beside.verification)
    return section("The promise", *parts)


def _verified(verdict: str, found: Verification | None) -> Iterable[str]:
    """Yields paragraphs about the verification of the promise, including the notes."""
    if found is None:
        words = f"beam-dp verify can't recompute it from the noise on the card: {verdict}."
        yield paragraph(text(words, 600), "private")
        return
    words = f"As beam-dp verify recomputes from the noise on the card, it {verdict}."
    yield paragraph(text(words, 600), "" if found.holds else "private")
    yield from (paragraph(text(f"Note: {note}", 600)) for note in found.notes)


def _unit(promised: Guarantee) -> str:
    return "one record" if promised.privacy_unit == RECORD else f"one {promised.privacy_unit}"


def _words(promised: Guarantee, unit: str) -> Iterable[tuple[str, str]]:
    """Yields paragraphs that explain the promise, each with a CSS class."""
    is_replaced = promised.neighboring is Neighboring.REPLACE_ONE
    other = "with other values" if is_replaced else "without it"
    change = f"with {unit} in the data or {other}"
    hidden = (
        "The number of records is public; the values of the unit are not."
        if is_replaced
        else "Neither its values nor its presence show, and the exact number of records is private."
    )
    yield (
        f"This release protects {unit}: whatever someone already knows, this release would have"
        f" been almost as likely {change}. Epsilon and delta say how nearly. {hidden}",
        "promise",
    )
    most = (
        f"e^{promised.epsilon:g}"
        if promised.epsilon > _MAX_POWER
        else f"e^{promised.epsilon:g} = {math.exp(promised.epsilon):.3g}"
    )
    beside = f", plus at most {promised.delta:g}" if promised.delta else ""
    yield (
        "Precisely, it is (epsilon, delta)-differentially private: the probabilities of any set of"
        f" releases {change} differ by a factor of at most {most}{beside}."
        " Anything computed from the release alone reveals nothing more.",
        "",
    )


def noise_section(entries: Iterable[Mapping[str, Any]], *words: str) -> str:
    """Returns a section with paragraphs ``words`` and a table of noise; empty if both are empty."""
    rows = [{**each} for each in entries]
    names = list(dict.fromkeys(name for row in rows for name in row))
    parts = [paragraph(text(each)) for each in words]
    if rows:
        header = [name.replace("_", " ") for name in names]
        shown = [[_value(row.get(name)) for name in names] for row in rows]
        are_numbers = [
            any(isinstance(row.get(name), int | float) for row in rows) for name in names
        ]
        numeric = [place for place, is_number in enumerate(are_numbers) if place and is_number]
        parts.append(table("What was measured, with which noise", header, shown, numeric))
    return section("The noise", *parts)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value)) or "all records"
    return "" if value is None else short_value(value).replace("discrete_", "discrete ")


def _ledger_section(release: AnyRelease, entry: Entry | None) -> str:
    """Returns the section about the entry that the card names and the entry in a given ledger."""
    named = paid_by(release)
    if entry is None and named is None:
        words = (
            "This release was not paid for through a ledger. Privacy loss adds up across releases"
            " from the same records; this page cannot show what other releases revealed."
        )
    elif named is None:
        words = "The card names no entry of a ledger, but the given ledger has one for it."
    else:
        words = f"The card says that entry {named} of a ledger paid for this release."
    parts = [paragraph(text(words, 600))]
    if entry is not None:
        origin = entry.origin
        told = {
            "Entry": entry.release_id,
            "Paid for": f"epsilon {entry.guarantee.epsilon:g}, delta {entry.guarantee.delta:g}",
            "Paid at": entry.spent_at,
            "Complete at": entry.released_at or "not marked as complete",
            "By": origin.who if origin else None,
            "For": origin.purpose if origin else None,
            "To": origin.output if origin else None,
        }
        parts.append(facts({name: value for name, value in told.items() if value is not None}))
    return section("The ledger", *parts)


def _citation_section(release: AnyRelease, verification: Verification | None) -> str:
    """Returns the section with a citation, the versions of libraries, and the underlying papers."""
    promised, mechanism = release.guarantee, release.mechanism
    versions, most = _versions(release), 2 * len(library_versions())
    made = f"beam_dp {versions['beam_dp']}" if "beam_dp" in versions else "beam_dp"
    citation = (
        f"Differentially private release, {release.ID_OF} {release.id}; mechanism {mechanism},"
        f" epsilon {promised.epsilon:g}, delta {promised.delta:g},"
        f" {promised.neighboring.value.replace('_', ' ')}, privacy unit {promised.privacy_unit};"
        f" made with {made}."
    )
    papers = [_PAPERS[mechanism]] if mechanism in _PAPERS else []
    steps = () if verification is None else (*verification.steps, verification.together)
    theorems = [part for step in steps for part in step.theorem.split("; ")]
    items = "".join(f"<li>{text(each, 400)}</li>" for each in dict.fromkeys([*papers, _BOOK]))
    proofs = "; ".join(dict.fromkeys(each for each in theorems if each))
    return section(
        "How to cite",
        paragraph(f"<code>{text(citation, 600)}</code>"),
        facts({release.ID_OF.capitalize(): release.id, **dict(list(versions.items())[:most])}),
        f"<ul>{items}</ul>",
        paragraph(text(f"The promise follows by: {proofs}.", 1_000)) if proofs else "",
    )


def _versions(release: AnyRelease) -> Mapping[str, str]:
    held = (getattr(release, "read_from", None) or release.card).get("versions")
    known = held if isinstance(held, Mapping) else {}
    return {str(name): str(value) for name, value in known.items()}


def noisy_number_fact(release: Release) -> dict[str, str]:
    """Returns the noisy number of records as a fact; empty if the release has no such number."""
    found = release.noisy_number()
    if found is None:
        return {}
    value, error = found
    return {"Records": f"{value:,.0f}, standard error {short(error)}"}


def words_of(values: Sequence[str], most: int = 3) -> str:
    """Returns the first few strings, and how many more strings there are."""
    shown = ", ".join(values[:most])
    return shown if len(values) <= most else f"{shown} and {len(values) - most:,} more"
