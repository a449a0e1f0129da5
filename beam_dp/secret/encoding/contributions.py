"""Contribution limits: selects the records of each privacy unit that are kept.

Which records of a unit are kept depends only on the multiset of that unit's encoded records: not
on other units, and not on the order or place of the records. So a bundle that is processed again
keeps the same records, and adding or removing a unit changes at most k records.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.secret.encoding.batch import Columns, CostLimit, Words
from beam_dp.secret.encoding.units import mix


def split_by(
    numbers: NDArray[Any], num_numbers: int, columns: Sequence[NDArray[Any]]
) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """Yields (number, columns) for each distinct number, ascending; rows keep their order."""
    if not numbers.size:
        return
    first = int(numbers[0])
    if (numbers == first).all():
        yield first, list(columns)
        return
    narrow = numbers.astype(np.uint16 if num_numbers <= 2**16 else np.uint32)
    order = np.argsort(narrow, kind="stable")
    numbers, columns = narrow[order], [column.take(order, axis=-1) for column in columns]
    edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), numbers.size]
    for start, stop in itertools.pairwise(edges):
        yield int(numbers[start]), [column[..., start:stop] for column in columns]


# A sample is searched for identical records; records are merged if at least 1 in 2^8 is a repeat.
_SAMPLE = 2**12
_RARE = 2**8
_HASHED_RECORDS = 2**16
# With this many rows or more, a unit that has at least 1/8 of the rows is reduced before sorting.
_MANY_ROWS = 2**16
_LONG_SHARE = 8


def split_by_unit(
    units: NDArray[np.uint64], words: Columns, num_partitions: int
) -> Iterator[tuple[int, NDArray[np.uint64], Columns]]:
    """Yields (partition, units, words) for each partition with records; a unit is in one partition.

    ``units``: fingerprints, shape (2, n). ``num_partitions``: a power of two up to 2^16.
    """
    bits = num_partitions.bit_length() - 1
    partition = units[0] >> np.uint64(1) >> np.uint64(63 - bits)  # the highest bits
    for number, (units_here, *words_here) in split_by(partition, num_partitions, [units, *words]):
        yield number, units_here, words_here


def add_identical(
    units: NDArray[np.uint64], words: Columns, counts: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], Columns, NDArray[np.int64]]:
    """Merges identical records of each unit and adds up counts, unless a sample has few repeats."""
    sample = slice(None, None, -(-counts.size // _SAMPLE) or 1)
    hashes = _hashes(units[:, sample], [word[sample] for word in words])
    if (hashes.size - np.unique(hashes).size) * _RARE < hashes.size:
        return units, words, counts
    order, new = _identical_together(_hashes(units, words), [*units, *words])
    (starts,) = np.nonzero(new)
    first = order[starts]
    sums = np.add.reduceat(counts[order], starts)
    return units[:, first], [word[first] for word in words], sums


def distinct_records(units: NDArray[np.uint64], words: Columns) -> NDArray[np.intp]:
    """Returns the position of one of each unit's identical records, for all of its records."""
    order, new = _identical_together(_hashes(units, words), [*units, *words])
    return order[new]


def distinct_units(
    units: NDArray[np.uint64],
) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """Returns the distinct units, ascending, shape (2, m), and each record's position in them."""
    order, unit = _group(units)
    (starts,) = np.nonzero(_differs(unit[: order.size]))
    numbers = np.empty_like(order)
    numbers[order] = unit[: order.size]
    return units[:, order[starts]], numbers


def select_records(
    units: NDArray[np.uint64],
    words: Sequence[NDArray[Any]],
    counts: NDArray[np.int64],
    max_records_per_unit: int,
    cost_limit: CostLimit | None,
) -> NDArray[np.intp]:
    """Returns the positions of the kept records: per unit, the k with the lowest hashes.

    With a cost limit, the records of a unit are kept, in the order of hashes, until the first
    record with which the unit costs too much.

    A record's hash covers its unit, its words and its number among the unit's identical records.
    So the k kept records are a uniform sample of the unit's records, and it makes no difference
    which of several identical records are kept. The hash is public, so someone can craft records
    with equal hashes; such ties are broken by the records' words, lowest first.

    ``units``: fingerprints, shape (2, n); the rows must contain all records of each unit.
    ``words``: the records, arrays of shape (n,).
    ``counts``: the number of records per row, shape (n,), >= 1; counts of identical rows add up.
    ``cost_limit``: the cost limit of each unit; None to limit only the number of records.

    Guarantee: which records of a unit are kept is a function of the multiset of the unit's own
    records. The multiset determines the number of identical records of each kind, and so the
    hashes; and the order by hashes and words is total except for identical records. The function
    does not depend on how the counts are split over rows, on the order of the rows, or on other
    units. So adding or removing a unit adds or removes only the unit's own kept records, at most k:
    sums of weights from 0 to W change by at most k W in L1. Units are compared by all 128 bits.
    """
    if units.shape[1] == 0:
        return np.empty(0, np.intp)
    may_stay = _may_stay(units, words, counts, max_records_per_unit)
    if may_stay is not None:
        units, counts = units[:, may_stay], counts[may_stay]
        words = [word[may_stay] for word in words]
    order, unit = _group(units)
    (starts,) = np.nonzero(_differs(unit))
    num_free = max_records_per_unit
    if cost_limit is not None:
        num_free = min(num_free, cost_limit.costs.num_free)
    fits = (np.add.reduceat(counts[order], starts) <= num_free)[unit]
    kept = np.repeat(order[fits], counts[order[fits]])
    if not fits.all():
        order, unit = order[~fits], unit[~fits]
        words = [word[order] for word in words]
        hashes = _hashes(units[:, order], words)
        together, new = _identical_together(hashes, words, unit)
        (starts,) = np.nonzero(new)
        counts = np.add.reduceat(counts[order[together]], starts)
        kinds = together[starts]
        lowest = kinds[_lowest_of_each(unit[kinds], hashes[kinds], counts, max_records_per_unit)]
        if cost_limit is not None:
            lowest = lowest[cost_limit.keeps(unit[lowest], [word[lowest] for word in words])]
        kept = np.concatenate((kept, order[lowest]))
    return kept if may_stay is None else np.flatnonzero(may_stay)[kept]


