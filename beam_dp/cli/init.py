"""The command `beam-dp init`, which writes a domain file from a declared schema."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError, Once, refused
from beam_dp.flags.numbers import integer

if TYPE_CHECKING:
    from beam_dp.schemas.draft import DomainDraft

_FLAGS = (
    ("output", "FILE", "the domain file to write; must not exist (required)"),
    ("from", "KIND", "how to read SOURCE, where neither its name nor its JSON tells: arrow, avro,"
     " bigquery, csv, domain, json_schema, parquet, pydantic, sizes or sql"),
    ("null", "declared|none", "declared (the default): each column whose schema allows null gets a"
     " level for it; none: no column does, for files whose schema allows null everywhere"),
    ("table", "NAME", "of SQL that creates several tables: which one"),
    ("dialect", "NAME", "of SQL: whose it is, as sqlglot names it, such as mysql"),
    ("edges_from", "DIR", "a release of interval counts, paid for by a ledger, whose attribute gets"
     " its edges from it; needs --bins"),
    ("bins", "B", "how many bins of about equal mass, from 2 to 10,000; needs --edges_from"),
)  # fmt: skip
_SHOWN_NAMES = 8


def add_init(commands: Any) -> None:
    """Adds the command's arguments to those of `beam-dp`."""
    init = commands.add_parser("init", help="a domain file from a declared schema, never records")
    init.add_argument(
        "source",
        metavar="SOURCE",
        help="where a schema is declared: a Parquet, Arrow or Avro file, an .avsc, a CREATE TABLE,"
        " JSON of BigQuery, a JSON schema, sizes by name, a domain file, or module:Class of"
        " pydantic; or a CSV file, whose header alone is read",
    )
    for flag, metavar, meaning in _FLAGS:
        init.add_argument(f"--{flag}", metavar=metavar, action=Once, help=meaning)


def run_init(options: argparse.Namespace) -> None:
    """Writes the file, and says what is open in it.

    Raises:
        FlagError: if a flag is missing or refused.
        InputError: if the schema, the release or the output is refused.
    """
    given = {flag: getattr(options, flag) for flag, _, _ in _FLAGS}
    if given["output"] is None:
        raise FlagError("--output: missing; must be given: the domain file to write")
    for flag, other in (("edges_from", "bins"), ("bins", "edges_from")):
        if given[flag] is not None and given[other] is None:
            raise FlagError(f"--{other}: missing; must be given with --{flag}")
    try:
        draft = _draft(options.source, given)
        draft.write(given["output"])
    except InputError as error:
        if error.name not in given:
            raise
        if error.value is None:
            raise FlagError(f"--{error.name}: missing; {error.condition}") from None
        raise refused(error.name, error.value, error.condition) from None
    _tell(draft, given["output"])


def _draft(source: str, given: dict[str, str | None]) -> DomainDraft:
    from beam_dp.schemas.read import domain_draft

    draft = domain_draft(
        source,
        given["from"],
        table=given["table"],
        dialect=given["dialect"],
        null=given["null"] or "declared",  # type: ignore[arg-type]  # which it checks
    )
    if given["edges_from"] is None or given["bins"] is None:
        return draft
    from beam_dp.releases.kinds import read_release
    from beam_dp.schemas.edges import binned_attribute

    num_bins = integer("bins", given["bins"])
    try:
        release = read_release(given["edges_from"])
    except InputError as error:
        raise InputError("edges_from", error.value, error.condition) from None
    return draft.with_attribute(binned_attribute(release, num_bins))


def _tell(draft: DomainDraft, output: str) -> None:
    from rich.console import Console

    from beam_dp.reports.terminal import plain_table, plain_text

    points, console = draft.open_points, Console()
    open_rows = [(str(each.attribute), each.key, each.task) for each in points]
    num_points = f"{len(points):,} open point{'' if len(points) == 1 else 's'}"
    console.print(f"{output}: {len(draft.attributes):,} attributes, {num_points}", markup=False)
    for header, rows in (
        (("column", "open", "what to do"), open_rows),
        (("column", "left out, because"), draft.left_out),
    ):
        if rows:
            console.print()
            console.print(plain_table(header, rows))
    print()
    if nullable := [str(each["name"]) for each in draft.attributes if each.get("nullable") is True]:
        names = ", ".join(nullable[:_SHOWN_NAMES]) + (", ..." if nullable[_SHOWN_NAMES:] else "")
        console.print(
            plain_text(
                f"The schema allows null in {names}; each of these columns gets an extra level."
            )
        )
        print('Each level costs accuracy: remove "nullable" where null cannot occur, or use')
        print("--null none where it occurs nowhere.")
        print()
    if points:
        print("Fill open points in from public knowledge, never from the records, or remove the")
        print("attribute: no release takes the file before. Then try it on made-up rows:")
    else:
        print("Remove what is not to be released. Then try it on made-up rows:")
    print(f"  beam-dp check-domain --domain {shlex.quote(output)} --sample made_up.csv")
