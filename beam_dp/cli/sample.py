"""The command `beam-dp sample`, which draws new records from a synthetic database."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from beam_dp.errors import InputError
from beam_dp.flags.command_line import Command
from beam_dp.flags.flag import DIRECTORY, Flag, check_texts, integer, refused
from beam_dp.flags.questions import WHERE

_FORMATS = ("csv", "parquet")


def _sample(options: argparse.Namespace) -> None:
    """Writes records with a condition, or of everybody, as CSV or Parquet."""
    check_texts(_FLAGS, vars(options))
    from beam_dp.releases.kinds import holds_horizon, read_release
    from beam_dp.releases.synthetic_database.records_columns import tables_bytes
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase
    from beam_dp.storage.store import write_new_file

    records_format = "csv" if options.output is None else options.output.rpartition(".")[2]
    if records_format not in _FORMATS:
        raise refused("output", options.output, "must end in .csv or .parquet")
    if holds_horizon(options.directory):
        condition = "contains many windows: sample one of them, such as DIR/windows/000000"
        raise InputError("DIR", options.directory, condition)
    release = read_release(options.directory, kind=SyntheticDatabase)
    rows, seed = (integer(name, getattr(options, name)) for name in ("rows", "seed"))
    table = release.sample(rows, where=options.where, seed=seed)
    about = {"beam_dp.sampled_from": release.draw_id}
    data = tables_bytes([table], table.schema, records_format, about)
    if options.output is None:
        sys.stdout.buffer.write(data)
        return
    write_new_file(options.output, data)
    print(f"{options.output}: {rows:,} records, as public as the release")


_FLAGS = (
    DIRECTORY,
    Flag("rows", "the number of records to draw", "N", required=True, form="integer"),
    dataclasses.replace(WHERE, help=f"only {WHERE.help.partition('only ')[2]}"),
    Flag(
        "seed",
        "another number draws other records; the same one draws the same again (default: 0)",
        "N",
        default="0",
        form="integer",
    ),
    Flag("output", "a new file, .csv or .parquet (default: CSV on the terminal)", "FILE"),
)
COMMANDS = {
    "sample": Command(
        _FLAGS,
        _sample,
        "It computes from the release alone, so it spends no budget and reveals nothing more.",
    )
}
