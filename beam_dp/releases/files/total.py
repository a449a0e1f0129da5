"""A number of records on disk: its card, and the number in Avro."""

from __future__ import annotations

from typing import Any

from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.files.card import Card, Payload
from beam_dp.releases.files.container import (
    check_end,
    decode_long,
    encode_long,
    read_container,
    sync_marker,
    write_container,
)
from beam_dp.releases.plain import library_versions
from beam_dp.releases.total import TotalRelease
from beam_dp.storage.store import DamagedFileError

SCHEMA = {"type": "record", "name": "Total", "fields": [{"name": "total", "type": "long"}]}


def _file(draw_id: str) -> str:
    return f"total-{draw_id}.avro"


def fields(release: TotalRelease) -> dict[str, Any]:
    """Returns what the card says, as JSON values."""
    guarantee = release.guarantee.to_json()
    return {"guarantee": guarantee, "scale": release.scale, "versions": library_versions()}


def payload(release: TotalRelease) -> dict[str, bytes]:
    """Returns the one file."""
    blocks = [(1, encode_long(release.total))]
    data = write_container(SCHEMA, release.draw_id, "total", blocks, deflate=False)
    return {_file(release.draw_id): data}


def read(card: Card, payload: Payload) -> TotalRelease:
    """Returns the release of a card and its payload.

    Raises:
        InputError: if the card is none of a total.
        DamagedFileError: if the file holds no total.
    """
    card.check_files([_file(card.draw_id)])
    card.check_types({"guarantee": dict, "scale": float})

    def total(data: bytes) -> int:
        sync = sync_marker(card.draw_id, "total")
        blocks = list(read_container(data, SCHEMA, sync, max_block_bytes=None))
        if len(blocks) != 1:
            raise DamagedFileError("must hold one number")
        value, position = decode_long(blocks[0][1], 0)
        check_end(blocks[0][1], position)
        return value

    return TotalRelease(
        draw_id=card.draw_id,
        guarantee=Guarantee.from_json(card.fields["guarantee"]),
        total=payload.read(_file(card.draw_id), total),
        scale=card.fields["scale"],
    )
