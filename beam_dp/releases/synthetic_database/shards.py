"""The rows of released records: their random order, values within bins, and shards of rows.

A release stores its distinct records by code, with a count of equal rows. Rows in the order of
codes would mislead anyone who only takes the first rows, so rows are shuffled. All random bits for
this, and for values within bins, are expanded from the draw's id, which is 128 bits of the
operating system's entropy, independent of all records, and public on the card. So order and values
reveal nothing beyond the codes and counts, and every worker that writes or reads a draw gets the
same rows, without keeping them.

A fair coin sends each row to one of two halves, repeatedly, until a part is small; each part is
then shuffled alone (Rao, 1961; Sandelius, 1962). All orders are equally likely, and only one part
is in memory at a time. The coins of equal rows are tossed together: a count of n rows is split by a
binomial number, the number of ones among n random bits. The first tosses divide a large release
into shards, which different workers write.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.files import domain_from_json
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.releases.synthetic_database.records import Codes, records_file

# A release knows only the bin of a value. Its values are drawn within the bin, with a density that
# rises or falls as the records of the bins beside it do, because a bin at the end of a long tail
# has most of its values near the others. This follows from the released records alone.
#
# The released value of a bin: a draw with a density that follows the bins beside it, a uniform
# draw, or the middle of the bin. Readers draw values again, so a rule that gives other values needs
# another name.
WITHIN_BINS = ("density", "uniform", "midpoint")
# Within a piece, which holds an equal part of a bin's values, values are uniform. Their ends are
# rounded, so that every machine draws the same values.
_NUM_PIECES, ROUNDING = 128, 2**20
# Rates are differences of the logarithms of the density at both ends of a bin: the largest one of a
# bin between others, and the smallest one that counts.
_MAX_RATE, _FLAT = 12.0, 1e-3
# A found bin that begins at 0 has only zeros if it is at most so large a share of the range, with
# so many times the density of so many widths after it: many columns have zeros beside numbers, and
# noise may put some units beside a peak.
_NARROW, _PEAK, _NUM_WIDTHS = 1 / 100, 100, 10
# Rates of a density that falls to the end of a column, and its mean as a share of where it begins.
_TAIL_RATES = np.geomspace(_FLAT, 64, 4096)
_STEEPEST = 7.0  # the logarithm of twice the largest rate of a bin with a measured mean
_TAIL_SHARES = -np.expm1(-_TAIL_RATES) / _TAIL_RATES

# The ends of the pieces of each bin, as shares of its width: shape (bins, pieces + 1).
Positions = NDArray[np.float64]


def bin_positions(
    attribute: BinnedAttribute, counts: NDArray[Any], within_bins: str = "density"
) -> Positions:
    """Returns where the values of each bin lie; one piece a bin if they are uniform.

    The density within a bin is exponential. The slope of its logarithm is the smaller one of those
    towards the two bins beside it, and 0 if one rises and the other falls (the minmod limiter): so
    a peak in one bin bends no other bin. A bin at an end uses the slopes of the two nearest pairs;
    where these fall, it begins with the density at the end of the bin beside it. A peak in a found
    bin that begins at 0 is a peak of zeros.

    ``counts``: the number of records in each bin, shape (bins,).
    """
    size = attribute.num_levels
    if within_bins == "uniform" or size < 3:
        return np.tile([0.0, 1.0], (size, 1))
    # Extreme edges make infinite widths or slopes, for which values are uniform.
    with np.errstate(all="ignore"):
        widths: NDArray[Any]
        if attribute.whole_ends is None:
            widths = np.diff(np.array(attribute.edges, np.float64))
        else:
            widths = 1.0 + attribute.whole_ends[1] - attribute.whole_ends[0]
        logs = np.log((counts + 0.5) / widths)
        slopes = 2 * np.diff(logs) / (widths[:-1] + widths[1:])
        before, after = np.append(slopes[1], slopes), np.append(slopes, slopes[-2])
        smaller = np.sign(before) * np.minimum(np.abs(before), np.abs(after))
        rates = np.where(before * after > 0, smaller, 0.0) * widths
    rates = np.clip(np.nan_to_num(rates, posinf=0.0, neginf=0.0), -_MAX_RATE, _MAX_RATE)
    for end, neighbor, outward in ((0, 1, -1), (size - 1, size - 2, 1)):
        if outward * rates[end] < -_FLAT:
            # The density goes on from where that of the bin beside it ends.
            rate = min(outward * float(rates[neighbor]), -_FLAT)
            begin = logs[neighbor] + math.log(rate / -math.expm1(-rate))
            share = math.exp(min(logs[end] - begin, 0.0))
            rates[end] = -outward * np.interp(share, _TAIL_SHARES[::-1], _TAIL_RATES[::-1])
    rounded = _exponential(rates)
    if attribute.edges_from is not None and 0 in attribute.edges[:-2]:
        zero = attribute.edges.index(0)
        if _is_peak(attribute.places, counts, zero):
            rounded[zero] = 0.0
    return rounded


def _exponential(rates: NDArray[np.float64]) -> Positions:
    """Returns the positions of values with exponential densities of some rates, shape (bins,)."""
    shares, steep = np.linspace(0, 1, _NUM_PIECES + 1), np.maximum(np.abs(rates), _FLAT)[:, None]
    rising = np.log1p(shares * np.expm1(steep)) / steep
    ends = np.where(rates[:, None] < 0, 1 - rising[:, ::-1], rising)
    ends = np.where(np.abs(rates[:, None]) < _FLAT, shares, ends)
    rounded: Positions = np.rint(ends * ROUNDING) / ROUNDING
    return rounded


def moved_positions(usual: Positions, means: NDArray[np.float64]) -> Positions:
    """Returns exponential positions with means of shape (bins,), but peaks of zeros as usual."""
    rates = np.sinh(np.linspace(-_STEEPEST, _STEEPEST, 2049))
    of_rates = _exponential(rates)[:, :-1].mean(axis=1) + 0.5 / _NUM_PIECES
    moved = _exponential(np.interp(means, of_rates, rates))
    moved[usual[:, -1] == 0] = 0.0
    return moved


def _is_peak(edges: NDArray[np.float64], counts: NDArray[Any], place: int) -> bool:
    """Returns whether a narrow bin has a much larger density than the numbers after it."""
    reached = np.append(0.0, np.cumsum(counts))
    end, width = edges[place + 1], edges[place + 1] - edges[place]
    beside = np.interp(end + _NUM_WIDTHS * width, edges, reached) - reached[place + 1]
    is_narrow = width / _NARROW < edges[-1] - edges[0]
    return bool(is_narrow and counts[place] > _PEAK * (beside + 1) / _NUM_WIDTHS)


def values_within(
    attribute: BinnedAttribute,
    codes: NDArray[Any],
    words: NDArray[np.uint64],
    positions: Positions,
) -> NDArray[Any]:
    """Returns a value in the bin of each code, from random words; 0 outside the bins."""
    is_in_bin = codes < attribute.num_levels
    bins = np.where(is_in_bin, codes, 0)
    places = (words >> np.uint64(11)).astype(np.float64) * (2.0**-53 * (positions.shape[1] - 1))
    pieces = places.astype(np.int64)
    places -= pieces
    pieces += bins.astype(np.int64) * positions.shape[1]
    ends = positions.ravel()
    uniforms = ends[pieces] * (1 - places) + ends[pieces + 1] * places
    return np.where(is_in_bin, attribute.values_within(bins, uniforms), 0)


# The bytes of a shard's rows, at one byte per value and eight more per value within a bin. Encoding
# a shard takes at most twice as much memory.
SHARD_BYTES = 2**25
# Different numbers would change the rows of existing draws.
_BLOCK_ROWS = 2**18
_ONES = np.array([word.bit_count() for word in range(2**16)], np.uint8)
_MASKS = np.array([2**number - 1 for number in range(16)], np.uint16)


class RowBlock(NamedTuple):
    """Consecutive rows: the place of each row's record in ``distinct``, and the drawn values."""

    distinct: NDArray[np.int64]
    which: NDArray[np.int64]
    values: dict[str, NDArray[Any]]

    @property
    def records(self) -> NDArray[np.int64]:
        """The place of each row's record in the release's ``codes``."""
        return self.distinct[self.which]


