"""Tables over attributes, in Avro: the hypothesis of a synthetic database, and its measurements.

Blocks are not compressed: how long a file is depends on nothing but the shapes of its tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.releases.files.avro import read_records, write_records
from beam_dp.releases.synthetic_database.measured_tables import Names
from beam_dp.storage.store import DamagedFileError

Tables = Iterable[tuple[Names, NDArray[np.float64]]]

_FIELDS = [
    {"name": "attributes", "type": {"type": "array", "items": "string"}},
    {"name": "shape", "type": {"type": "array", "items": "long"}},
    {"name": "values", "type": {"type": "array", "items": "double"}},
]
SCHEMAS: dict[str, dict[str, Any]] = {
    "hypothesis": {
        "type": "record",
        "name": "LogPotential",
        "doc": "The weight of a cell is proportional to exp of the sum of these tables at its"
        " codes.",
        "fields": _FIELDS,
    },
    "independent": {
        "type": "record",
        "name": "IndependentLogPotential",
        "doc": "The same of independent attributes, which scores of pairs are distances from.",
        "fields": _FIELDS,
    },
    "measurements": {
        "type": "record",
        "name": "NoisyTable",
        "doc": "A noisy table as it was drawn, in records; the card says what each of them is.",
        "fields": _FIELDS,
    },
}


def table_bytes(purpose: str, draw_id: str, tables: Tables) -> bytes:
    """Returns the file of tables over attributes in domain order, for a purpose in ``SCHEMAS``."""
    records = (
        {"attributes": names, "shape": table.shape, "values": table} for names, table in tables
    )
    return write_records(SCHEMAS[purpose], draw_id, purpose, records)


def read_tables(
    purpose: str, data: bytes, domain: Domain
) -> list[tuple[Names, NDArray[np.float64]]]:
    """Returns the tables in a file.

    Raises:
        DamagedFileError: if the file does not hold tables over this domain.
    """
    tables = []
    for each in read_records(data, SCHEMAS[purpose]):
        names, values = tuple(each["attributes"]), each["values"]
        axes = domain.axes(names) if all(name in domain for name in names) else None
        if axes is None or list(axes) != sorted(set(axes)):
            raise DamagedFileError("has a table of attributes that are not in its domain")
        shape = [domain.shape[axis] for axis in axes]
        if each["shape"].tolist() != shape or values.size != math.prod(shape):
            raise DamagedFileError("has a table whose shape is not its domain's")
        tables.append((names, values.reshape(shape)))
    return tables
