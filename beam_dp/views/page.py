"""The report about a release: one HTML page that needs no network and runs no scripts."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from beam_dp.privacy.guarantee import RECORD, Guarantee, Neighboring
from beam_dp.privacy.ledger.entries import spent_by
from beam_dp.releases.error_bars import DEVIATIONS
from beam_dp.releases.parts import view_of
from beam_dp.releases.release import AnyRelease, Release, library_versions
from beam_dp.views.markup import facts, folded, paragraph, part, table, text
from beam_dp.views.terminal import counted, moment, printed_lines, short, short_value

if TYPE_CHECKING:
    from rich.console import RenderableType

    from beam_dp.privacy.ledger.entries import Entry
    from beam_dp.releases.verdict import Verification
    from beam_dp.views.cells import Truth

STYLE = pathlib.Path(__file__).with_name("style.css")

_PRIVATE = "PRIVATE: contains exact counts of records. Do not share."
# The policy prevents loading and scripts even if a string is not escaped by mistake.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_DOOR = "For a privacy officer: guarantee, verification, budget and citation"
_MAX_POWER = 20.0  # for larger epsilons, the value of e^epsilon is not shown
_GRAPHICAL = "R. McKenna, D. Sheldon, G. Miklau. Graphical-model based estimation and inference for"
_GRAPHICAL += " differential privacy. ICML 2019"
_SPARSE = "A. Blum, A. Roth. Fast private data release algorithms for sparse queries. 2011"
_PAPERS = {
    "textbook": "M. Hardt, K. Ligett, F. McSherry. A simple and practical algorithm for"
    " differentially private data release. NIPS 2012",
    **dict.fromkeys(("measure_all", "rounds", "selection"), _GRAPHICAL),
    "small_db": "A. Blum, K. Ligett, A. Roth. A learning theory approach to noninteractive database"
    " privacy. J. ACM, 2013",
    "private_mw": "M. Hardt, G. Rothblum. A multiplicative weights mechanism for privacy-preserving"
    " data analysis. FOCS 2010",
    **dict.fromkeys(("sparse_mw", "sparse_project"), _SPARSE),
    "top_queries": "D. Durfee, R. Rogers. Practical differentially private top-k selection with"
    " pay-what-you-get composition. NeurIPS 2019",
    "count_sketch": "M. Charikar, K. Chen, M. Farach-Colton. Finding frequent items in data"
    " streams. ICALP 2002",
    "stability_histogram": "A. Korolova, K. Kenthapadi, N. Mishra, A. Ntoulas. Releasing search"
    " queries and clicks privately. WWW 2009",
}
_BOOK = "C. Dwork, A. Roth. The algorithmic foundations of differential privacy. 2014"


class Told(NamedTuple):
    """The part of a report that depends on the kind of the release."""

    what: str  # what the release is, in a few words
    headline: str  # how good it is
    meaning: str  # what the headline means
    facts: Mapping[str, str]
    sections: Mapping[str, str]  # HTML by title; empty sections are left out
    noise: str  # HTML about the noise
    warnings: Sequence[str] = ()  # columns that carry little information


@dataclasses.dataclass(frozen=True)
class Beside:
    """Information from outside the release that a report also shows."""

    details: RenderableType  # the output of `beam-dp describe`
    verdict: str = ""  # the last line of `beam-dp verify`, or its error message
    verification: Verification | None = None  # None if verification rejects the card
    entry: Entry | None = None  # the entry of the ledger that paid, if a ledger was given
    truth: Truth | None = None  # the private exact counts, if the owner compares the records
    attacks: str = ""  # markup of what attacks with the records found, private
    entries: Sequence[Entry] = ()  # all entries of a ledger that was given


def report_page(release: AnyRelease, beside: Beside) -> str:
    """Returns the report as one HTML file under 2 MB, private if ``beside.truth`` is given."""
    content: Told = view_of(release.KIND).report(release, beside.truth)
    is_private = beside.truth is not None
    details = folded("What beam-dp describe prints", _printed(beside.details))
    sections = {
        **content.sections,
        "Guarantee and budget": _guarantee_section(release, beside),
        "Noise and card": content.noise + details,
    }
    if is_private and beside.attacks:
        sections = {"Attacks": beside.attacks, **sections}
    title = f"{content.what}: differentially private release {release.id[:8]}"
    source = f"from the release{' and its records' if is_private else ' alone'}"
    command = f"<code>beam-dp report</code> {source}"
    return html_page(title, _head(release, content, beside), sections, command, is_private)


def html_page(
    title: str, head: str, sections: Mapping[str, str], command: str, is_private: bool
) -> str:
    """Returns a page of markup that loads nothing; sections without contents are left out."""
    shown = {title: inside for title, inside in sections.items() if inside}
    places = {title: title.lower().replace(" ", "-") for title in shown}
    links = "<b>PRIVATE</b>" if is_private else ""
    links += "".join(f'<a href="#{place}">{title}</a>' for title, place in places.items())
    body = "\n".join(
        f'<section id="{places[title]}"><h2>{title}</h2>{inside}</section>'
        for title, inside in shown.items()
    )
    mark = f'<div class="each-page" aria-hidden="true">{_PRIVATE}</div>' if is_private else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{'PRIVATE: ' if is_private else ''}{text(title)}</title>\n"
        f"<style>\n{STYLE.read_text('utf-8')}</style>\n</head>\n"
        f"<body>\n{mark}<header>{head}</header>\n"
        f'<nav aria-label="Contents">{links}</nav>\n<main>\n{body}\n</main>\n'
        f"<footer><p>Made by {command}. It loads nothing and runs nothing.</p></footer>\n"
        "</body>\n</html>\n"
    )


def _head(release: AnyRelease, content: Told, beside: Beside) -> str:
    """Returns the headline: what the release is, how good it is, and whom it protects."""
    promised, check = release.guarantee, beside.verification
    holds = check is not None and check.holds
    guarantee = f"epsilon {promised.epsilon:g}, delta {promised.delta:g}"
    paid = paid_by(release) or (beside.entry and beside.entry.release_id)
    entries = {
        "Privacy": guarantee + (", confirmed from the recorded noise" if holds else ""),
        **content.facts,
        "Budget": f"ledger entry {paid}"
        if paid
        else "no ledger was used, so nothing adds up the releases of this table",
    }
    parts = [
        _truth_words(beside.truth),
        *(paragraph(text(f"Warning: {warning}.", 600), "private") for warning in content.warnings),
        paragraph(text(f"{content.what}."), "muted"),
        f"<h1>{text(content.headline)}</h1>",
        *(paragraph(text(line, 2_000)) for line in content.meaning.splitlines()),
        paragraph(text(guarantee_words(promised)[0], 600)),
        *(_verified(beside.verdict, check) if beside.verdict and not holds else ()),
        facts(entries),
    ]
    return "".join(parts)


def _truth_words(truth: Truth | None) -> str:
    if truth is None:
        return ""
    words = f"{_PRIVATE} It compares the release with the {truth.num_records:,} original records."
    if truth.not_counted:
        words += f" Not counted: {truth.not_counted}."
    return paragraph(text(words, 400), "private")


def _printed(shown: RenderableType) -> str:
    lines = "\n".join(map(text, printed_lines(shown)))
    return f'<pre role="group" tabindex="0" aria-label="What is on the card">{lines}</pre>'


def paid_by(release: AnyRelease) -> str | None:
    """Returns the id of the ledger entry that the card names; None if the card names no entry."""
    inside = [value for value in release.card.values() if isinstance(value, Mapping)]
    places = [release.plan, *inside, release.card]
    entries = [place["ledger_release"] for place in places if "ledger_release" in place]
    return str(entries[0]) if entries else None


def page_to_sign(release: AnyRelease, beside: Beside, decision: str, seconds: int) -> str:
    """Returns the page of a decision, for those who answer for it; ``seconds``: the time."""
    promised, entry = release.guarantee, beside.entry
    when = f"{moment(seconds, '%Y-%m-%d %H:%M')} UTC, by beam_dp {library_versions()['beam_dp']}"
    checked = {"Verification": when, "Comparison with the ledger": when if entry else "none given"}
    head = f"<h1>Decision about release {text(release.id)}</h1>{facts(checked)}"
    head += "".join(_verified(beside.verdict, beside.verification))
    head += paragraph(text(guarantee_words(promised)[0], 600))
    if promised.privacy_unit == RECORD:
        words = "No column identifies people: what is protected is one row, not a person."
        head += paragraph(words, "private")
    year = moment(seconds, "%Y")
    spent = [each for each in beside.entries if each.spent_at.startswith(year)]
    paid = [each for each in beside.entries if entry and each.dataset_id == entry.dataset_id]
    sections = {
        "Decision": "".join(paragraph(text(line, len(line))) for line in decision.splitlines())
        + table("Signatures", ("name", "date", "signature"), [[""] * 3] * 3),
        "Guarantee and budget": _officer_parts(release, beside),
        f"Spent in {year}": _sums(beside, spent, ("who", "purpose")),
        "All releases of the dataset": _sums(beside, paid, ("release", "date", "who", "purpose")),
    }
    command = "<code>beam-dp report --decision</code> from the release"
    command += " and its ledger" if entry else ""
    return html_page(f"Decision about release {release.id[:8]}", head, sections, command, False)


def _sums(beside: Beside, entries: Iterable[Entry], names: Sequence[str]) -> str:
    """Returns a table of what entries of the ledger spent, if there is a ledger."""
    if beside.entry is None:
        return paragraph("This is not known: no --ledger was given.", "private")
    head = "dataset", *names, "releases", "epsilon", "delta"
    rows = [[*map(short_value, row)] for row in spent_by(entries, names)]
    return table("Sums of epsilon and delta; the rule of the budget may be less", head, rows)


def _guarantee_section(release: AnyRelease, beside: Beside) -> str:
    """Returns the folded section for those who must approve, verify or cite the release."""
    return folded(_DOOR, _officer_parts(release, beside), "door")


def _officer_parts(release: AnyRelease, beside: Beside) -> str:
    promised = release.guarantee
    unit, used = _unit(promised), counted(promised.max_records_per_unit, "record")
    entries = {
        "Epsilon": f"{promised.epsilon:g}",
        "Delta": f"{promised.delta:g}",
        "Protects": unit + ("" if promised.privacy_unit == RECORD else f", at most {used} of each"),
        "Neighbouring data": promised.neighboring.value.replace("_", " "),
        "Mechanism": release.mechanism,
    }
    windows = release.card.get("promise", release.plan.get("promise"))
    over_time = [f"Over time: {windows}."] if isinstance(windows, str) else []
    verified = _verified(beside.verdict, beside.verification) if beside.verdict else ()
    words = (text(word, 1_000) for word in (*guarantee_words(promised)[1:], *over_time))
    return (
        part("The guarantee", facts(entries), *map(paragraph, words))
        + part("Verification", *verified)
        + part("The ledger", _ledger(release, beside))
        + part("How to cite", _citation(release, beside.verification))
    )


def _verified(verdict: str, check: Verification | None) -> Iterable[str]:
    """Yields paragraphs about the verification of the promise, including the notes."""
    if check is None:
        words = f"beam-dp verify can't recompute it from the noise on the card: {verdict}."
        yield paragraph(text(words, 600), "private")
        return
    words = f"As beam-dp verify recomputes from the noise on the card, it {verdict}."
    yield paragraph(text(words, 600), "" if check.holds else "private")
    yield from (paragraph(text(f"Note: {note}", 600)) for note in check.notes)


def _unit(promised: Guarantee) -> str:
    unit = promised.privacy_unit
    return "one record" if unit == RECORD else f"all records of one {unit}"


def guarantee_words(promised: Guarantee) -> tuple[str, str]:
    """Returns two paragraphs that explain the guarantee, the second one precisely."""
    unit, change = _unit(promised), "without"
    what, limit = "any one record", " A person with several records is protected less."
    if promised.privacy_unit != RECORD:
        used = counted(promised.max_records_per_unit, "record")
        what, limit = "they", f" It uses at most {used} of each {promised.privacy_unit}."
    hidden = "The factor limits what can be learned about its presence; the square of the factor"
    hidden += " limits what can be learned about its values. The exact number of records is"
    hidden += " private."
    if promised.neighboring is Neighboring.REPLACE_ONE:
        change = "with other values"
        hidden = "The factor limits what can be learned about its values. The number of records is"
        hidden += " public."
    change = f"with {unit} in the data or {change}"
    power = f"e^{promised.epsilon:g}"
    power += "" if promised.epsilon > _MAX_POWER else f" = {math.exp(promised.epsilon):.3g}"
    beside = f", plus at most {promised.delta:g}" if promised.delta else ""
    return (
        f"It protects {unit}: epsilon and delta limit how much {what} can change what is published."
        f"{limit}",
        "Precisely, it is (epsilon, delta)-differentially private: the probabilities of any set of"
        f" releases {change} differ by a factor of at most {power}{beside}."
        f" {hidden} Anything computed from the release alone reveals nothing more.",
    )


def noise_words(entries: Iterable[Mapping[str, Any]], *words: str) -> str:
    """Returns paragraphs ``words`` and a folded table of noise; empty if both are empty."""
    rows = [{**entry} for entry in entries]
    names = list(dict.fromkeys(name for row in rows for name in row))
    parts = [paragraph(text(word)) for word in words]
    if rows:
        header = [name.replace("_", " ") for name in names]
        shown = [[_value(row.get(name)) for name in names] for row in rows]
        are_numbers = (isinstance(rows[0].get(name), int | float) for name in names)
        numeric = [place for place, is_number in enumerate(are_numbers) if place and is_number]
        caption = "What was measured, with which noise"
        parts.append(folded(caption, table(caption, header, shown, numeric)))
    return "".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value)) or "all records"
    return "" if value is None else short_value(value).replace("discrete_", "discrete ")


def _ledger(release: AnyRelease, beside: Beside) -> str:
    """Returns the part about the entry that the card names and the entry in a given ledger."""
    named, entry, verification = paid_by(release), beside.entry, beside.verification
    if entry is None and named is None:
        words = (
            "This release was not paid for through a ledger. Privacy loss adds up across releases"
            " from the same records; this page cannot show what other releases revealed."
        )
    elif named is None:
        words = "The card names no entry of a ledger, but the given ledger has an entry for it."
    else:
        words = f"The card says that entry {named} of a ledger paid for this release."
    parts = [paragraph(text(words, 600))]
    if entry is not None:
        origin = entry.origin
        rows = {
            "Entry": entry.release_id,
            "Paid for": f"epsilon {entry.guarantee.epsilon:g}, delta {entry.guarantee.delta:g}",
            "Paid at": entry.spent_at,
            "Complete at": entry.released_at or "not marked as complete",
            "By": origin.who if origin else None,
            "For": origin.purpose if origin else None,
            "To": origin.output if origin else None,
        }
        parts.append(facts({name: value for name, value in rows.items() if value is not None}))
        faults = () if verification is None else verification.faults
        wrong = (fault for fault in faults if fault.startswith("ledger entry"))
        parts += [paragraph(text(line, 600)) for line in wrong]
    return "".join(parts)


def _citation(release: AnyRelease, verification: Verification | None) -> str:
    """Returns a citation, the versions of libraries, and the underlying papers."""
    promised, mechanism = release.guarantee, release.mechanism
    versions, limit = _versions(release), 2 * len(library_versions())
    made = f"beam_dp {versions['beam_dp']}" if "beam_dp" in versions else "beam_dp"
    citation = (
        f"Differentially private release, {release.ID_OF} {release.id}; mechanism {mechanism},"
        f" epsilon {promised.epsilon:g}, delta {promised.delta:g},"
        f" {promised.neighboring.value.replace('_', ' ')}, privacy unit {promised.privacy_unit};"
        f" made with {made}."
    )
    parameters = release.card.get("parameters")
    strategy = parameters.get("strategy") if isinstance(parameters, Mapping) else None
    papers = [_PAPERS[key] for key in (strategy, mechanism) if key in _PAPERS][:1]
    steps = () if verification is None else (*verification.steps, verification.together)
    theorems = [theorem for step in steps for theorem in step.theorem.split("; ")]
    items = "".join(f"<li>{text(item, 400)}</li>" for item in dict.fromkeys([*papers, _BOOK]))
    proofs = "; ".join(dict.fromkeys(theorem for theorem in theorems if theorem))
    entries = {release.ID_OF.capitalize(): release.id, **dict(list(versions.items())[:limit])}
    return (
        paragraph(f"<code>{text(citation, 600)}</code>")
        + facts(entries)
        + f"<ul>{items}</ul>"
        + (paragraph(text(f"The guarantee follows from: {proofs}.", 1_000)) if proofs else "")
    )


def _versions(release: AnyRelease) -> Mapping[str, str]:
    stated_versions = (getattr(release, "read_from", None) or release.card).get("versions")
    versions = stated_versions if isinstance(stated_versions, Mapping) else {}
    return {str(name): str(value) for name, value in versions.items()}


def noisy_number_fact(release: Release) -> dict[str, str]:
    """Returns the noisy number of records as a fact; empty if the release has no such number."""
    estimate = release.noisy_number()
    if estimate is None:
        return {}
    value, error = estimate
    used = {entry.get("distribution") for entry in release.noise}
    kind = "discrete_gaussian" if used == {"discrete_gaussian"} else "discrete_laplace"
    margin = DEVIATIONS[kind] * error
    return {"Records": f"{value:,.0f} ± {short(margin)} (95 %)"}
