"""The card of a release for sparse queries, and the release as bytes."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.hashing import HashKey
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.files.records_card import (
    SCHEMA_VERSION,
    PayloadFile,
    check_depth_and_texts,
    parse_card_text,
    payload_file,
)
from beam_dp.releases.files.sketch_keys import (
    key_rule_of,
    key_type_of,
)
from beam_dp.releases.sketches import (
    NoisyCounts,
    NoisySketch,
    SparseRelease,
    signs_of,
)
from beam_dp.releases.synthetic_database import library_versions

KIND = "sparse_release"
# How elements become cells; another family gives other cells for the same key.
HASH_FAMILY = "bivariate polynomials over GF(2^64), 1"

_MAX_WIDTH = 2**26
_MAX_SCALE = 2.0**50
_MAX_INTEGER = 2**62
_MAX_GRID = 2**32
_FIELDS = {
    "draw_id": str,
    "mechanism": str,
    "guarantee": dict,
    "max_sparsity": int,
    "max_weight": int,
    "parameters": dict,
    "hash_family": str,
    "versions": dict,
    "files": dict,
}
_SKETCH_CHOICES = {
    "family": ("dense", "blocks"),
    "distribution": ("discrete_laplace", "discrete_gaussian"),
    "estimator": ("mean", "median", "clipped_mean"),
}


@dataclasses.dataclass(frozen=True)
class SparseCard:
    """The public description of a release for sparse queries, as ``card.json`` holds it.

    Args: as of ``SparseRelease``, and
        sketch: the fields of ``NoisySketch`` with ``projection_width`` for its cells, or None.
        histogram: those of ``NoisyCounts`` with ``num_elements`` for its arrays, or None.
        versions: of libraries that made it.
        files: the payload, by file name.
    """

    draw_id: str
    mechanism: str
    guarantee: Guarantee
    max_sparsity: int
    max_weight: int
    parameters: Mapping[str, Any]
    sketch: Mapping[str, Any] | None
    histogram: Mapping[str, Any] | None
    versions: Mapping[str, str]
    files: Mapping[str, PayloadFile]

    @classmethod
    def of(cls, release: SparseRelease, files: Mapping[str, PayloadFile]) -> SparseCard:
        """Returns the card of a release whose payload is in these files."""
        sketch = histogram = None
        if release.sketch is not None:
            sketch = _without_arrays(release.sketch)
            sketch["projection_width"] = len(release.sketch.cells)
        if release.histogram is not None:
            histogram = _without_arrays(release.histogram)
            histogram["num_elements"] = len(release.histogram.elements)
        return cls(
            draw_id=release.draw_id,
            mechanism=release.mechanism,
            guarantee=release.guarantee,
            max_sparsity=release.max_sparsity,
            max_weight=release.max_weight,
            parameters=release.public,
            sketch=sketch,
            histogram=histogram,
            versions=library_versions(),
            files=files,
        )

    def release(
        self,
        hash_key: HashKey,
        cells: NDArray[np.int64] | None,
        counts: tuple[NDArray[np.uint64], NDArray[np.int64]] | None,
    ) -> SparseRelease:
        """Returns the release that has this card and this payload.

        Raises:
            InputError: if the payload is not that of the card.
        """
        sketch = histogram = None
        if self.sketch is not None and cells is not None:
            width = self.sketch["projection_width"]
            if len(cells) != width:
                raise InputError("cells", len(cells), f"must be {width}, as the card says")
            fields = {name: x for name, x in self.sketch.items() if name != "projection_width"}
            signs_of(fields["family"], hash_key, width, fields["num_blocks"])
            sketch = NoisySketch(**fields, cells=cells)
        if self.histogram is not None and counts is not None:
            elements, numbers = counts
            _check_counts(elements, numbers, self.histogram)
            fields = {name: x for name, x in self.histogram.items() if name != "num_elements"}
            histogram = NoisyCounts(**fields, elements=elements, counts=numbers)
        return SparseRelease(
            draw_id=self.draw_id,
            mechanism=self.mechanism,
            guarantee=self.guarantee,
            hash_key=hash_key,
            max_sparsity=self.max_sparsity,
            max_weight=self.max_weight,
            public=self.parameters,
            sketch=sketch,
            histogram=histogram,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the card as JSON holds it."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "draw_id": self.draw_id,
            "mechanism": self.mechanism,
            "guarantee": self.guarantee.to_json(),
            "max_sparsity": self.max_sparsity,
            "max_weight": self.max_weight,
            "parameters": dict(self.parameters),
            "hash_family": HASH_FAMILY,
            "sketch": None if self.sketch is None else dict(self.sketch),
            "histogram": None if self.histogram is None else dict(self.histogram),
            "versions": dict(self.versions),
            "files": {
                name: {"sha256": file.sha256, "bytes": file.num_bytes}
                for name, file in self.files.items()
            },
        }

    def to_text(self) -> str:
        """Returns the text of ``card.json``."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, parsed: Any) -> SparseCard:
        """Returns the card that parsed JSON describes.

        Raises:
            InputError: if it describes none, or one of a schema or a hash family that this version
                can't read.
        """
        if not isinstance(parsed, dict):
            raise InputError("card", type(parsed).__name__, "must be a JSON object")
        check_depth_and_texts(parsed)
        version = parsed.get("schema_version")
        if version != SCHEMA_VERSION or isinstance(version, bool):
            raise InputError("schema_version", version, f"must be {SCHEMA_VERSION}")
        if parsed.get("kind") != KIND:
            raise InputError("kind", parsed.get("kind"), f"must be {KIND!r}")
        for name, kind in _FIELDS.items():
            if not isinstance(parsed.get(name), kind):
                raise InputError("card", name, f"must be there and be of type {kind.__name__}")
        if parsed["hash_family"] != HASH_FAMILY:
            raise InputError("hash_family", parsed["hash_family"], f"must be {HASH_FAMILY!r}")
        if not re.fullmatch("[0-9a-f]{32}", parsed["draw_id"]):
            raise InputError("draw_id", parsed["draw_id"], "must be 32 hexadecimal digits")
        if not all(isinstance(version, str) for version in parsed["versions"].values()):
            raise InputError("versions", len(parsed["versions"]), "must be texts")
        card = cls(
            draw_id=parsed["draw_id"],
            mechanism=parsed["mechanism"],
            guarantee=Guarantee.from_json(parsed["guarantee"]),
            max_sparsity=checked_integer("max_sparsity", parsed["max_sparsity"], 1, 2**31),
            max_weight=checked_integer("max_weight", parsed["max_weight"], 1, 2**32),
            parameters=parsed["parameters"],
            sketch=_sketch(parsed.get("sketch")),
            histogram=_histogram(parsed.get("histogram")),
            versions=parsed["versions"],
            files={name: payload_file(name, entry) for name, entry in parsed["files"].items()},
        )
        if card.sketch is None and card.histogram is None:
            raise InputError("card", None, "must have a sketch or a histogram")
        key_type_of(card.parameters)
        key_rule_of(card.parameters)
        return card

    @classmethod
    def from_text(cls, text: str) -> SparseCard:
        """Returns the card that a ``card.json`` holds.

        Raises:
            InputError: if it holds none.
        """
        return cls.from_json(parse_card_text(text))


