"""Measures how long the three samplers of SmallDB take for one draw.

    python benchmarks/small_db.py --runs 3

The search is measured on data of several shapes over 8 binary attributes, 256 distinct columns,
with all one- and two-way conjunctions as queries: its time depends on the data. A draw that takes
longer than the limit is stopped.
"""

from __future__ import annotations

import argparse
import math
import resource
import signal
import time
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.mechanisms.small_db.searched import SearchSampler
from beam_dp.privacy.noise.source import NoiseSource

NUM_BITS = 8
NUM_RECORDS = 1000
SHAPES = ("uniform", "spread", "product", "skewed", "correlated", "copies", "two cells", "one cell")


def hierarchy_queries(num_cells: int) -> NDArray[np.int64]:
    """Returns the nodes of a binary tree over so many cells, a power of two of them."""
    widths = 2 ** np.arange(num_cells.bit_length())
    return np.vstack([np.repeat(np.eye(num_cells // w, dtype=np.int64), w, 1) for w in widths])


def conjunctions(num_bits: int) -> NDArray[np.int64]:
    """Returns all one- and two-way conjunctions of literals, shape (num_queries, 2^num_bits)."""
    bits = np.arange(2**num_bits) >> np.arange(num_bits)[:, None] & 1
    literals = np.concatenate([bits, 1 - bits])
    pairs = [
        literals[i] * literals[j]
        for i in range(2 * num_bits)
        for j in range(i)
        if i - j != num_bits
    ]
    return np.concatenate([literals, pairs])


def shares(shape: str, generator: np.random.Generator) -> NDArray[np.float64]:
    """Returns a distribution over the cells."""
    cells = 2**NUM_BITS
    bits = np.arange(cells)[:, None] >> np.arange(NUM_BITS) & 1
    if shape == "uniform":
        return np.full(cells, 1 / cells)
    if shape == "spread":
        return generator.dirichlet(np.ones(cells))
    if shape == "skewed":
        return generator.dirichlet(np.full(cells, 0.05))
    if shape == "product":
        ones = generator.uniform(0.02, 0.4, NUM_BITS)
        return np.prod(np.where(bits, ones, 1 - ones), axis=1)
    if shape == "correlated":
        # Two kinds of records, each a product: all attributes lean the same way.
        low, high = generator.uniform(0.01, 0.15, NUM_BITS), generator.uniform(0.7, 0.98, NUM_BITS)
        kinds = [np.prod(np.where(bits, each, 1 - each), axis=1) for each in (low, high)]
        return 0.8 * kinds[0] + 0.2 * kinds[1]
    if shape == "copies":
        # A chain: each attribute repeats the one before with probability 0.9.
        same = (bits[:, 1:] == bits[:, :-1]).sum(axis=1)
        return np.where(bits[:, 0], 0.2, 0.8) * 0.9**same * 0.1 ** (NUM_BITS - 1 - same)
    chosen = generator.permutation(cells)[: 2 if shape == "two cells" else 1]
    return np.bincount(chosen, minlength=cells) / len(chosen)


class TooLongError(Exception):
    """A draw has reached the limit."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooLongError


def timed(
    mechanism: MultisetChoice, counts: NDArray[np.int64], limit: int
) -> tuple[float, int | None]:
    """Returns the CPU seconds of a draw, infinite beyond the limit; the divisions of a search."""
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(limit)
    start = time.process_time()
    divisions = None
    try:
        if mechanism.public["sampler"] == "search":
            sampler = SearchSampler(mechanism.law(counts))
            sampler.draw(NoiseSource())
            divisions = sampler.num_divisions
        else:
            mechanism.draw(counts, NoiseSource())
    except TooLongError:
        return math.inf, None
    finally:
        signal.alarm(0)
    return time.process_time() - start, divisions


def report(name: str, times: list[float], note: str) -> None:
    """Prints one row."""
    median, worst = sorted(times)[len(times) // 2], max(times)
    print(f"| {name} | {median:.2f} | {worst:.2f} | {note} |", flush=True)


def memory() -> float:
    """Returns the most memory that the process has used, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=int, default=60, help="seconds of a draw of the search")
    parser.add_argument("--shapes", nargs="*", default=SHAPES, choices=SHAPES)
    parser.add_argument("--search_only", action="store_true")
    flags = parser.parse_args()
    generator = np.random.default_rng(1)
    print("| draw | CPU seconds, median | worst | |\n| --- | --- | --- | --- |")
    if not flags.search_only:
        wide = np.random.default_rng(0).integers(0, 2, (32, 64))
        for name, queries, size, epsilon in (
            ("128 prefixes, m = 16: nested", np.tri(128, dtype=np.int64)[:-1], 16, 0.1),
            ("hierarchy over 128 cells, m = 16: nested", hierarchy_queries(128), 16, 0.1),
            ("10,424,128 multisets, 32 queries: enumeration", wide, 5, 1.0),
        ):
            mechanism = MultisetChoice(queries, epsilon, NUM_RECORDS, size)
            weights = generator.dirichlet(np.full(queries.shape[1], 0.3))
            before = memory()
            counts = generator.multinomial(NUM_RECORDS, weights)
            times = [timed(mechanism, counts, 600)[0] for _ in range(flags.runs)]
            report(name, times, f"{memory() - before:.0f} MiB more")
    mechanism = MultisetChoice(conjunctions(NUM_BITS), 0.1, NUM_RECORDS, 16, sampler="search")
    for shape in flags.shapes:
        times, divisions = [], []
        for _ in range(flags.runs):
            counts = generator.multinomial(NUM_RECORDS, shares(shape, generator))
            seconds, steps = timed(mechanism, counts, flags.limit)
            times.append(seconds)
            divisions.append(steps)
        told = ", ".join("stopped" if each is None else f"{each:,}" for each in divisions)
        report(f"search, {shape}", times, f"divisions {told}")


if __name__ == "__main__":
    main()
