"""The commands that read, compare, report or complete releases."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import time
from importlib import resources
from typing import TYPE_CHECKING, Any

from beam_dp.errors import InputError
from beam_dp.flags import questions
from beam_dp.flags.command_line import Command, check_files
from beam_dp.flags.flag import (
    DIRECTORY,
    JSON,
    Flag,
    FlagError,
    check_texts,
    check_together,
    number,
    number_flag,
    refused,
)
from beam_dp.storage.store import is_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from beam_dp.privacy.ledger.entries import Entry
    from beam_dp.privacy.steps import Step
    from beam_dp.queries.workload import Workload
    from beam_dp.releases.differences import CellDifference
    from beam_dp.releases.release import AnyRelease, Release
    from beam_dp.releases.verdict import Verification
    from beam_dp.views.attacks import Attacks
    from beam_dp.views.cells import Truth

    _Path = str | os.PathLike[str]

EXIT_DOES_NOT_HOLD = 1
_EXITS = {"passes": 0, "does not pass": 3, "no power": 4, "too few records": 4}
_SHOWN_FAULTS = 20
_LIMIT = 5.0  # points that attacks may succeed above the control
_FAR = 3.0  # in standard errors


def _describe(options: argparse.Namespace) -> None:
    """Prints the guarantee and settings of a release, its card, or records for registers."""
    forms = [flag.name for flag in _FORMS if getattr(options, flag.name) is not None]
    if len(forms) > 1:
        raise FlagError(f"--{forms[1]} must not be given with --{forms[0]}")
    if forms == [_SCHEMA.name]:
        check_texts((_SCHEMA,), {_SCHEMA.name: options.schema})
        file = resources.files("beam_dp.views") / f"{options.schema}.schema.json"
        print(file.read_text("utf-8"), end="")
        return
    if not options.directory:
        raise FlagError("DIR is required")
    from rich.console import Console

    from beam_dp.releases.files.card import CARD, HORIZON
    from beam_dp.releases.kinds import read_any
    from beam_dp.releases.parts import view_of
    from beam_dp.storage.open import store_for

    release: Any = read_any(options.directory)
    is_horizon = release.KIND == "horizon"
    if options.registry or options.dcat:
        _print_record(release, is_registry=options.dcat is None)
        return
    if not options.json:
        Console().print(view_of(release.KIND).describe(release))
        return
    # Reading a release verifies it, so the card can be trusted here.
    text = store_for(options.directory, "release").read(HORIZON if is_horizon else CARD).decode()
    if is_horizon:
        released = {"windows": [*release.windows], "blocks": [*release.blocks]}
        text = json.dumps({**json.loads(text), "released": released}, ensure_ascii=False) + "\n"
    print(text, end="")


def _print_record(release: AnyRelease, *, is_registry: bool) -> None:
    """Prints a release in the fields of a register."""
    from beam_dp.releases.kinds import verify_release
    from beam_dp.views import registers

    if is_registry:
        check = verify_release(release)
        record = registers.registry_record(release, check, verdict(check))
    else:
        record = registers.dcat_record(release)
    print(json.dumps(record, ensure_ascii=False, indent=2))


def _answer(options: argparse.Namespace) -> None:
    """Prints the answers that a command line asks for."""
    if not is_url(options.directory) and not os.path.isdir(options.directory):
        raise InputError("release", options.directory, "is not a directory")
    questions.check_answer(options)
    from beam_dp.releases.kinds import read_any
    from beam_dp.releases.parts import view_of

    release = read_any(options.directory)
    view_of(release.KIND).answer(release, options)


def _verify(options: argparse.Namespace) -> int:
    """Prints the privacy loss that follows from the noise; returns 1 unless it is kept."""
    from rich.console import Console

    from beam_dp.releases.kinds import read_any, verify_release

    release = read_any(options.directory, check_rows=True)
    check = verify_release(release)
    if options.ledger is not None:
        check = _with_entry(check, release, _entries(options.ledger, release)[0])
    if options.json:
        print(json.dumps(check.to_json(), ensure_ascii=False, indent=2))
    else:
        Console().print(verification_table(check))
    return 0 if check.holds else EXIT_DOES_NOT_HOLD


def verification_table(check: Verification) -> RenderableType:
    """Returns the steps, an explanation of their symbols, faults, notes and the verdict."""
    from beam_dp.privacy.steps import SYMBOLS
    from beam_dp.views.terminal import below_each_other, plain_table, plain_text, promise_facts

    kind = check.kind.replace("_", " ")
    facts = {"mechanism": check.mechanism, **promise_facts(check.promise)}
    rows = []
    for place, step in enumerate((*check.steps, check.together), start=1):
        rows += _step_rows("=" if step is check.together else str(place), step)
    parts: list[RenderableType] = [
        plain_table(("release", kind), facts.items()),
        plain_table(("step", "", ""), rows),
    ]
    formulas = " ".join(step.formula for step in (*check.steps, check.together))
    words = [item for item in SYMBOLS.items() if item[0] in formulas]
    if words:
        parts.append(plain_table(("where", ""), words))
    if check.faults:
        lines = [(fault,) for fault in check.faults[:_SHOWN_FAULTS]]
        if len(check.faults) > _SHOWN_FAULTS:
            lines.append((f"and {len(check.faults) - _SHOWN_FAULTS:,} more: see --json",))
        parts.append(plain_table(("wrong",), lines))
    if check.notes:
        parts.append(plain_table(("note",), [(note,) for note in check.notes]))
    return below_each_other([*parts, plain_text(verdict(check), "green" if check.holds else "red")])


def _step_rows(place: str, step: Step) -> list[tuple[str, str, str]]:
    rows = [(place, "what", step.what)]
    for name in ("formula", "theorem", "numbers"):
        rows.append(("", name, getattr(step, name)))
    return rows


def verdict(check: Verification) -> str:
    """Returns one line that states whether the guarantee is kept."""
    from beam_dp.privacy.steps import above, more_than

    figures = f"{check.num_figures:,} figures of the card were recomputed and agree"
    if check.epsilon == float("inf"):
        return "does not hold: at the promised delta, no epsilon is large enough"
    promised = f"{above(check.promise.epsilon)} was promised"
    if check.epsilon > check.promise.epsilon:
        true = more_than(check.epsilon, check.promise.epsilon)
        return f"does not hold: epsilon {true} at delta {check.promise.delta:g}, where {promised}"
    loss = f"epsilon {above(check.epsilon)} at delta {check.promise.delta:g}"
    if check.holds:
        return f"holds: {loss}, where {promised}; {figures}"
    return f"does not hold: {loss}, where {promised}, but some figures of the card are wrong"


def _diff(options: argparse.Namespace) -> None:
    """Prints the cells of two releases, sorted by their difference, largest first."""
    from beam_dp.releases.kinds import holds_horizon, read_release
    from beam_dp.views.terminal import print_table

    questions.read_limit(options)
    for name, directory in (("A", options.first), ("B", options.second)):
        if holds_horizon(directory):
            condition = "contains many windows: compare two of them, such as DIR/windows/000000"
            raise InputError(name, directory, condition)
    first, second = read_release(options.first), read_release(options.second)
    if first.draw_id == second.draw_id:
        raise InputError(
            "B", options.second, "must be a different release from A: both are the same draw"
        )
    workload = None if options.marginal is None else _workload(first, options.marginal)
    cells = _compared(first, second, workload)
    if options.json:
        print(json.dumps([cell.to_json() for cell in cells], ensure_ascii=False))
        return
    columns = ("cell", "A", "B", "difference", "standard error", "z")
    rows = [_cell_row(cell) for cell in cells[: options.limit]]
    print(f"A  {options.first}\nB  {options.second}\n")
    print_table(columns, rows, range(1, len(columns)))
    if len(cells) > options.limit:
        print(f"{options.limit:,} of {len(cells):,} cells are shown; --limit shows more")
    print(f"\n{_z_scores_text(cells)}")


def _compared(first: Release, second: Release, workload: Workload | None) -> list[CellDifference]:
    from beam_dp.releases.differences import compare_releases

    try:
        return compare_releases(first, second, workload)
    except InputError as error:
        if error.name != "workload":
            raise
        condition = "must be given: A and B were not made for a common marginal"
        raise refused("marginal", None, condition) from None


def _cell_row(cell: CellDifference) -> tuple[str, ...]:
    labels = ", ".join(f"{name} {label}" for name, label in cell.cell)
    numbers = (f"{cell.first:,.1f}", f"{cell.second:,.1f}", f"{cell.difference:+,.1f}")
    if cell.standard_error is None or cell.z_score is None:
        return labels, *numbers, "no error bar", ""
    return labels, *numbers, f"{cell.standard_error:,.1f}", f"{cell.z_score:+.2f}"


def _z_scores_text(cells: list[CellDifference]) -> str:
    """Returns the numbers of large z-scores, in lines of at most 80 characters."""
    scores = [cell.z_score for cell in cells if cell.z_score is not None]
    if not scores:
        return "No cell has an error bar: noise alone may explain every difference, or none."
    far = sum(abs(score) > _FAR for score in scores)
    lines = [f"{far:,} of {len(scores):,} cells differ by more than {_FAR:g} standard errors (z)."]
    if len(scores) < len(cells):
        lines.append(f"{len(cells) - len(scores):,} cells without an error bar.")
    lines.append("Noise alone does that to 3 cells in 1,000, or up to 10 if it is Laplace noise.")
    return "\n".join(lines)


def _workload(release: Release, given: list[str]) -> Workload:
    from beam_dp.queries.workload import Workload
    from beam_dp.releases.differences import MarginalsRelease

    if not isinstance(release, MarginalsRelease):
        raise refused("marginal", given[0], "applies only to releases of marginals")
    domain = release.domain
    # A name may itself contain a comma.
    tables = [[text] if text in domain else text.split(",") for text in given]
    try:
        return Workload(domain, tuple(tuple(map(str.strip, names)) for names in tables))
    except InputError as error:
        raise refused("marginal", error.value, error.condition) from None


def _finish(options: argparse.Namespace) -> None:
    """Completes a committed release after its job was killed, and removes all drafts."""
    from beam_dp.releases.files.card import CARD, ReleaseError
    from beam_dp.releases.kinds import finish_each, holds_horizon, release_directories
    from beam_dp.releases.parts import part
    from beam_dp.storage.open import store_for

    directory = options.directory
    try:
        store_for(directory, "output").remove_old_trials()
        if not store_for(directory, "output").exists():
            condition = "must be a directory that exists; check the name"
            raise InputError("output", directory, condition)
        stores = {place: store_for(place, "output") for place in release_directories(directory)}
        num_drafts = sum(len(store.drafts()) for store in stores.values())
        done = finish_each(directory)
        left = [draft for store in stores.values() for draft in store.drafts()]
        broken = [
            place
            for place, is_complete in done.items()
            if not is_complete and store_for(place, "output").fingerprint(CARD) is not None
        ]
    except OSError as error:
        condition = f"may contain drafts, .draft-*, which are private: {error.strerror}"
        raise InputError("output", directory, condition) from None
    if left:
        condition = (
            f"still contains private drafts such as {left[0]}: the drafts can't be removed, or"
            " a worker is running"
        )
        raise InputError("output", directory, condition)
    removed = f"drafts removed: {num_drafts}"
    if broken:
        condition = f"{CARD} names no files of a release, or some that are missing or damaged"
        raise ReleaseError(broken[0], f"{condition}; {removed}")
    if holds_horizon(directory):
        state = part("horizon", "horizon_files").progress_of(directory)
    elif done[directory]:
        state = "the release is complete"
    else:
        # A running writer can no longer publish anything from these drafts.
        state, removed = "no release was committed", f"drafts withdrawn: {num_drafts}"
    print(f"{directory}: {state}; {removed}")


_MOST_LETTERS = 5_000  # of a decision


def _report(options: argparse.Namespace) -> None:
    """Writes the report of a release; prints its path and whether it is public."""
    check_together(vars(options), ("control", "against"))
    check_files(_REPORT_FLAGS, vars(options))
    names = "output", "ledger", "against", "control", "decision"
    flags = {name: getattr(options, name) for name in names}
    output = report(options.directory, **flags)
    is_private = options.against is not None
    whose = "PRIVATE: contains exact counts" if is_private else "as public as the release"
    if options.decision and options.ledger:
        whose = "as public as the ledger"
    print(f"{output} ({whose})")


def report(
    directory: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    ledger: str | None = None,
    against: str | os.PathLike[str] | None = None,
    control: str | os.PathLike[str] | None = None,
    decision: str | None = None,
) -> pathlib.Path:
    """Writes one HTML page about a release: its guarantee, its answers and their errors.

    Privacy: the page is computed from the release and is as public as the release. If ``against``
    is given, the page is as secret as the records in ``against``.

    Args:
        directory: the directory of a release of any kind.
        output: the page, which must not exist yet; by default the directory's name with ``.html``.
        ledger: the URL of the ledger that paid; the page shows the entry.
        against: a path or glob of Parquet, CSV or Avro files: the records to compare with.
        control: such files of records that no release was made from; the page then also has what
            attacks find, as by `beam-dp attack`.
        decision: what is decided about the release: the page is then a short one to print and sign.

    Returns:
        The path of the page.

    Raises:
        InputError: if an argument is invalid, or the release is missing or damaged.

    Example:
        >>> report("out/visits")  # doctest: +SKIP
        PosixPath('out/visits.html')
    """
    if decision is not None:
        if not decision.strip() or len(decision) > _MOST_LETTERS:
            condition = f"must be a text of 1 to {_MOST_LETTERS:,} letters"
            raise InputError("decision", decision, condition)
        if against is not None:
            raise InputError("against", str(against), "must not be given for a page to sign")
    from beam_dp.releases.kinds import read_any, verify_release
    from beam_dp.releases.parts import view_of
    from beam_dp.storage.store import write_new_file
    from beam_dp.views.attacks import attacks_markup
    from beam_dp.views.page import Beside, page_to_sign, report_page

    place = os.fspath(directory)
    page = pathlib.Path(_page_next_to(place) if output is None else output)
    _check_output(page, is_private=against is not None)
    release = read_any(place)
    truth = None if against is None else _truth(release, "against", against)
    attacks = "" if control is None else attacks_markup(_attacks(release, against, control))
    entry, entries = (None, []) if ledger is None else _entries(ledger, release)
    verification: Verification | None = None
    try:
        verification = verify_release(release)
        if entry is not None:
            verification = _with_entry(verification, release, entry)
        words = verdict(verification)
    except InputError as error:
        words = str(error)
    beside = Beside(
        details=view_of(release.KIND).describe(release),
        verdict=words,
        verification=verification,
        entry=entry,
        truth=truth,
        attacks=attacks,
        entries=entries,
    )
    text = report_page(release, beside)
    if decision is not None:
        text = page_to_sign(release, beside, decision, int(time.time()))
    # Only the owner may read a page with counts of records.
    write_new_file(page, text.encode(), is_private=truth is not None)
    return page


def _attack(options: argparse.Namespace) -> int:
    """Writes what attacks find; returns 3 if it is too much, and 4 if they have no power."""
    check_texts(_ATTACK_FLAGS, vars(options))
    check_files(_ATTACK_FLAGS, vars(options))
    page = pathlib.Path(options.output or _page_next_to(options.directory, ".attack.html"))
    _check_output(page, is_private=True)
    from beam_dp.releases.kinds import read_any
    from beam_dp.storage.store import write_new_file
    from beam_dp.views.attacks import attack_page

    limit = number("fail_above", options.fail_above)
    release = read_any(options.directory)
    attacks = _attacks(release, options.against, options.control, limit)
    write_new_file(page, attack_page(release.id, attacks).encode(), is_private=True)
    print(f"{page} (PRIVATE: as confidential as the records)\n{attacks.words}")
    return _EXITS[attacks.verdict]


def _attacks(
    release: AnyRelease, against: _Path | None, control: _Path | None, limit: float = _LIMIT
) -> Attacks:
    """Attacks a release with one record of each unit."""
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase
    from beam_dp.views.attacks import attack

    if not isinstance(release, SyntheticDatabase):
        condition = "must be synthetic_database to be attacked"
        raise InputError("kind of the release", release.KIND, condition)
    if against is None:
        raise InputError("against", None, "must be given with control")
    members = _truth(release, "against", against, most_per_unit=1)
    others = None if control is None else _truth(release, "control", control, most_per_unit=1)
    return attack(release, members, others, limit)


def _truth(release: AnyRelease, flag: str, path: _Path, **limit: int) -> Truth:
    """Returns the records in files that a flag names."""
    from beam_dp.flags.command_line import import_program  # imports readers of files only here

    try:
        truth: Truth = import_program("flags").read_truth(release, os.fspath(path), **limit)
    except InputError as error:
        raise InputError(flag, error.value, error.condition) from None
    return truth


def _page_next_to(directory: str, ending: str = ".html") -> str:
    name = directory.rstrip("/")
    if "://" in name or not os.path.basename(name).strip("."):
        raise InputError("output", None, "must be given: the file to write")
    return f"{name}{ending}"


def _check_output(output: pathlib.Path, *, is_private: bool) -> None:
    """Refuses a path that can't be written, or a private one in a release, before any work."""
    from beam_dp.releases.files.card import CARD, HORIZON

    folders = output.resolve().parents if is_private else ()
    if any((folder / name).exists() for folder in folders for name in (CARD, HORIZON)):
        condition = "must not be in a release: the page is as confidential as the records"
        raise InputError("output", str(output), condition)
    if output.exists() or output.is_symlink():
        raise InputError("output", str(output), "must not exist: nothing is overwritten")
    if not output.parent.is_dir():
        raise InputError("output", str(output), "must be in a directory that exists")


