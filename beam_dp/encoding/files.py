"""Whole tables in files, read into memory: for their owner, where no Beam is needed."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from beam_dp.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = (".parquet", ".csv", ".avro")


def read_table(path: str | os.PathLike[str], columns: Sequence[str]) -> pa.Table:
    """Returns columns of one file as an Arrow table.

    In CSV every field is a text, and an empty one without quotes is null, as in a release.

    Args:
        path: of a Parquet, CSV or Avro file, by its extension.
        columns: those to read, of those that the file has; no other is.

    Raises:
        InputError: if it is none of these, or can't be read. The words of the reader, which may
            quote a record, are not told.

    Cost: the memory of these columns.
    """
    import pyarrow as pa

    name = os.fspath(path)
    extension = os.path.splitext(name)[1].lower()
    if extension not in FORMATS:
        condition = f"must be a file that ends in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise InputError("table", name, condition)
    if not os.path.isfile(name):
        raise InputError("table", name, "must be a file that can be read")
    try:
        return {".parquet": _parquet, ".csv": _csv, ".avro": _avro}[extension](name, columns)
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, EOFError, csv.Error):
        condition = f"must be readable as {extension[1:]}"
        raise InputError("table", name, condition) from None


def _parquet(path: str, columns: Sequence[str]) -> pa.Table:
    import pyarrow.parquet

    known = pyarrow.parquet.read_schema(path).names
    return pyarrow.parquet.read_table(path, columns=[each for each in columns if each in known])


def _csv(path: str, columns: Sequence[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv

    with open(path, encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file), [])
    known = [each for each in columns if header.count(each) == 1]
    return pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(invalid_row_handler=lambda _: "skip"),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=known,
            column_types=dict.fromkeys(known, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )


def _avro(path: str, columns: Sequence[str]) -> pa.Table:
    import fastavro
    import pyarrow as pa

    with open(path, "rb") as file:
        records = fastavro.reader(file)
        schema = records.writer_schema
        if not isinstance(schema, dict) or "fields" not in schema:
            raise ValueError
        known = [each["name"] for each in schema["fields"] if each["name"] in columns]
        held: dict[str, list[object]] = {name: [] for name in known}
        for record in records:
            for name, values in held.items():
                values.append(record[name])
    return pa.table(held)
