"""Files of a released domain: the card, and a table of what was found, in Avro.

A directory contains ``card.json``, which holds the open domain, and ``found-DRAW.avro``: the texts
of each column, largest count first, or the edges of bins, each with a noisy count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from beam_dp.domain.discover import MAX_TEXT_BYTES, DiscoverValues, OpenAttribute, OpenDomain
from beam_dp.domain.files import open_domain_from_json
from beam_dp.domain.readings import READINGS
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.domain.release import MECHANISM, DomainRelease, Found
from beam_dp.releases.files.card import Card, Payload
from beam_dp.storage import avro
from beam_dp.storage.store import DamagedFileError

_PURPOSE = "found"
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Found",
    "doc": "A text, a date or a time, or a number that is an edge. The count is of privacy units,"
    " for an edge of the bin that begins there, and 0 for the last edge.",
    "fields": [
        {"name": "attribute", "type": "string"},
        {"name": "text", "type": "string"},
        {"name": "number", "type": "double"},
        {"name": "count", "type": "double"},
        {"name": "standard_error", "type": "double"},
    ],
}
TYPES = {"mechanism": str, "guarantee": dict, "domain": dict, "parameters": dict, "noise": list}


def payload(release: DomainRelease) -> dict[str, bytes]:
    """Returns the files, by name."""
    data = avro.write_records(SCHEMA, release.draw_id, _PURPOSE, _rows(release))
    return {avro.file_name(release.draw_id, _PURPOSE): data}


def _rows(release: DomainRelease) -> Iterator[dict[str, Any]]:
    for attribute, result, _ in release.columns():
        counts = zip(result.counts.tolist(), result.standard_errors.tolist(), strict=True)
        for value, (count, error) in zip(result.values, [*counts, (0.0, 0.0)], strict=False):
            row: dict[str, Any] = {"attribute": attribute.name, "text": "", "number": 0.0}
            row["text" if isinstance(value, str) else "number"] = value
            yield {**row, "count": count, "standard_error": error}


def read(card: Card, payload: Payload) -> DomainRelease:
    """Reads a release from its card and payload."""
    name = avro.file_name(card.draw_id, _PURPOSE)
    card.check_files([name])
    card.check_types(TYPES)
    parsed = card.fields
    if parsed["mechanism"] != MECHANISM:
        raise InputError("mechanism", parsed["mechanism"], f"must be {MECHANISM!r}")
    domain = open_domain_from_json(parsed["domain"], "card")
    if not isinstance(domain, OpenDomain):
        raise InputError("domain", "card", "must have attributes to discover")
    if not all(isinstance(entry, dict) for entry in parsed["noise"]):
        raise InputError("noise", len(parsed["noise"]), "must be a list of JSON objects")
    return DomainRelease(
        draw_id=card.draw_id,
        guarantee=Guarantee.from_json(parsed["guarantee"]),
        open_domain=domain,
        found=payload.read(name, lambda data: _found(data, domain)),
        noise=parsed["noise"],
        plan=parsed["parameters"],
        versions=parsed["versions"],
    )


def _found(data: bytes, domain: OpenDomain) -> list[Found]:
    """Returns what a file states for each open attribute."""
    rows: dict[str, list[dict[str, Any]]] = {attribute.name: [] for attribute in domain.open}
    for row in avro.read_records(data, SCHEMA):
        if row["attribute"] not in rows:
            raise DamagedFileError("has a column that is not to be discovered")
        rows[row["attribute"]].append(row)
    return [_column(attribute, rows[attribute.name]) for attribute in domain.open]


def _column(attribute: OpenAttribute, rows: list[dict[str, Any]]) -> Found:
    counts, errors = (
        np.array([row[name] for row in rows], np.float64) for name in ("count", "standard_error")
    )
    if isinstance(attribute.discover, DiscoverValues):
        texts = tuple(row["text"] for row in rows)
        is_short = all(len(text.encode()) <= MAX_TEXT_BYTES for text in texts)
        if len(texts) > attribute.discover.max_values or not is_short:
            raise DamagedFileError("has more or longer texts than its domain allows")
        return Found(texts, counts, errors)
    if attribute.discover is None:
        if [row["text"] for row in rows] != list(READINGS):
            raise DamagedFileError("has other readings than its domain")
        return Found(tuple(READINGS), counts, errors)
    if len(rows) - 1 > attribute.discover.bins:
        raise DamagedFileError("has more bins than its domain allows")
    column = "number" if attribute.kind == "numeric" else "text"
    return Found(tuple(row[column] for row in rows), counts[:-1], errors[:-1])