class Part(NamedTuple):
    """Rows that the same coin tosses chose: a node of a binary tree, its records and counts."""

    node: int
    distinct: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RecordShard:
    """The rows of one file of a release; a small release has one shard."""

    domain: Domain
    draw_id: str
    records_format: str
    positions: Mapping[str, Positions]  # by column, if values are drawn within their bins
    statements: Mapping[str, str]  # the mechanism and guarantee, for the metadata of the file
    number: int  # the place of the shard in the order of the release
    num_shards: int
    codes: Codes  # of all records, one array per attribute
    part: Part  # refers to places in ``codes``

    @property
    def name(self) -> str:
        """The name of the file."""
        return records_file(self.draw_id, self.records_format, self.number, self.num_shards)

    def rows(self) -> Iterator[RowBlock]:
        """Yields the rows in order, at most 2^18 rows at once."""
        drawn = drawn_columns(self.domain, self.codes, self.positions)
        return row_blocks(self.part, self.draw_id, drawn)

    def to_plain(self) -> tuple[str, tuple[bytes, ...]]:
        """Returns the shard as JSON and arrays that a pipeline can pass from step to step."""
        counts = self.part.counts
        columns = [column[self.part.distinct] for column in self.codes]
        columns.append(counts.astype(np.min_scalar_type(int(counts.max(initial=0)))))
        columns += self.positions.values()
        fields = {
            "domain": self.domain.to_json(),
            "draw_id": self.draw_id,
            "records_format": self.records_format,
            "drawn": {name: ends.shape for name, ends in self.positions.items()},
            "statements": dict(self.statements),
            "number": self.number,
            "num_shards": self.num_shards,
            "node": self.part.node,
            "types": [column.dtype.str for column in columns],
            "sizes": [column.nbytes for column in columns],
        }
        # A runner may keep the arrays of all shards in memory; this makes them six times smaller.
        codec = _codec()
        return json.dumps(fields), tuple(
            codec.compress(column.tobytes(), asbytes=True) for column in columns
        )

    @classmethod
    def from_plain(cls, plain: tuple[str, tuple[bytes, ...]]) -> Self:
        """Returns the shard that ``to_plain`` described."""
        fields = json.loads(plain[0])
        domain = domain_from_json(fields.pop("domain"), "domain")
        types, node, drawn = fields.pop("types"), fields.pop("node"), fields.pop("drawn")
        sizes, codec = fields.pop("sizes"), _codec()
        columns = [
            np.frombuffer(codec.decompress(column, size, asbytes=True), kind)
            for column, size, kind in zip(plain[1], sizes, types, strict=True)
        ]
        codes, (counts, *ends) = columns[: domain.num_attributes], columns[domain.num_attributes :]
        positions = {
            name: column.reshape(shape)
            for (name, shape), column in zip(drawn.items(), ends, strict=True)
        }
        part = Part(node, np.arange(len(counts)), counts.astype(np.int64))
        return cls(domain=domain, codes=tuple(codes), part=part, positions=positions, **fields)