def limit_records(
    words: Words,
    batches: Iterable[Any],
    max_records_per_unit: int,
    cost_limit: CostLimit | None,
) -> Any:
    """Returns one batch of the kept records; ``batches`` must contain all records of each unit."""
    units: list[NDArray[np.uint64]] = [np.empty((2, 0), np.uint64)]
    columns: list[Columns] = [[np.empty(0, dtype)] for dtype in words.dtypes]
    for batch in batches:
        units.append(batch.units)
        for collected, column in zip(columns, words.from_batch(batch), strict=True):
            collected.append(column)
    all_units = np.concatenate(units, axis=1)
    whole = [np.concatenate(collected) for collected in columns]
    counts = np.ones(all_units.shape[1], np.int64)
    kept = select_records(all_units, whole, counts, max_records_per_unit, cost_limit)
    return words.to_batch([column[kept] for column in whole], all_units[:, kept])


def _may_stay(
    units: NDArray[np.uint64], words: Sequence[NDArray[Any]], counts: NDArray[np.int64], limit: int
) -> NDArray[np.bool_] | None:
    """Returns the mask of rows that may contain a kept record; None for all rows.

    For a unit with very many records, excludes a row if at least ``most`` other records of the unit
    rank before the row's records. So excluded rows can't change the selection.
    """
    if counts.size < _MANY_ROWS:
        return None
    sample = units[:, :: -(-counts.size // _SAMPLE)]
    firsts, number = distinct_units(sample)
    long = firsts[:, np.bincount(number) * _LONG_SHARE >= number.size]
    may_stay: NDArray[np.bool_] | None = None
    for high, low in long.T:
        is_unit = (units[0] == high) & (units[1] == low)
        if may_stay is None:
            may_stay = np.ones(counts.size, np.bool_)
        may_stay[is_unit] = _low_rows(
            np.array([[high], [low]]), is_unit, [word[is_unit] for word in words], counts, limit
        )
    return may_stay


def _low_rows(
    unit: NDArray[np.uint64],
    is_unit: NDArray[np.bool_],
    words: Columns,
    counts: NDArray[np.int64],
    limit: int,
) -> NDArray[np.bool_] | np.bool_:
    """Returns the mask of rows that may have a unit's lowest ranks; True if all rows may.

    ``unit``: the unit, shape (2, 1). ``counts``: the counts of all rows; copying the unit's counts
    would take twice as much memory as the unit's words.

    Uses only hashes and treats rows with equal hashes as one kind of record. If these rows are of
    several kinds, each kind has at most as many records as the merged kind, so the ranks of a kind
    are among the ranks of the merged kind.
    """
    hashes = np.empty(np.count_nonzero(is_unit), np.uint64)
    for start in range(0, hashes.size, _HASHED_RECORDS):
        part = slice(start, start + _HASHED_RECORDS)
        hashes[part] = _hashes(unit, [word[part] for word in words])
    num_records = int(counts.sum(where=is_unit))
    if num_records > 2 * hashes.size:  # listing all records would take more memory than the rows
        return np.True_
    is_single = num_records == hashes.size
    ranked = np.sort(hashes if is_single else np.repeat(hashes, counts[is_unit]))
    new = _differs(ranked)
    firsts = np.flatnonzero(new)
    if firsts.size <= limit:
        return np.True_
    # The first record of each kind ranks by the kind's hash, so ``most`` records reach this bound.
    bound = ranked[firsts[limit - 1]]
    others = []
    first = 0  # start of the run that continues from the previous part
    for start in range(0, ranked.size, _HASHED_RECORDS):
        part = slice(start, start + _HASHED_RECORDS)
        kinds = ranked[part]
        places = np.arange(start, start + kinds.size)
        run = np.maximum.accumulate(np.where(new[part], places, first))
        first = run[-1]
        number = (places - run).astype(np.uint64)
        others.append(kinds[(number > 0) & (mix(kinds ^ mix(number)) <= bound)])
    low: NDArray[np.bool_] = (hashes <= bound) | np.isin(hashes, np.concatenate(others))
    return low


def _lowest_of_each(
    unit: NDArray[np.intp], hashes: NDArray[np.uint64], counts: NDArray[np.int64], limit: int
) -> NDArray[np.intp]:
    """Returns the kind of each record that is among the lowest ``most`` records of its unit."""
    # Kinds are sorted by unit, then by the hash of the first record; ties rank by position.
    if (counts == 1).all():
        (kept,) = np.nonzero(_position_in_run(_differs(unit)) < limit)
        return kept
    stops = np.cumsum(counts)
    starts = stops - counts
    lowest = []
    # The lowest records found for the most recent unit, in order.
    kinds, ranks = np.empty(0, np.intp), np.empty(0, np.uint64)
    size = max(_HASHED_RECORDS, limit)
    for start in range(0, int(stops[-1]), size):
        stop = min(start + size, int(stops[-1]))
        first, last = np.searchsorted(stops, (start, stop - 1), side="right").tolist()
        here = slice(first, last + 1)
        records = np.minimum(stops[here], stop) - np.maximum(starts[here], start)
        more = np.repeat(np.arange(first, last + 1), records)
        number = (np.arange(start, stop) - starts[more]).astype(np.uint64)
        more_ranks = np.where(number > 0, mix(hashes[more] ^ mix(number)), hashes[more])
        if kinds.size == limit:
            # If hashes are equal, the records found before rank first: their kinds come first.
            lower = (unit[more] != unit[kinds[0]]) | (more_ranks < ranks[-1])
            more, more_ranks = more[lower], more_ranks[lower]
        kinds, ranks = np.concatenate((kinds, more)), np.concatenate((ranks, more_ranks))
        order, _ = _identical_together(ranks, [kinds], unit[kinds])
        order = order[_position_in_run(_differs(unit[kinds[order]])) < limit]
        kinds, ranks = kinds[order], ranks[order]
        is_last = unit[kinds] == unit[last]
        lowest.append(kinds[~is_last])
        kinds, ranks = kinds[is_last], ranks[is_last]
    return np.concatenate((*lowest, kinds))


def _group(units: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns an order that groups records by unit, and each record's unit number in that order."""
    order = np.argsort(units[0])
    high, low = units[0, order], units[1, order]
    if ((high[1:] == high[:-1]) & (low[1:] != low[:-1])).any():
        # Two units agree in half of their bits. This is rare, but the units must stay distinct.
        order = np.lexsort((units[1], units[0]))
        high, low = units[0, order], units[1, order]
    new = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return order, np.concatenate(([0], np.cumsum(new)))


def _hashes(units: NDArray[np.uint64], words: Sequence[NDArray[Any]]) -> NDArray[np.uint64]:
    hashes = mix(units[0] ^ mix(units[1]))
    for word in words:
        hashes = mix(hashes ^ word.astype(np.uint64))
    return hashes


def _identical_together(
    hashes: NDArray[np.uint64],
    columns: Sequence[NDArray[Any]],
    unit: NDArray[np.intp] | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Returns an order by unit, hash and columns, and the mask of places where a kind starts."""
    keys: list[NDArray[Any]] = [hashes]
    order = np.argsort(hashes)
    if unit is not None:
        keys = [unit, hashes]
        # A stable argsort of 16-bit integers is a radix sort.
        for shift in range(0, int(unit.max()).bit_length(), 16):
            digits = (unit[order] >> shift).astype(np.uint16)
            order = order[np.argsort(digits, kind="stable")]
    new = _new_kinds(keys, order)
    (alike,) = np.nonzero(~new)
    if any((column[order[alike]] != column[order[alike - 1]]).any() for column in columns):
        # Different records with equal hashes are very rare by chance, but someone can craft them.
        keys = [*keys, *columns]
        order = np.lexsort(keys[::-1])
        new = _new_kinds(keys, order)
    return order, new


def _new_kinds(keys: Sequence[NDArray[Any]], order: NDArray[np.intp]) -> NDArray[np.bool_]:
    new: NDArray[np.bool_] = np.logical_or.reduce([_differs(key[order]) for key in keys])
    return new


def _differs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Returns the mask of values that differ from the previous value; the first is True."""
    new = np.ones(values.size, np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _position_in_run(starts: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Returns, for each position, the distance to the last True at or before the position."""
    positions = np.arange(starts.size)
    return positions - np.maximum.accumulate(np.where(starts, positions, 0))
