"""Reads released files with fastavro, avro, DuckDB and pyarrow, and writes what they hold."""

from __future__ import annotations

import datetime
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import avro.datafile
import avro.io
import duckdb
import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

# The types of columns of CSV, which has none, by those of Avro.
_DUCKDB = {"long": "BIGINT", "double": "DOUBLE", "boolean": "BOOLEAN", "date": "DATE"}
_ARROW = {"long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(), "date": pa.date32()}
_TIME = "local-timestamp-micros"


def plain(value: Any) -> Any:
    """Returns a value as JSON, the same for every reader."""
    if isinstance(value, datetime.datetime):
        return {"time": value.replace(tzinfo=None).isoformat(timespec="microseconds")}
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return {"bytes": f"{int.from_bytes(value, 'big'):x}"}
    if isinstance(value, dict):
        return [plain(each) for each in value.values()]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def of_fastavro(path: str, _: dict[str, str]) -> list[Any]:
    """Reads Avro: what others are compared with."""
    with open(path, "rb") as file:
        return [plain(each) for each in fastavro.reader(file)]


def of_avro(path: str, _: dict[str, str]) -> list[Any]:
    """Reads Avro by Apache's own Python."""
    with (
        open(path, "rb") as file,
        avro.datafile.DataFileReader(file, avro.io.DatumReader()) as all_,
    ):
        return [plain(each) for each in all_]


def of_duckdb_avro(path: str, _: dict[str, str]) -> list[Any]:
    """Reads Avro by DuckDB, whose extension for it must be installed."""
    duckdb.sql("INSTALL avro; LOAD avro")
    return [plain(row) for row in duckdb.execute("SELECT * FROM read_avro(?)", [path]).fetchall()]


def of_duckdb_parquet(path: str, _: dict[str, str]) -> list[Any]:
    """Reads Parquet by DuckDB."""
    found = duckdb.execute("SELECT * FROM read_parquet(?)", [path]).fetchall()
    return [plain(row) for row in found]


def of_duckdb_csv(path: str, types: dict[str, str]) -> list[Any]:
    """Reads CSV by DuckDB, with the types of the columns."""
    columns = {
        name: "TIMESTAMP" if kind == _TIME else _DUCKDB.get(kind, "VARCHAR")
        for name, kind in types.items()
    }
    read = duckdb.read_csv(path, header=True, columns=columns, quotechar='"', escapechar='"')
    return [plain(row) for row in read.fetchall()]


def of_pyarrow_parquet(path: str, _: dict[str, str]) -> list[Any]:
    """Reads Parquet by Arrow."""
    return [plain(row) for row in pa.parquet.read_table(path).to_pylist()]


def of_pyarrow_csv(path: str, types: dict[str, str]) -> list[Any]:
    """Reads CSV by Arrow, with the types of the columns."""
    columns = {
        name: pa.timestamp("us") if kind == _TIME else _ARROW.get(kind, pa.string())
        for name, kind in types.items()
    }
    options = pa.csv.ConvertOptions(column_types=columns, strings_can_be_null=True)
    return [plain(row) for row in pa.csv.read_csv(path, convert_options=options).to_pylist()]


READERS: dict[str, dict[str, Callable[[str, dict[str, str]], list[Any]]]] = {
    "avro": {"fastavro": of_fastavro, "avro": of_avro, "DuckDB": of_duckdb_avro},
    "parquet": {"pyarrow": of_pyarrow_parquet, "DuckDB": of_duckdb_parquet},
    "csv": {"pyarrow": of_pyarrow_csv, "DuckDB": of_duckdb_csv},
}


def main() -> None:
    """Writes, by format, reader and path, the rows of a file or why it is refused."""
    folder = pathlib.Path(sys.argv[1])
    asked = json.loads((folder / "files.json").read_text("utf-8"))
    found: dict[str, Any] = {}
    for form, readers in READERS.items():
        for name, read in readers.items():
            of_reader = found.setdefault(form, {}).setdefault(name, {})
            for path in asked[form]:
                try:
                    of_reader[path] = read(path, asked["types"])
                except Exception as error:
                    of_reader[path] = f"{type(error).__name__}: {error}"[:300]
    (folder / "answer.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
