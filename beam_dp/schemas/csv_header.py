"""Columns of a CSV file: the names in its header, which declares no types."""

from __future__ import annotations

import csv

from beam_dp.domain.texts import number_of
from beam_dp.errors import InputError
from beam_dp.schemas.columns import Column


def csv_columns(path: str) -> list[Column]:
    """Returns the columns of a CSV file, all of open types; no line but the first is read.

    Raises:
        InputError: if it can't be read, or its first line looks like a record: a name is empty, a
            number, or there twice. The line is not shown.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        raise InputError("schema", path, "must be a CSV file that can be read") from None
    if not names or len(set(names)) < len(names) or not all(map(_is_name, names)):
        condition = (
            "must start with a header: its first line must name its columns, each once, and not"
            " hold empty names or numbers"
        )
        raise InputError("schema", path, condition)
    return [Column(name, "open") for name in names]


def _is_name(text: str) -> bool:
    return bool(text.strip()) and number_of(text.encode()) is None
