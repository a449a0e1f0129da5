"""Projections against the machine's own limit of carry-less products: ratios, one thread.

    python benchmarks/hashing.py --quick
    python benchmarks/hashing.py --record benchmarks/results/hashing.json

Limit and kernel are measured in turn, several short runs each, in CPU time; the best of each
counts, because the machine may be busy. The useful products of the dense matrix are r / 2 for 64
signs of a key: powers, reductions and the count of bits are overhead. Those of the block matrix are
all products that the algorithm needs, powers included.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.hashing.evaluation import (
    ENVIRONMENT_VARIABLE,
    available_backends,
    kernel,
    pairs_per_chunk,
)
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.hashing.projections import BlockSigns, DenseSigns
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table

INDEPENDENCE = 48
WIDTHS = (4096, 65536)
NUM_BLOCKS = 8
# What a key costs if each of the 46 powers is computed and reduced by itself, with three products,
# and two polynomials are summed: the plain algorithm, for comparison.
PLAIN_PRODUCTS = 185


def cpu_seconds(work: Callable[[], object]) -> float:
    """Returns the time of this thread alone."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def best_rates(
    work: Callable[[], object], size: int, backend: str, runs: int
) -> tuple[float, float]:
    """Returns keys a second, and the limit in products a second, measured in turn."""
    work()
    rates, limits = [], [0.0]
    for _ in range(runs):
        if kernel is not None and backend != "numpy":
            iterations = 20_000 if backend == "portable" else 1_000_000
            products = 0

            def limit(iterations: int = iterations) -> None:
                nonlocal products
                products, _ = kernel.products(backend, iterations)

            seconds = cpu_seconds(limit)
            limits.append(products / seconds)
        rates.append(size / cpu_seconds(work))
    return max(rates), max(limits)


def block_products(num_polynomials: int) -> int:
    """Products of a key: its square, its powers, Winograd's term, then the polynomials."""
    pairs = pairs_per_chunk(INDEPENDENCE, num_polynomials)
    chunks = -(-INDEPENDENCE // (2 * pairs))
    return 1 + 2 * pairs + 2 + num_polynomials * (chunks * pairs + chunks - 1)


def dense_row(key: HashKey, width: int, backend: str, size: int, runs: int) -> Row:
    """Returns the row of the table for the dense matrix."""
    signs = DenseSigns(key, width)
    keys, weights, sums = inputs(size, width)
    rate, limit = best_rates(lambda: signs.add(sums, keys, weights), size, backend, runs)
    share = rate * width / 64 * INDEPENDENCE / 2 / limit if limit else 0.0
    signs_rate = {"signs": Figure(rate * width / 1e9, "billion a second")}
    return row(f"dense, {width:,} rows, {backend}", rate, limit, share, runs, **signs_rate)


def block_row(key: HashKey, width: int, backend: str, size: int, runs: int) -> Row:
    """Returns the row of the table for the block matrix."""
    blocks = BlockSigns(key, width, NUM_BLOCKS)
    keys, weights, sums = inputs(size, width)
    rate, limit = best_rates(lambda: blocks.add(sums, keys, weights), size, backend, runs)
    num_polynomials = -(-NUM_BLOCKS // (64 // blocks.num_buckets.bit_length()))
    share = rate * block_products(num_polynomials) / limit if limit else 0.0
    what = f"{NUM_BLOCKS} blocks, {width:,} rows, {backend}"
    found = row(what, rate, limit, share, runs)
    if limit:
        plain = Figure(rate * PLAIN_PRODUCTS / limit, "parts of all")
        found.figures["counted as the plain algorithm's products"] = plain
    return found


def inputs(size: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns keys all over the range, weights of 1, and sums to fill."""
    keys = np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return keys, np.ones(size, dtype=np.int64), np.zeros(width, dtype=np.int64)


def row(what: str, rate: float, limit: float, share: float, runs: int, **more: Figure) -> Row:
    """Returns one row of the table: numpy has no limit to be measured against."""
    figures = {"useful products, of the limit": Figure(share, "parts of all")} if limit else {}
    return Row(what, {**figures, "keys": Figure(rate, "a second"), **more}, runs)


def text_rate(key: HashKey, size: int, runs: int) -> float:
    """Returns fingerprints a second."""
    texts = [f"user{number}@example.org" for number in range(size)]
    return max(
        size / cpu_seconds(lambda: universe_elements(texts, key, "element")) for _ in range(runs)
    )


def measured(runs: int, scale: int) -> Iterator[Row]:
    """Yields every measurement."""
    key = HashKey.draw(INDEPENDENCE)
    slow = {"portable": 40, "numpy": 20}
    for width in WIDTHS:
        for backend in available_backends():
            os.environ[ENVIRONMENT_VARIABLE] = backend
            size = scale * 10_000 * 4096 // width // slow.get(backend, 1)
            # Numpy needs thousands of keys at a time; a part of a tile would be time lost.
            size = max(4096 * 4096 // width if backend == "numpy" else 128, size // 128 * 128)
            yield dense_row(key, width, backend, size, runs)
    for width in WIDTHS:
        for backend in available_backends():
            os.environ[ENVIRONMENT_VARIABLE] = backend
            size = scale * 100_000 // slow.get(backend, 1)
            yield block_row(key, width, backend, size, runs)
    os.environ.pop(ENVIRONMENT_VARIABLE)
    rate = text_rate(key, scale * 20_000, runs)
    yield Row("fingerprints of text", {"keys": Figure(rate, "a second")}, runs)


def main() -> None:
    """Prints the table, and keeps it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    add_flag(parser)
    options = parser.parse_args()
    runs, scale = (5, 1) if options.quick else (15, 4)
    print(f"r = {INDEPENDENCE}, one thread, CPU time, the best run, in turn with the limit")
    rows = list(measured(runs, scale))
    print(table(rows, "matrix, rows, backend"))
    keep(options.record, rows)


if __name__ == "__main__":
    main()
