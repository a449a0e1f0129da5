"""The sampler that enumerates all multisets of distinct query columns."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, combinations_with_replacement, islice
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.mechanisms.small_db.size import MultisetLaw, draw_cells
from beam_dp.privacy.noise.bound import as_exponent, exp_above, exp_bounds
from beam_dp.privacy.noise.source import NoiseSource

# The largest numbers of entries in the table of tails, and in a part of the table that is processed
# in one step. A part fits in the processor's cache.
_TABLE_ENTRIES = 2**22
_CHUNK_ENTRIES = 2**15
# Weights in a block are integers in units of 2^-32 of the heaviest weight, rounded up by 1 or 2.
_BITS = 32
_BLOCK_BITS = 80
# Larger than the rounding error of a sum of 10^4 logarithms, if the sum is at most 2 x 10^5.
_MARGIN = 1 + 1e-6


class EnumerationSampler:
    """Draws exactly from a ``MultisetLaw`` by enumerating all multisets of types.

    A multiset is a non-decreasing sequence of types, and a block contains all sequences with the
    same prefix. One pass adds up integer upper bounds on the weights, block by block. A draw picks
    a block and a multiset in the block in proportion to these bounds. The multiset is kept with
    probability weight / bound, tossed exactly; otherwise the draw is repeated, which happens less
    than once in a hundred draws.

    ``law``: the distribution to draw from; at most some 10^8 multisets of types.

    Exact arithmetic: doubles only give upper bounds, with a margin far above rounding errors.
    """

    name: ClassVar[str] = "enumeration"

    def __init__(self, law: MultisetLaw) -> None:
        self._law = law
        self._targets = np.array(law.targets, np.int64).reshape(-1, 1)
        self._inverse_scale = float(1 / law.scale)
        self._has_ways = max(law.ways) > 1
        self._build_tails()
        self._sum_blocks()

    def draw(self, noise: NoiseSource) -> NDArray[np.int64]:
        """Returns the cells of one drawn multiset in ascending order."""
        while True:
            drawn = noise.below(self._cumulative[-1])
            block = bisect_right(self._cumulative, drawn)
            before = self._cumulative[block - 1] if block else 0
            offset = (drawn - before) // self._factors[block]
            prefix = _nth(self._prefixes(), block)
            losses, weights, _ = self._weigh(prefix)
            row = int(np.searchsorted(np.cumsum(weights), offset, side="right"))
            tails = combinations_with_replacement(range(self._law.num_types), self._tail_size)
            start = self._starts[prefix[-1]] if prefix else 0
            types = prefix + _nth(tails, start + row)
            if self._keep(types, int(losses[row]), int(weights[row]), self._factors[block], noise):
                break
        cells = [
            cell
            for kind in sorted(set(types))
            for cell in draw_cells(self._law.members[kind], types.count(kind), noise)
        ]
        return np.sort(np.array(cells, np.int64))

    def _keep(
        self, types: tuple[int, ...], loss: int, weight: int, factor: int, noise: NoiseSource
    ) -> bool:
        """Returns True with probability (weight of a multiset) / (upper bound on its weight)."""
        ways = math.prod(
            math.comb(self._law.ways[kind] + types.count(kind) - 1, types.count(kind))
            for kind in set(types)
        )
        exponent = (loss - self._least_loss) / self._law.scale
        bound = weight * factor << self._doublings
        more = ways.bit_length() + _BITS + _BLOCK_BITS

        def share(bits: int) -> tuple[int, int]:
            low, high = exp_bounds(exponent, bits + more)
            unit = bound << more
            return (
                (ways * low << (_BITS + _BLOCK_BITS)) // unit,
                -(-(ways * high << (_BITS + _BLOCK_BITS)) // unit),
            )

        return noise.coin(share)

    def _prefixes(self) -> Iterable[tuple[int, ...]]:
        length = self._law.size - self._tail_size
        return combinations_with_replacement(range(self._law.num_types), length)

    def _build_tails(self) -> None:
        """Tabulates all sequences of the largest length for which the table is small enough.

        First types are ascending, so the rows from ``_starts[t]`` on are the sequences in which
        every type is >= t.
        """
        law = self._law
        kinds, num_queries = law.num_types, max(len(law.targets), 1)
        self._tail_size, rows = 0, 1
        sums = np.zeros((len(law.targets), 1), np.int64)
        log_ways, runs = np.zeros(1), np.zeros(1, np.int64)
        starts = [0] * kinds
        while self._tail_size < law.size:
            rows = math.comb(kinds + self._tail_size, self._tail_size + 1)
            if self._tail_size and rows * num_queries > _TABLE_ENTRIES:
                break
            sums = np.concatenate(
                [law.answers[:, [t]] + sums[:, starts[t] :] for t in range(kinds)], axis=1
            )
            parts, run_parts, new_starts = [], [], []
            for kind, start in enumerate(starts):
                run = runs[start:].copy()
                end = starts[kind + 1] - start if kind + 1 < kinds else len(run)
                # Rows whose next type is a different one start a new run of length 1.
                run[end if self._tail_size else 0 :] = 0
                parts.append(log_ways[start:] + np.log((law.ways[kind] + run) / (run + 1)))
                run_parts.append(run + 1)
                new_starts.append(sum(map(len, parts[:-1])))
            log_ways, runs, starts = np.concatenate(parts), np.concatenate(run_parts), new_starts
            self._tail_size += 1
        self._sums, self._log_ways, self._runs = sums, log_ways, runs
        self._starts = starts
        self._ends = [*starts[1:], len(runs)]

    def _weigh(
        self, prefix: tuple[int, ...]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[int, float]]:
        """Returns a block's losses, integer weights, and (least loss, largest log-weight)."""
        law = self._law
        first = self._starts[prefix[-1]] if prefix else 0
        rest = self._targets - law.answers[:, list(prefix)].sum(axis=1, keepdims=True)
        rows = self._sums.shape[1] - first
        losses = np.zeros(rows, np.int64)
        if len(law.targets):
            width = min(rows, max(_CHUNK_ENTRIES // len(law.targets), 64))
            buffer = np.empty((len(law.targets), width), np.int64)
            for start in range(0, rows, width):
                stop = min(start + width, rows)
                part = buffer[:, : stop - start]
                np.subtract(self._sums[:, first + start : first + stop], rest, out=part)
                np.abs(part, out=part)
                np.max(part, axis=0, out=losses[start:stop])
        least = int(losses.min())
        logs = (losses - least) * -self._inverse_scale
        if self._has_ways:
            logs += self._log_ways[first:]
            ways = self._law.ways
            logs += sum(_log_comb(ways[kind], prefix.count(kind)) for kind in set(prefix))
            if prefix:
                # If a type is on both sides of the cut, both runs count as one run.
                kind = prefix[-1]
                run = prefix.count(kind)
                same = slice(0, self._ends[kind] - first)
                table = np.array(
                    [
                        _log_comb(law.ways[kind], run + more)
                        - _log_comb(law.ways[kind], run)
                        - _log_comb(law.ways[kind], more)
                        for more in range(self._tail_size + 1)
                    ]
                )
                logs[same] += table[self._runs[first:][same]]
        top = float(logs.max())
        logs -= top
        np.exp(logs, out=logs)
        logs *= 2.0**_BITS * _MARGIN
        weights = logs.astype(np.int64)
        weights += 2
        return losses, weights, (least, top)

    def _sum_blocks(self) -> None:
        """Adds up the weights in every block and converts all sums to a common scale."""
        totals: list[int] = []
        leasts: list[int] = []
        tops: list[float] = []
        for prefix in self._prefixes():
            _, weights, (least, top) = self._weigh(prefix)
            totals.append(int(weights.sum()))
            leasts.append(least)
            tops.append(top)
        self._least_loss = min(leasts)
        logs = [
            top - as_exponent((least - self._least_loss) / self._law.scale)
            for least, top in zip(leasts, tops, strict=True)
        ]
        # The unit of all bounds is 2^doublings times the weight of a multiset with the least loss.
        self._doublings = max(math.ceil(max(logs) / math.log(2)), 0)
        high = self._doublings * math.log(2)
        self._factors = [exp_above(max(high - log, 0.0), _BLOCK_BITS) for log in logs]
        self._cumulative = list(
            accumulate(total * factor for total, factor in zip(totals, self._factors, strict=True))
        )


def _log_comb(cells: int, size: int) -> float:
    """Returns the logarithm of the number of multisets of the given size."""
    return math.log(math.comb(cells + size - 1, size))


def _nth(sequences: Iterable[tuple[int, ...]], index: int) -> tuple[int, ...]:
    return next(islice(sequences, index, None))
