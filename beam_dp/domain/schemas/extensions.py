"""The extensions of files of records, for jobs and for drafts of domains."""

from __future__ import annotations

from beam_dp.storage.compressed import compression_of

# What files of other extensions are, and how to get on.
_OTHERS = {
    "ods xls xlsb xlsm xlsx": "is a workbook, which cannot be read: save it as CSV",
    "tab tsv": "is separated by tabs, and only commas are read: save it as CSV",
    "json jsonl ndjson": "is JSON, which is not read: save it as Parquet or CSV",
    "7z rar tar tgz zip": "is an archive: unpack it",
    "arrow dta feather html orc rds sas7bdat sav xml": "cannot be read: save it as Parquet or CSV",
}
EXTENSIONS = {"avro": (".avro",), "parquet": (".parquet", ".pq"), "csv": (".csv",)}


def format_name(path: str) -> str | None:
    """Returns the format of a file by its extension: only CSV files may be compressed."""
    name = path.rsplit("/", 1)[-1].lower()
    if compression_of(name) is not None and (inner := name.rpartition(".")[0]).endswith(".csv"):
        name = inner
    for found, extensions in EXTENSIONS.items():
        if name.endswith(extensions) or f".{name}" in extensions:
            return found
    return None


def other_kind(path: str) -> str | None:
    """Returns what a file of an extension that is not read is; None for an unknown extension."""
    name, _, extension = path.lower().rpartition(".")
    extension = extension if compression_of(path) is None else name.rpartition(".")[2]
    return next((kind for ends, kind in _OTHERS.items() if extension in ends.split()), None)
