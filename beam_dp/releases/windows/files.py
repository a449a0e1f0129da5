"""Files of tables of windows: the card, and the tables in Avro.

A directory contains ``card.json`` and ``tables-DRAW.avro``, with one row per marginal. Blocks are
not compressed, because the length of the file must not depend on the counts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.horizon import MECHANISM
from beam_dp.domain.universe import Names
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload, workload_from_json
from beam_dp.releases.files.card import Card, Payload
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.releases.windows.release import WindowTables
from beam_dp.storage.avro import file_name, read_records, write_records
from beam_dp.storage.store import DamagedFileError

TABLE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "WindowTable",
    "doc": "A marginal: unbiased counts of its cells in C order, in records, and the variance of"
    " each of them.",
    "fields": [
        {"name": "attributes", "type": {"type": "array", "items": "string"}},
        {"name": "shape", "type": {"type": "array", "items": "long"}},
        {"name": "values", "type": {"type": "array", "items": "double"}},
        {"name": "variance", "type": "double"},
    ],
}
_PURPOSE = "tables"
TYPES = {
    "mechanism": str,
    "guarantee": dict,
    "horizon_id": str,
    "level": str,
    "number": int,
    "start": int,
    "end": int,
    "domain": dict,
    "workload": dict,
    "noise": list,
    "parameters": dict,
}


def payload(release: WindowTables) -> dict[str, bytes]:
    """Returns the file of tables, by name."""
    tables = (
        {
            "attributes": names,
            "shape": release.tables[names].shape,
            "values": release.tables[names],
            "variance": release.variance(names),
        }
        for names in release.workload
    )
    data = write_records(TABLE_SCHEMA, release.draw_id, _PURPOSE, tables)
    return {file_name(release.draw_id, _PURPOSE): data}


def read(card: Card, payload: Payload) -> WindowTables:
    """Reads a release from its card and payload."""
    name = file_name(card.draw_id, _PURPOSE)
    card.check_files([name])
    card.check_types(TYPES)
    parsed = card.fields
    check_choice("mechanism", parsed["mechanism"], (MECHANISM,))
    domain = domain_from_json(parsed["domain"], "card")
    workload = workload_from_json(parsed["workload"], domain)
    measured = tuple(MeasuredTable.from_json(step, domain) for step in parsed["noise"])
    guarantee = Guarantee.from_json(parsed["guarantee"])
    kept = ("horizon_id", "level", "number", "start", "end", "versions")

    def release(data: bytes) -> WindowTables:
        tables, variances = _read_tables(data, workload)
        window = WindowTables(
            draw_id=card.draw_id,
            guarantee=guarantee,
            workload=workload,
            tables=tables,
            measured=measured,
            plan=parsed["parameters"],
            **{name: parsed[name] for name in kept},
        )
        for names, variance in variances.items():
            if not math.isclose(variance, window.variance(names), rel_tol=1e-6):
                raise InputError("variance", variance, "must be that of the card's noise")
        return window

    return payload.read(name, release)


def _read_tables(
    data: bytes, workload: Workload
) -> tuple[dict[Names, NDArray[np.float64]], dict[Names, float]]:
    tables: dict[Names, NDArray[np.float64]] = {}
    variances: dict[Names, float] = {}
    for row in read_records(data, TABLE_SCHEMA):
        names = tuple(row["attributes"])
        if names in tables or names not in workload.marginals:
            raise DamagedFileError("has a table that its card does not name, or a table twice")
        axes = workload.domain.axes(names)
        shape = [workload.domain.shape[axis] for axis in axes]
        if row["shape"].tolist() != shape or row["values"].size != math.prod(shape):
            raise DamagedFileError("has a table with another shape than its domain")
        tables[names] = row["values"].reshape(shape)
        variances[names] = row["variance"]
    return tables, variances
