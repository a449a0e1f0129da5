"""The command `beam-dp init`, which writes a domain file from a declared schema."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from beam_dp.errors import InputError
from beam_dp.flags.command_line import Command
from beam_dp.flags.flag import Flag, check_texts
from beam_dp.flags.shared import DISCOVER

if TYPE_CHECKING:
    from beam_dp.domain.schemas.draft import DomainDraft

_FLAGS = (
    Flag("output", "the domain file to write, which must not exist yet", "FILE", True),
    Flag(
        "from",
        "how to read SOURCE, if neither its name nor its JSON shows it: arrow, avro, bigquery, csv,"
        " domain, json_schema, parquet, pydantic, sizes or sql",
        "KIND",
    ),
    Flag(
        "null",
        "declared (default): each column that may be null gets a level for null; undiscovered: only"
        " where nothing is discovered; none: no column, for files whose schema allows null"
        " everywhere",
        "declared|undiscovered|none",
        choices=("declared", "undiscovered", "none"),
    ),
    Flag(
        "types",
        "the types of columns that the schema leaves open, such as those of a CSV file, or declares"
        " otherwise: boolean, categorical, date, datetime, discover, integer or numeric; the word"
        " discover alone leaves all other types to the release; from_data says that they may follow"
        " from the records",
        "NAME=TYPE,...",
    ),
    Flag("leave_out", "columns that get no attribute, such as identifiers", "NAME,..."),
    Flag("table", "the table to use, if the SQL creates several", "NAME"),
    Flag("dialect", "the dialect of SQL, as sqlglot names it, such as mysql", "NAME"),
)
_SOURCE = Flag(
    "source",
    "a file that declares the columns: Parquet, Arrow, Avro, .avsc, CREATE TABLE, JSON of"
    " BigQuery, JSON schema, sizes by name or a domain file; or module:Class of pydantic. Of a"
    " CSV file, only the header is read",
    "SOURCE",
    is_positional=True,
)
FROM_DATA = "from_data"


def _run(options: argparse.Namespace) -> None:
    """Writes the file, and prints its open points."""
    given = {flag.name: getattr(options, flag.name) for flag in _FLAGS}
    check_texts(_FLAGS, given)
    draft = _draft(options.source, given)
    draft.write(given["output"])
    _print(draft, given["output"])


def _draft(source: str, given: dict[str, Any]) -> DomainDraft:
    types = split_types(given["types"] or "")
    from beam_dp.domain.schemas.read import domain_draft

    return domain_draft(
        source,
        given["from"],
        table=given["table"],
        dialect=given["dialect"],
        null=given["null"] or "declared",
        **types,
        leave_out=given["leave_out"].split(",") if given["leave_out"] else (),
    )


def split_types(text: str) -> dict[str, Any]:
    """Returns the types that a flag names by column, and those of all other columns."""
    types, others = {}, "declared"
    for pair in text.split(",") if text else ():
        name, equals, kind = pair.rpartition("=")
        if pair in (DISCOVER, FROM_DATA):
            others = pair
        elif not equals:
            raise InputError("types", pair, "must be NAME=TYPE, such as age=numeric")
        else:
            types[name] = kind
    return {"types": types, "other_types": others}


def _print(draft: DomainDraft, output: str) -> None:
    from rich.console import Console

    from beam_dp.views.terminal import counted, plain_table, plain_text, some

    points, console = draft.open_points, Console()
    open_rows = [
        (str(point.attribute), point.key, "as above" if point.task == above else point.task)
        for above, point in zip(["", *(point.task for point in points)], points, strict=False)
    ]
    attributes = counted(len(draft.attributes), "attribute")
    console.print(f"{output}: {attributes}, {counted(len(points), 'open point')}", markup=False)
    for header, rows in (
        (("column", "open", "what to do"), open_rows),
        (("column", "reason why it is left out"), draft.left_out),
    ):
        if rows:
            console.print()
            console.print(plain_table(header, rows))
    print()
    if nullable := [str(item["name"]) for item in draft.attributes if item.get("nullable") is True]:
        words = "so each of these columns gets an extra level."
        console.print(plain_text(f"Fields may be empty (null) in {some(nullable)}, {words}"))
        print('Each level costs accuracy. Remove "nullable" where null cannot occur, or use')
        print("--null none if it occurs nowhere.")
        print()
    if any(item["type"] == "numeric" for item in draft.attributes):
        print("Averages are only as good as bins are narrow, in groups above all: where bins are")
        print("wider than the noise, their widths decide the error.")
        print()
    if untyped := [str(item["name"]) for item in draft.attributes if item["type"] == DISCOVER]:
        words = f"A release finds the types of {some(untyped)}, for a part of epsilon."
        console.print(plain_text(words))
        print("Types that you know cost nothing: --types NAME=TYPE,...")
        print()
    if draft.discovered:
        from beam_dp.planning.tables import sought_with_epsilon_1

        words = f"A release finds the values or bins of {some(draft.discovered)} privately."
        console.print(plain_text(words))
        print("This uses 30 % of its budget. Change it with --domain_share. What is public can")
        print("be listed, at no cost. With epsilon 1, delta 1e-9, one record a person and these")
        print("columns alone, a release would find")
        for names, text in sought_with_epsilon_1(draft.attributes).items():
            console.print(plain_text(f"- of {names}: {text}."))
        print()
    if points:
        print("Fill in the open points from public knowledge, never from the records, or remove")
        print(
            "these attributes. Types can also be given by --types, and --leave_out removes columns."
        )
        print("Then test the file on made-up rows:")
    else:
        print("Remove attributes that should not be released. Then test the file on made-up rows:")
    print(f"  beam-dp check-domain --domain {shlex.quote(output)} --sample made_up.csv")


COMMANDS = {"init": Command((_SOURCE, *_FLAGS), _run)}
