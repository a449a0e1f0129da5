"""The command `release`: from a raw file to a copy, with a usual answer to each question left open.

It drafts the domain from the names of the columns, prints what it assumes, and runs the program
`release-synthetic-database`. The commands that it prints do the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import glob
import os
import shlex
import sys
from typing import TYPE_CHECKING, Literal

from beam_dp.cli.init import FROM_DATA, split_types
from beam_dp.cli.sample import MADE_UP, read_made_up
from beam_dp.errors import InputError
from beam_dp.flags import shared
from beam_dp.flags.command_line import Command, check_files, command_of, import_program
from beam_dp.flags.flag import Flag, FlagError, check_texts
from beam_dp.flags.shared import DISCOVER
from beam_dp.privacy.guarantee import RECORD
from beam_dp.storage.store import is_url, write_new_file

if TYPE_CHECKING:
    from beam_dp.domain.schemas.draft import DomainDraft
    from beam_dp.releases.synthetic_database.made_up import MadeUp

_PROGRAM = "release_synthetic_database"
_SOURCE = Flag(
    "source", "the table: CSV, Parquet or Avro files, or a glob", "FILE", is_positional=True
)
_SCHEMA = Flag(
    "schema",
    "a schema that was written before the records, in a form that `beam-dp init` reads, such as"
    " SQL; Avro files have their own",
    "FILE",
    form="file",
)
_TYPES = Flag(
    "types",
    "the types of columns, such as age=integer,city=categorical (default: found privately, for a"
    f" part of epsilon); or {FROM_DATA}: as in the file, whose writer may have chosen them by the"
    " values",
    f"NAME=TYPE,...|{FROM_DATA}",
)
_LEAVE_OUT = Flag("leave_out", "columns that are not released, such as identifiers", "NAME,...")
_ASSUMED = {
    shared.WORKLOAD: "marginals:2",
    shared.NUM_RECORDS: "noisy",
    shared.NEIGHBORING: "add_or_remove_one",
    shared.MAX_RECORDS_PER_UNIT: "1",
    shared.DELTA: "1e-9",
}
_REQUIRED = (shared.EPSILON, shared.PRIVACY_UNIT, shared.OUTPUT)
_PASSED = (
    *_REQUIRED,
    *(
        dataclasses.replace(
            flag,
            help=f"{flag.help} (default: {text})",
            required=False,
            default=text,
        )
        for flag, text in _ASSUMED.items()
    ),
    shared.INPUT_FORMAT,
    shared.EXPECT_RECORDS,
    shared.LEDGER,
    shared.DATASET_ID,
    shared.PURPOSE,
    shared.WHO,
    shared.VALIDATE_ONLY,
    shared.JSON,
)
_MADE_UP = tuple(dataclasses.replace(flag, help=f"in records.csv: {flag.help}") for flag in MADE_UP)
_OWN = (_TYPES, _SCHEMA, _LEAVE_OUT, *_MADE_UP)
_FLAGS = (_SOURCE, *_REQUIRED, *_OWN, *_PASSED[len(_REQUIRED) :])
# A larger copy is not written as CSV, too: all of its rows would have to be in memory.
_MAX_CSV_ROWS = 1_000_000
_CSV = "records.csv"


def _run(options: argparse.Namespace) -> int:
    """Says what is assumed, releases the table, and writes a small copy as CSV, too."""
    check_texts(_FLAGS, vars(options))
    check_files(_FLAGS, vars(options))
    draft, init = _draft(options)
    draft.domain()  # refuses what only a person can fill in
    made_up = read_made_up(options)
    made_up.check(draft.names)
    if made_up.names and is_url(options.output):
        raise FlagError(f"--output must be a local folder with --{made_up.names[0][0]}")
    texts = {flag.name: getattr(options, flag.name) for flag in _PASSED}
    if len(draft.names) == 1 and options.workload == _ASSUMED[shared.WORKLOAD]:
        texts["workload"] = "marginals:1"  # there are no pairs
    if options.privacy_unit == RECORD and options.max_records_per_unit == "1":
        texts["max_records_per_unit"] = None
    flags = [word for flag in _PASSED for word in _typed(flag, texts[flag.name])]
    file = f"{options.output.rstrip('/')}.json"
    full = [*command_of(_PROGRAM).split(), "--input", options.source, "--domain", file, *flags]
    commands = (shlex.join(words) for words in ([*init, "--output", file], full))
    head = "Flags that are not given have their defaults. The same in full:"
    code: int = import_program(_PROGRAM).main(
        ["--input", options.source, "--domain", draft.text(), *flags],
        preface="\n  ".join([head, *commands]),
    )
    if code == 0 and options.validate_only is None and not is_url(options.output):
        _write_csv(options.output, made_up)
    return code


def _draft(options: argparse.Namespace) -> tuple[DomainDraft, list[str]]:
    """Returns the domain before its release, and the command that drafts it."""
    from beam_dp.domain.schemas.read import domain_draft

    files = [options.schema] if options.schema else sorted(glob.glob(options.source))
    if not files:
        condition = "must match a local file, unless --schema has the columns"
        raise InputError("FILE", options.source, condition)
    types = options.types or ""
    is_declared = options.schema or files[0].endswith(".avro") or FROM_DATA in types.split(",")
    if not is_declared:
        types = ",".join(filter(None, (DISCOVER, types)))
    null: Literal["declared", "undiscovered"] = "declared" if options.schema else "undiscovered"
    draft = domain_draft(files[0], null=null, **split_types(types))
    asked = options.leave_out.split(",") if options.leave_out else []
    draft, left_out = draft.for_unit(options.privacy_unit, asked)
    words = ["beam-dp", "init", files[0], *_typed(_TYPES, types), "--null", null]
    return draft, [*words, *_typed(_LEAVE_OUT, ",".join(left_out))]


def _typed(flag: Flag, text: str | None) -> list[str]:
    """Returns a flag as it is typed."""
    if not text:
        return []
    return [f"--{flag.name}"] if flag.is_switch else [f"--{flag.name}", text]


def _write_csv(output: str, made_up: MadeUp) -> None:
    """Writes the records of a release as CSV, beside its files, unless they are many."""
    from beam_dp.releases.kinds import read_release
    from beam_dp.releases.synthetic_database.records_columns import tables_bytes
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase

    release = read_release(output, kind=SyntheticDatabase)
    if release.num_records > _MAX_CSV_ROWS:
        if made_up.names:
            print(f"warning: no {_CSV} of so many rows; use `beam-dp sample`", file=sys.stderr)
        return
    table = made_up.added_to(release.to_arrow(), release)
    path = os.path.join(output, _CSV)
    try:
        write_new_file(path, tables_bytes([table], table.schema, "csv", {}))
    except InputError as error:  # the release is paid and complete: a retry would pay again
        print(f"warning: {error}; the release is complete without this file", file=sys.stderr)
        return
    print(f"{path}: the copy as CSV, {table.num_rows:,} rows{made_up.words}")


COMMANDS = {
    "release": Command(
        _FLAGS,
        _run,
        "The printed commands say the same in full; `beam-dp release-synthetic-database --help`"
        " lists all other choices.",
    )
}
