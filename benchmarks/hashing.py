"""Projections against the machine's own limit of carry-less products: ratios, one thread.

    python benchmarks/hashing.py --quick
    python benchmarks/hashing.py --output FILE

Limit and kernel are measured in turn, several short runs each, in CPU time; the best of each
counts, because the machine may be busy. The useful products of the dense matrix are r / 2 for 64
signs of a key: powers, reductions and the count of bits are overhead. Those of the block matrix are
all products that the algorithm needs, powers included.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.hashing import BlockSigns, DenseSigns, HashKey, available_backends, universe_elements
from beam_dp.hashing.backend import ENVIRONMENT_VARIABLE, kernel
from beam_dp.hashing.evaluation import pairs_per_chunk

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


def dense_row(key: HashKey, width: int, backend: str, size: int, runs: int) -> str:
    """Returns the row of the table for the dense matrix."""
    signs = DenseSigns(key, width)
    keys, weights, sums = inputs(size, width)
    rate, limit = best_rates(lambda: signs.add(sums, keys, weights), size, backend, runs)
    share = rate * width / 64 * INDEPENDENCE / 2 / limit if limit else 0.0
    return row("dense", width, backend, rate, f"{rate * width / 1e9:.2f}", limit, share)


def block_row(key: HashKey, width: int, backend: str, size: int, runs: int) -> str:
    """Returns the row of the table for the block matrix."""
    blocks = BlockSigns(key, width, NUM_BLOCKS)
    keys, weights, sums = inputs(size, width)
    rate, limit = best_rates(lambda: blocks.add(sums, keys, weights), size, backend, runs)
    num_polynomials = -(-NUM_BLOCKS // (64 // blocks.num_buckets.bit_length()))
    share = rate * block_products(num_polynomials) / limit if limit else 0.0
    plain = f"{rate * PLAIN_PRODUCTS / limit:.0%} of {PLAIN_PRODUCTS} products" if limit else "-"
    return row(f"{NUM_BLOCKS} blocks", width, backend, rate, plain, limit, share)


def inputs(size: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns keys all over the range, weights of 1, and sums to fill."""
    keys = np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return keys, np.ones(size, dtype=np.int64), np.zeros(width, dtype=np.int64)


def row(
    matrix: str, width: int, backend: str, rate: float, other: str, limit: float, share: float
) -> str:
    """Returns one row of the table."""
    against = f"{limit / 1e9:.2f} | {share:.0%}" if limit else "- | -"
    return f"| {matrix} | {width:,} | {backend} | {rate:,.0f} | {other} | {against} |"


def text_rate(key: HashKey, size: int, runs: int) -> float:
    """Returns fingerprints a second."""
    texts = [f"user{number}@example.org" for number in range(size)]
    return max(
        size / cpu_seconds(lambda: universe_elements(texts, key, "element")) for _ in range(runs)
    )


def report(quick: bool) -> None:
    """Prints every measurement."""
    runs = 5 if quick else 15
    scale = 1 if quick else 4
    key = HashKey.draw(INDEPENDENCE)
    print(
        f"r = {INDEPENDENCE}, one thread, CPU time, best of {runs} runs in turn with the limit; "
        f"Python {platform.python_version()}, numpy {np.__version__}.\n"
    )
    print(
        "| matrix | rows | backend | keys/s | G signs/s, or the plain count | limit, G products/s "
        "| useful products of the limit |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    slow = {"portable": 40, "numpy": 20}
    for width in WIDTHS:
        for backend in available_backends():
            os.environ[ENVIRONMENT_VARIABLE] = backend
            size = scale * 10_000 * 4096 // width // slow.get(backend, 1)
            # Numpy needs thousands of keys at a time; a part of a tile would be time lost.
            size = max(4096 * 4096 // width if backend == "numpy" else 128, size // 128 * 128)
            print(dense_row(key, width, backend, size, runs), flush=True)
    for width in WIDTHS:
        for backend in available_backends():
            os.environ[ENVIRONMENT_VARIABLE] = backend
            size = scale * 100_000 // slow.get(backend, 1)
            print(block_row(key, width, backend, size, runs), flush=True)
    os.environ.pop(ENVIRONMENT_VARIABLE)
    print(f"\nFingerprints of text: {text_rate(key, scale * 20_000, runs):,.0f} a second.")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--output", help="write the tables to this file instead")
    arguments = parser.parse_args()
    if not arguments.output:
        report(arguments.quick)
        return
    with open(arguments.output, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        report(arguments.quick)


if __name__ == "__main__":
    main()