def _with_entry(check: Verification, release: AnyRelease, entry: Entry) -> Verification:
    """Returns a verification that also compares the card with the entry that paid."""
    wrong = (f"ledger entry {entry.release_id}: {fault}" for fault in _wrong(release, check, entry))
    return dataclasses.replace(check, faults=(*check.faults, *wrong))


def _wrong(release: AnyRelease, check: Verification, entry: Entry) -> Iterator[str]:
    """Yields what a card states otherwise than the entry: a changed card, or another's entry."""
    from beam_dp.releases.verdict import differences, proved_losses

    promise, paid = release.guarantee.to_json(), entry.guarantee.to_json()
    mechanism = release.mechanism
    counts_units = release.KIND == "intervals" and "records_per_unit" in release.plan
    if (release.KIND == "domain" or counts_units) and mechanism != entry.mechanism:
        # The entry paid for this release and the later one, whose split the later one's card has.
        for name in ("epsilon", "delta", "max_records_per_unit"):
            del promise[name], paid[name]
        mechanism = entry.mechanism
    yield from differences(promise, paid, "guarantee")
    yield from differences(mechanism, entry.mechanism, "mechanism")
    if not any(entry.loss.covers(loss.in_doubles()) for loss in proved_losses(check)):
        yield "it paid for a smaller privacy loss than the noise of the card has"
    earlier = (getattr(release, name, None) for name in ("discovered", "records_per_unit"))
    # An entry of several releases has the draw of the domain or, without one, of the first release.
    drawn = {release.id, *(part.draw_id for part in earlier if part is not None)}
    is_before = bool(getattr(release, "readings", None))
    is_before |= counts_units and "discovered" in entry.parameters
    if entry.draw_id not in (None, *drawn) and not is_before:
        yield f"it paid for draw {entry.draw_id}, and this release is draw {release.id}"


