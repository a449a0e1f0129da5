"""Files of interval counts: the card, and tables in Avro.

A directory holds ``card.json`` and ``intervals-DRAW.avro``: the estimated prefixes (of the textbook
tree, its noisy nodes) and the integers of the strategy, in pieces of 2^16 numbers. A strategy found
numerically may differ between machines, so the one that was used is part of the release, and
standard errors are computed from it when it is read.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain import Attribute, Domain, OrderedAttribute
from beam_dp.domain.files import domain_from_json
from beam_dp.errors import InputError
from beam_dp.interval_strategies.strategy import (
    MAX_LEAVES,
    Prefixes,
)
from beam_dp.interval_strategies.tables import (
    measured_from_tables,
    strategy_tables,
)
from beam_dp.interval_strategies.textbook_tree import (
    Nodes,
    TextbookTree,
)
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.files.container import (
    DamagedFileError,
    decode_bytes,
    decode_long,
    encode_bytes,
    encode_long,
    read_container,
    write_container,
)
from beam_dp.releases.files.records_card import (
    SCHEMA_VERSION,
    PayloadFile,
    check_depth_and_texts,
    parse_card_text,
    payload_file,
    read_left_out,
)
from beam_dp.releases.intervals import IntervalRelease
from beam_dp.releases.left_out import LeftOut
from beam_dp.releases.synthetic_database import plain_json

KIND = "intervals"
DISTRIBUTIONS = ("discrete_laplace", "discrete_gaussian")

TABLE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "IntervalTable",
    "doc": "A piece of a table, in C order; 'estimate' is in records. See docs/intervals.md.",
    "fields": [
        {"name": "table", "type": "string"},
        {"name": "shape", "type": {"type": "array", "items": "long"}},
        {"name": "start", "type": "long"},
        {"name": "values", "type": {"type": "array", "items": "double"}},
    ],
}
_ESTIMATE = "estimate"
_PIECE = 2**16
_MAX_BLOCK_BYTES = 8 * _PIECE + 2**12
# The largest strategy has 2^21 numbers in a table, and no more than four tables.
_MAX_TABLE, _MAX_TABLES = 2**22, 4
_FIELDS = {
    "draw_id": str,
    "mechanism": str,
    "guarantee": dict,
    "attribute": dict,
    "parameters": dict,
    "noise": dict,
    "errors": dict,
    "versions": dict,
    "files": dict,
}


def check_ordered(attribute: Attribute) -> None:
    """Refuses an attribute whose intervals cannot be counted.

    Raises:
        InputError: unless it has integers or bins, from 2 to 2^20 of them.
    """
    if not isinstance(attribute, OrderedAttribute):
        kinds = "an integer, numeric, date or datetime attribute"
        condition = f"must be {kinds}; it is {attribute.kind}, unordered"
        raise InputError("attribute", attribute.name, condition)
    if not 2 <= attribute.num_levels <= MAX_LEAVES:
        condition = f"must have from 2 to {MAX_LEAVES:,} levels; it has {attribute.num_levels:,}"
        raise InputError("attribute", attribute.name, condition)


def intervals_file(draw_id: str) -> str:
    """Returns the name of the file of tables."""
    return f"intervals-{draw_id}.avro"


@dataclass(frozen=True)
class IntervalDraw:
    """A release as a draw that ``store.commit_draw`` writes.

    Args:
        release: what to write.
    """

    release: IntervalRelease

    @property
    def draw_id(self) -> str:
        """Its name."""
        return self.release.draw_id

    def payload(self) -> dict[str, Callable[[BinaryIO], object]]:
        """Returns what writes each file, by name."""
        return {intervals_file(self.draw_id): self.write_tables}

    def card_text(self, files: Mapping[str, PayloadFile]) -> str:
        """Returns the text of ``card.json``."""
        held = {
            name: {"sha256": file.sha256, "bytes": file.num_bytes} for name, file in files.items()
        }
        card = {**card_json(self.release), "files": held}
        return json.dumps(card, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def read_card(self, text: str) -> IntervalCard:
        """Returns a card of this kind; raises InputError for any other."""
        return IntervalCard.from_json(parse_card_text(text))

    def write_tables(self, file: BinaryIO) -> None:
        """Writes the estimate and the strategy."""
        metadata = {
            "beam_dp.schema_version": str(SCHEMA_VERSION),
            "beam_dp.draw_id": self.draw_id,
        }
        blocks = _blocks(_tables(self.release))
        write_container(file, TABLE_SCHEMA, metadata, _sync(self.draw_id), blocks, deflate=True)


def card_json(release: IntervalRelease) -> dict[str, Any]:
    """Returns the card as JSON holds it, but for its files."""
    root = math.sqrt(release.mean_squared_error)
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "draw_id": release.draw_id,
        "mechanism": release.choice[0],
        "guarantee": release.guarantee.to_json(),
        "attribute": release.attribute.to_json(),
        "parameters": plain_json(release.parameters),
        "noise": {
            "distribution": release.choice[1],
            "scale": release.scale,
            "grid": release.grid,
            "variance": release.noise_variance,
        },
        "errors": {
            "intervals": release.num_leaves * (release.num_leaves + 1) // 2,
            "mean_squared_error": release.mean_squared_error,
            "root_mean_squared_error": root,
        },
        **({} if release.left_out is None else {"left_out": release.left_out.to_json()}),
        "versions": dict(release.versions),
    }


@dataclass(frozen=True)
class IntervalCard:
    """The public description of interval counts, as ``card.json`` holds it.

    Args: as of ``IntervalRelease``, and
        files: the payload, by file name.
    """

    draw_id: str
    attribute: Attribute
    guarantee: Guarantee
    choice: tuple[str, str]
    scale: float
    grid: int
    noise_variance: float
    mean_squared_error: float
    parameters: Mapping[str, Any]
    versions: Mapping[str, str]
    left_out: LeftOut | None
    files: Mapping[str, PayloadFile]

    @classmethod
    def from_json(cls, parsed: Any) -> IntervalCard:
        """Returns the card that parsed JSON describes.

        Raises:
            InputError: if it describes none, or one of a schema that this version can't read.
        """
        if not isinstance(parsed, dict) or parsed.get("kind") != KIND:
            raise InputError("card", type(parsed).__name__, f"must be of kind {KIND!r}")
        check_depth_and_texts(parsed)
        version = parsed.get("schema_version")
        if version != SCHEMA_VERSION or isinstance(version, bool):
            raise InputError("schema_version", version, f"must be {SCHEMA_VERSION}")
        for name, kind in _FIELDS.items():
            if not isinstance(parsed.get(name), kind):
                raise InputError("card", name, f"must be there and be of type {kind.__name__}")
        draw_id = parsed["draw_id"]
        if not re.fullmatch("[0-9a-f]{32}", draw_id):
            raise InputError("draw_id", draw_id, "must be 32 hexadecimal digits")
        if set(parsed["files"]) != {intervals_file(draw_id)}:
            raise InputError(
                "files", sorted(parsed["files"]), "must be the payload of the card's draw"
            )
        if not all(isinstance(version, str) for version in parsed["versions"].values()):
            raise InputError("versions", len(parsed["versions"]), "must be texts")
        domain = domain_from_json({"attributes": [parsed["attribute"]]}, "card")
        (attribute,) = domain.attributes
        check_ordered(attribute)
        noise = parsed["noise"]
        grid = checked_integer("grid", noise.get("grid"), 1, 2**62 - 1)
        if noise.get("distribution") not in DISTRIBUTIONS:
            condition = f"must be {' or '.join(DISTRIBUTIONS)}"
            raise InputError("distribution", noise.get("distribution"), condition)
        return cls(
            draw_id=draw_id,
            attribute=attribute,
            guarantee=Guarantee.from_json(parsed["guarantee"]),
            choice=(parsed["mechanism"], noise["distribution"]),
            scale=checked_number("scale", noise.get("scale"), above=0),
            grid=grid,
            noise_variance=checked_number("variance", noise.get("variance"), above=0),
            mean_squared_error=checked_number(
                "mean_squared_error", parsed["errors"].get("mean_squared_error"), above=0
            ),
            parameters=parsed["parameters"],
            versions=parsed["versions"],
            left_out=read_left_out(parsed, domain),
            files={name: payload_file(name, entry) for name, entry in parsed["files"].items()},
        )

    def release(self, data: bytes) -> IntervalRelease:
        """Returns the release that has this card and this file of tables.

        Raises:
            DamagedFileError: if the file is none.
            InputError: if its tables are not of this card.
        """
        tables = _read_tables(data, self.draw_id)
        num_leaves = self.attribute.num_levels
        values = tables.pop(_ESTIMATE, np.zeros(0))
        integers = {name: _as_integers(name, table) for name, table in tables.items()}
        strategy = measured_from_tables(
            self.choice[0], num_leaves, self.guarantee.neighboring, integers
        )
        is_tree = isinstance(strategy, TextbookTree)
        sizes = strategy.node_sizes() if isinstance(strategy, TextbookTree) else [num_leaves + 1]
        if values.shape != (sum(sizes),):
            raise InputError(_ESTIMATE, values.shape, f"must have the shape ({sum(sizes)},)")
        nodes = Nodes(np.split(values, np.cumsum(sizes)[:-1]))
        if not (np.abs(values) < 2.0**63).all():
            raise InputError(_ESTIMATE, values.shape, "must hold numbers below 2^63")
        with np.errstate(all="ignore"):
            # A matrix that answers nothing has none, and that of another strategy has another one.
            error = self.noise_variance / self.grid**2 * strategy.errors.mean()
        if not math.isclose(error, self.mean_squared_error, rel_tol=1e-6):
            condition = "must be that of the strategy in the payload"
            raise InputError("mean_squared_error", self.mean_squared_error, condition)
        fields = {name: getattr(self, name) for name in self.__annotations__ if name != "files"}
        estimate = nodes if is_tree else Prefixes(values)
        return IntervalRelease(**fields, strategy=strategy, estimate=estimate)


def to_bytes(release: IntervalRelease) -> bytes:
    """Returns a release as one string of bytes, without pickle."""
    draw = IntervalDraw(release)
    file = io.BytesIO()
    draw.write_tables(file)
    text = draw.card_text({intervals_file(draw.draw_id): PayloadFile("0" * 64, 0)}).encode()
    return struct.pack("<q", len(text)) + text + file.getvalue()


def from_bytes(data: bytes) -> IntervalRelease:
    """Returns the release that ``to_bytes`` wrote."""
    (length,) = struct.unpack_from("<q", data)
    card = IntervalCard.from_json(parse_card_text(data[8 : 8 + length].decode()))
    return card.release(data[8 + length :])


def ordered_domain(domain: Domain, name: str) -> Domain:
    """Returns the domain of one ordered attribute.

    Raises:
        InputError: if it has none of this name, or it is not ordered.
    """
    attribute = domain[name]
    check_ordered(attribute)
    return Domain((attribute,))


def _tables(release: IntervalRelease) -> dict[str, NDArray[np.float64]]:
    estimate = release.estimate
    values = estimate.values if isinstance(estimate, Prefixes) else np.concatenate(estimate.levels)
    # Integers below 2^53 are doubles without rounding.
    strategy = strategy_tables(release.strategy)
    return {_ESTIMATE: values, **{name: each.astype(float) for name, each in strategy.items()}}


def _blocks(tables: Mapping[str, NDArray[np.float64]]) -> Iterator[tuple[int, bytes]]:
    for name, table in tables.items():
        shape = encode_long(table.ndim) + b"".join(map(encode_long, table.shape)) + encode_long(0)
        flat = np.ascontiguousarray(table, "<f8").ravel()
        for start in range(0, max(flat.size, 1), _PIECE):
            piece = flat[start : start + _PIECE]
            values = encode_long(piece.size) + piece.tobytes() if piece.size else b""
            yield (
                1,
                encode_bytes(name.encode()) + shape + encode_long(start) + values + encode_long(0),
            )


def _read_tables(data: bytes, draw_id: str) -> dict[str, NDArray[np.float64]]:
    found: dict[str, NDArray[np.float64]] = {}
    filled: dict[str, int] = {}
    sync = _sync(draw_id)
    for num_records, block in read_container(
        data, TABLE_SCHEMA, sync, max_block_bytes=_MAX_BLOCK_BYTES
    ):
        if num_records != 1:
            raise DamagedFileError("has a block that is not one piece of a table")
        name, shape, start, values = _read_piece(block)
        if name not in found:
            if len(found) == _MAX_TABLES or math.prod(shape) > _MAX_TABLE:
                raise DamagedFileError("has more tables than it can have, or larger ones")
            found[name], filled[name] = np.zeros(shape), 0
        table = found[name].reshape(-1)
        if shape != found[name].shape or start != filled[name] or start + len(values) > table.size:
            raise DamagedFileError("has pieces of a table that do not fit together")
        table[start : start + len(values)] = values
        filled[name] += len(values)
    for name, table in found.items():
        if filled[name] != table.size:
            raise DamagedFileError("has a table of which a piece is missing")
        if not np.isfinite(table).all():
            raise DamagedFileError("has a table of numbers that are not finite")
    return found


def _read_piece(block: bytes) -> tuple[str, tuple[int, ...], int, NDArray[np.float64]]:
    name, position = decode_bytes(block, 0)
    num_axes, position = decode_long(block, position)
    if not 1 <= num_axes <= 2:
        raise DamagedFileError("has a table that is no vector and no matrix")
    shape = []
    for _ in range(num_axes):
        size, position = decode_long(block, position)
        if not 0 <= size <= _MAX_TABLE:
            raise DamagedFileError("has a table that is larger than it can be")
        shape.append(size)
    end, position = decode_long(block, position)
    start, position = decode_long(block, position)
    count, position = decode_long(block, position)
    if end != 0 or not 0 <= count <= (len(block) - position) // 8:
        raise DamagedFileError("has an array that does not end where it should")
    values = np.frombuffer(block, "<f8", count, position).astype(np.float64)
    position += 8 * count
    if count:
        end, position = decode_long(block, position)
    if end != 0 or position != len(block):
        raise DamagedFileError("has bytes after a piece of a table")
    return name.decode(), tuple(shape), start, values


def _as_integers(name: str, table: NDArray[np.float64]) -> NDArray[np.int64]:
    if not (np.abs(table) < 2**53).all() or not (table == np.rint(table)).all():
        raise InputError(name, table.shape, "must hold integers")
    return table.astype(np.int64)


def _sync(draw_id: str) -> bytes:
    """Sixteen bytes that part the blocks: the draw's own, so that a retry writes the same file."""
    return hashlib.sha256(f"intervals {draw_id}".encode()).digest()[:16]
