"""The extensions of files of records, for jobs and for drafts of domains."""

from __future__ import annotations

from beam_dp.storage.compressed import compression_of

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
