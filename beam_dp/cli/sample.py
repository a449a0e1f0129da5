"""The commands `sample` and `impute`, which draw records from a synthetic database."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import TYPE_CHECKING

from beam_dp.errors import InputError
from beam_dp.flags.command_line import Command, check_files, import_program
from beam_dp.flags.flag import DIRECTORY, Flag, check_texts, integer, integer_flag, refused
from beam_dp.flags.questions import WHERE
from beam_dp.flags.shared import INPUT, INPUT_FORMAT

if TYPE_CHECKING:
    import pyarrow as pa

    from beam_dp.releases.synthetic_database.made_up import MadeUp
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase

_FORMATS = ("csv", "parquet")


def _sample(options: argparse.Namespace) -> None:
    """Writes records with a condition, or of everybody, as CSV or Parquet."""
    check_texts(_SAMPLE_FLAGS, vars(options))
    release = _read(options)
    rows, seed = (integer(name, getattr(options, name)) for name in ("rows", "seed"))
    made_up = read_made_up(options)
    table = made_up.added_to(release.sample(rows, where=options.where, seed=seed), release, seed)
    _write(options, table, release, f"as public as the release{made_up.words}")


def _impute(options: argparse.Namespace) -> None:
    """Writes given rows with everything that they lack, as CSV or Parquet."""
    check_texts(_IMPUTE_FLAGS, vars(options))
    check_files(_IMPUTE_FLAGS, vars(options))
    from beam_dp.imputation import impute

    release = _read(options)
    rows = import_program("flags").read_rows(options.input, options.input_format, release.domain)
    try:
        table = impute(rows, release, seed=integer("seed", options.seed))
    except InputError as error:
        name = error.name.replace("rows", INPUT.name, 1)
        raise refused(name, error.value, error.condition) from None
    _write(options, table, release, "as secret as the given rows", is_private=True)


def read_made_up(options: argparse.Namespace) -> MadeUp:
    """Returns the columns to make up."""
    from beam_dp.releases.synthetic_database.made_up import MadeUp, read_constants

    name, _, pattern = (options.row_id or "").partition("=")
    return MadeUp(
        row_id=None if options.row_id is None else (name, pattern or "{:d}"),
        unit_id=options.unit_id,
        constants={} if options.constants is None else read_constants(options.constants),
        is_random=options.random_ids is not None,
    )


def _read(options: argparse.Namespace) -> SyntheticDatabase:
    """Returns the release to draw from; first refuses an output of another format."""
    from beam_dp.releases.kinds import holds_horizon, read_release
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase

    if _format(options) not in _FORMATS:
        raise refused("output", options.output, "must end in .csv or .parquet")
    if holds_horizon(options.directory):
        condition = "contains many windows: sample one of them, such as DIR/windows/000000"
        raise InputError("DIR", options.directory, condition)
    return read_release(options.directory, kind=SyntheticDatabase)


def _format(options: argparse.Namespace) -> str:
    return "csv" if options.output is None else str(options.output.rpartition(".")[2])


def _write(
    options: argparse.Namespace,
    table: pa.Table,
    release: SyntheticDatabase,
    whose: str,
    *,
    is_private: bool = False,
) -> None:
    """Writes or prints records; ``whose`` says who may see them."""
    import pyarrow as pa

    from beam_dp.releases.synthetic_database.records_columns import tables_bytes
    from beam_dp.storage.store import write_new_file

    about = {"beam_dp.sampled_from": release.draw_id, "beam_dp.rows": whose}
    try:
        data = tables_bytes([table], table.schema, _format(options), about)
    except pa.ArrowException:
        condition = "must end in .parquet: CSV has no form for the types of the given columns"
        raise refused("output", options.output, condition) from None
    if options.output is None:
        sys.stdout.buffer.write(data)
        return
    write_new_file(options.output, data, is_private=is_private)
    print(f"{options.output}: {table.num_rows:,} records, {whose}")


_SEED = integer_flag(
    "seed",
    "another number draws other records; the same one draws the same again (default: 0)",
    "N",
    default="0",
)
_OUTPUT = Flag("output", "a new file, .csv or .parquet (default: CSV on the terminal)", "FILE")
MADE_UP = (
    Flag("row_id", "a column with different ids, such as `id=P{:08d}` or `id`", "NAME=PATTERN"),
    Flag(
        "unit_id",
        "a column of made-up units, whose rows are put together at random; they have as many rows"
        " as the released numbers of records per unit say, else 1",
        "NAME",
    ),
    Flag("random_ids", "random numbers in ids and units, not 1, 2, 3, ...", is_switch=True),
    Flag("constants", "columns with the same text in all rows", "NAME=VALUE,..."),
)
_SAMPLE_FLAGS = (
    DIRECTORY,
    integer_flag("rows", "the number of records to draw", "N", required=True),
    dataclasses.replace(WHERE, help=f"only {WHERE.help.partition('only ')[2]}"),
    *MADE_UP,
    _SEED,
    _OUTPUT,
)
_IMPUTE_FLAGS = (
    DIRECTORY,
    dataclasses.replace(INPUT, help=f"the rows to complete: {INPUT.help.partition(': ')[2]}"),
    INPUT_FORMAT,
    _SEED,
    _OUTPUT,
)
COMMANDS = {
    "sample": Command(
        _SAMPLE_FLAGS,
        _sample,
        "It computes from the release alone, so it spends no budget and reveals nothing more.",
    ),
    "impute": Command(
        _IMPUTE_FLAGS,
        _impute,
        "It spends no budget. The output contains the given rows, so it is as secret as they are.",
    ),
}