def _entries(url: str, release: AnyRelease) -> tuple[Entry, list[Entry]]:
    """Returns the entry that paid for a release, and all of the ledger; refuses other ledgers."""
    from beam_dp.privacy.ledger.ledger import Ledger
    from beam_dp.views.page import paid_by

    ledger, named, release_id = Ledger(url), paid_by(release), release.id
    entries = [paid for data in ledger.datasets() for paid in ledger.entries(data.dataset_id)]
    for entry in entries:
        ids = (entry.draw_id, entry.parameters.get("horizon_id"))
        if entry.release_id == named or release_id in ids:
            return entry, entries
    condition = "must be the ledger that paid for this release; this one has no entry for it"
    raise InputError("ledger", ledger.name, condition)


_OUTPUT = Flag("output", "the file to write, which must not exist yet (default: DIR.html)", "FILE")
_AGAINST = Flag(
    "against",
    "compare with the confidential records in these Parquet, CSV or Avro files; the page is then"
    " confidential, too",
    "GLOB",
    form="files",
)
_CONTROL = Flag(
    "control",
    "records that were drawn as those of --against, and that no release was made from: attacks"
    " must not tell both apart",
    "GLOB",
    form="files",
)
_REPORT_FLAGS = (
    DIRECTORY,
    _OUTPUT,
    Flag("ledger", "the ledger that paid; the page shows its entry, and whether they agree", "URL"),
    _AGAINST,
    _CONTROL,
    Flag("decision", "write a page to sign, with this decision about the release", "TEXT"),
)
_ATTACK_FLAGS = (
    DIRECTORY,
    dataclasses.replace(_AGAINST, required=True),
    _CONTROL,
    number_flag(
        "fail_above",
        f"points that attacks may succeed above the control, at 95 % (default: {_LIMIT:g})",
        "P",
        default=f"{_LIMIT:g}",
        limits={"least": 0, "most": 100},
    ),
    dataclasses.replace(_OUTPUT, help=_OUTPUT.help.replace("DIR.", "DIR.attack.")),
)
_DIFF_FLAGS = (
    Flag("first", "directory with a release", "A", is_positional=True),
    Flag("second", "directory with another release of the same domain", "B", is_positional=True),
    questions.MARGINAL,
    JSON,
    dataclasses.replace(
        questions.LIMIT, help="number of cells to show (default: 20)", default="20"
    ),
)
_SCHEMA = Flag(
    "schema",
    "print the JSON schema of cards, of domain files, or of what `beam-dp ledger --json` prints;"
    " without DIR",
    choices=("card", "domain", "ledger"),
)
_FORMS = (
    JSON,
    Flag("registry", "print a draft for the registry of deployments, as JSON", is_switch=True),
    Flag("dcat", "print a record for data catalogues, as JSON-LD", is_switch=True),
    _SCHEMA,
)
COMMANDS = {
    "describe": Command((dataclasses.replace(DIRECTORY, default=""), *_FORMS), _describe),
    "answer": Command(questions.FLAGS, _answer),
    "verify": Command(
        (DIRECTORY, Flag("ledger", "the ledger that paid, to compare with its entry", "URL"), JSON),
        _verify,
        "The exit code is 1 if the guarantee does not hold.",
    ),
    "report": Command(_REPORT_FLAGS, _report),
    "attack": Command(
        _ATTACK_FLAGS,
        _attack,
        "The exit code is 3 if the release does not pass, and 4 if that can't be told: a copy of"
        " the records passes, or they are too few. The guarantee does not cover the result.",
    ),
    "diff": Command(_DIFF_FLAGS, _diff),
    "finish": Command(
        (dataclasses.replace(DIRECTORY, help="the output directory of a job that has ended"),),
        _finish,
        "It completes the release if the job had committed one, and removes the drafts.",
    ),
}