def sparse_release_to_bytes(release: SparseRelease) -> bytes:
    """Returns a release as one string of bytes, without pickle."""
    arrays: dict[str, NDArray[Any]] = {}
    if release.sketch is not None:
        arrays["cells"] = release.sketch.cells
    if release.histogram is not None:
        arrays["elements"] = release.histogram.elements
        arrays["counts"] = release.histogram.counts
    card = json.dumps(SparseCard.of(release, {}).to_json()).encode()
    buffer = io.BytesIO()
    np.savez(
        buffer,
        card=np.frombuffer(card, np.uint8),
        hash_key=np.frombuffer(release.hash_key.to_bytes(), np.uint8),
        **arrays,  # type: ignore[arg-type]
    )
    return buffer.getvalue()


def sparse_release_from_bytes(data: bytes) -> SparseRelease:
    """Returns the release that ``sparse_release_to_bytes`` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        card = SparseCard.from_json(json.loads(arrays["card"].tobytes()))
        hash_key = HashKey.from_bytes(arrays["hash_key"].tobytes())
        cells = arrays["cells"] if card.sketch is not None else None
        counts = None
        if card.histogram is not None:
            counts = arrays["elements"], arrays["counts"]
        return card.release(hash_key, cells, counts)


def _without_arrays(part: NoisySketch | NoisyCounts) -> dict[str, Any]:
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {name: value for name, value in fields.items() if not isinstance(value, np.ndarray)}


def _sketch(parsed: Any) -> dict[str, Any] | None:
    if parsed is None:
        return None
    fields = (*_SKETCH_CHOICES, "num_blocks", "scale", "grid", "projection_width")
    _check_fields(parsed, "sketch", fields)
    for name, choices in _SKETCH_CHOICES.items():
        if parsed[name] not in choices:
            raise InputError(name, parsed[name], f"must be one of {', '.join(choices)}")
    width = checked_integer("projection_width", parsed["projection_width"], 1, _MAX_WIDTH)
    rows = checked_integer("num_blocks", parsed["num_blocks"], 1, width)
    checked_integer("grid", parsed["grid"], 1, _MAX_GRID)
    if parsed["family"] == "dense" and (rows != width or parsed["estimator"] != "mean"):
        raise InputError("sketch", "dense", "must have as many rows as cells, and a mean of them")
    checked_number("scale", parsed["scale"], above=0, most=_MAX_SCALE)
    return dict(parsed)


def _histogram(parsed: Any) -> dict[str, Any] | None:
    if parsed is None:
        return None
    _check_fields(parsed, "histogram", ("scale", "threshold", "num_elements"))
    checked_integer("threshold", parsed["threshold"], 1, _MAX_INTEGER)
    checked_integer("num_elements", parsed["num_elements"], 0, _MAX_INTEGER)
    checked_number("scale", parsed["scale"], above=0, most=_MAX_SCALE)
    return dict(parsed)


def _check_fields(parsed: Any, name: str, fields: tuple[str, ...]) -> None:
    if not isinstance(parsed, dict) or set(parsed) != set(fields):
        raise InputError(name, type(parsed).__name__, f"must have the fields {', '.join(fields)}")


def _check_counts(
    elements: NDArray[np.uint64], counts: NDArray[np.int64], histogram: Mapping[str, Any]
) -> None:
    if len(elements) != histogram["num_elements"]:
        condition = f"must be {histogram['num_elements']}, as the card says"
        raise InputError("elements", len(elements), condition)
    if not (elements[1:] > elements[:-1]).all():
        raise InputError("elements", len(elements), "must be ascending, each given once")
    if len(counts) and int(counts.min()) < histogram["threshold"]:
        raise InputError("counts", len(counts), "must each reach the threshold of the card")