def _codec() -> Any:
    import pyarrow as pa  # a reader of releases need not have it

    return pa.Codec("zstd", 1)


def num_shards(domain: Domain, num_records: int, is_drawn: bool) -> int:
    """Returns the number of files for the records of a release: a power of two.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> num_shards(read_domain('{"age": 85, "sex": 2}'), 10**9, is_drawn=False)
        64
    """
    binned = sum(isinstance(attribute, BinnedAttribute) for attribute in domain) * is_drawn
    num_bytes = num_records * (domain.num_attributes + 8 * binned)
    return 1 << max(0, -(-num_bytes // SHARD_BYTES) - 1).bit_length()


def parts_of(counts: NDArray[np.int64], draw_id: str, num_parts: int) -> list[Part]:
    """Returns the rows of a release in parts, in the order of the release.

    ``counts``: the number of rows equal to each distinct record, shape (m,).
    ``num_parts``: a power of two.
    """
    parts = [Part(1, np.arange(len(counts)), counts)]
    while len(parts) < num_parts:
        parts = [half for part in parts for half in _halves(part, draw_id)]
    return parts


class DrawnColumn(NamedTuple):
    """A column whose values are drawn within bins: the codes of all records, and where they lie."""

    attribute: BinnedAttribute
    codes: NDArray[Any]
    positions: Positions


def drawn_columns(
    domain: Domain, codes: Codes, positions: Mapping[str, Positions]
) -> dict[str, DrawnColumn]:
    """Returns the columns whose values are drawn within bins, by name."""
    return {
        attribute.name: DrawnColumn(attribute, of, positions[attribute.name])
        for attribute, of in zip(domain, codes, strict=True)
        if isinstance(attribute, BinnedAttribute) and attribute.name in positions
    }


def row_blocks(part: Part, draw_id: str, drawn: Mapping[str, DrawnColumn]) -> Iterator[RowBlock]:
    """Yields the rows of a part in order, at most 2^18 rows at once."""
    parts = [part]
    while parts:
        node, distinct, counts = parts.pop()
        num_rows = int(counts.sum())
        if num_rows > _BLOCK_ROWS:
            parts += reversed(_halves(Part(node, distinct, counts), draw_id))
            continue
        which = np.repeat(np.arange(len(counts)), counts)
        # A block has two equal words with probability 2^-30: a slower sort is not worthwhile.
        which = which[np.argsort(random_words(f"order of rows {draw_id} {node}", num_rows, "<u8"))]
        values = {}
        for name, (attribute, codes, positions) in drawn.items():
            words = random_words(f"values within bins {draw_id} {node} {name}", num_rows, "<u8")
            values[name] = values_within(attribute, codes[distinct[which]], words, positions)
        yield RowBlock(distinct, which, values)


def _halves(part: Part, draw_id: str) -> list[Part]:
    """Tosses a coin for each row of a part."""
    bits = partial(random_words, f"order of rows {draw_id} {part.node}")
    heads = _num_heads(part.counts, bits)
    halves = []
    for child, counts in ((2 * part.node, heads), (2 * part.node + 1, part.counts - heads)):
        filled = np.flatnonzero(counts != 0)
        halves.append(Part(child, part.distinct.take(filled), counts.take(filled)))
    return halves


def _num_heads(
    counts: NDArray[np.int64], bits: Callable[[int, str], NDArray[Any]]
) -> NDArray[np.int64]:
    """Returns the number of heads after tossing each given number of fair coins."""
    full = counts >> 4
    words = bits(len(counts) + int(full.sum()), "<u2")
    last, words = words[: len(counts)], _ONES[words[len(counts) :]]
    heads: NDArray[np.int64] = _ONES[last & _MASKS[counts & 15]].astype(np.int64)
    has_words = np.flatnonzero(full != 0)
    if len(has_words):
        starts = (np.cumsum(full) - full)[has_words]
        heads[has_words] += np.add.reduceat(words, starts, dtype=np.int64)
    return heads


def random_words(name: str, number: int, kind: str) -> NDArray[Any]:
    """Returns ``number`` words of pseudorandom bits, expanded from a name."""
    size = np.dtype(kind).itemsize
    return np.frombuffer(hashlib.shake_128(name.encode()).digest(number * size), kind)
