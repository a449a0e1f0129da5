"""Measures how many linear queries a second online multiplicative weights answer.

    python benchmarks/online_queries.py --attributes 16 --queries 100000 --ways 5
    python benchmarks/online_queries.py --attributes 24 --passes

asks distinct conjunctions of random literals over binary attributes, one at a time, and prints
queries a second beside the same queries answered by two sums over their dense vectors, as
a query without structure would be: once by the hypothesis, once by the exact counts.
``--passes`` asks queries that concern many cells, and prints the time of each as a multiple of one
plain sum over a table; an answer reads two, the hypothesis and the exact counts.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import BooleanAttribute
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.online.private_mw import PrivateAnswer, PrivateMW, plan_private_mw
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear import LinearQuery, Parity, Product
from beam_dp.secret.summaries.histogram import Histogram

_DENSE = 500  # queries of the slow way


def conjunctions(domain: Domain, ways: int, number: int, seed: int) -> list[Product]:
    """Returns distinct conjunctions, in random order."""
    generator = np.random.default_rng(seed)
    sets = list(itertools.combinations(range(domain.num_attributes), ways))
    available = len(sets) << ways
    chosen = generator.permutation(available)[: min(number, available)]
    return [
        Product(
            domain.shape,
            sets[index >> ways],
            tuple((((index >> bit) & 1, ((index >> bit) & 1) + 1),) for bit in range(ways)),
        )
        for index in chosen.tolist()
    ]


def print_passes(domain: Domain, counts: NDArray[np.int64], guarantee: Guarantee) -> None:
    """Prints what a query answered by the hypothesis costs, in passes over one table."""
    num_records = int(counts.sum())
    plan = plan_private_mw(domain, guarantee, num_records, num_questions=100)
    run = PrivateMW(plan, Histogram(domain, counts), NoiseSource())
    weights, last = run.weights, domain.num_attributes - 1
    everywhere = Product(domain.shape, (), ())
    plain = min(_seconds(lambda: weights.sum()) for _ in range(5))
    print(f"cells 2^{math.log2(domain.num_cells):g}; one plain pass {plain * 1e3:.1f} ms")
    queries: dict[str, list[LinearQuery]] = {
        "half of the cells, first attribute": [Product(domain.shape, (0,), (((0, 1),),))],
        "half of the cells, last attribute": [Product(domain.shape, (last,), (((0, 1),),))],
        "all cells": [everywhere],
        "parity of two attributes": [Parity(domain.shape, (0, 1), (((1, 2),), ((1, 2),)))],
    }
    for name, asked in queries.items():
        answers: list[PrivateAnswer] = []
        seconds = _seconds(lambda asked=asked, answers=answers: answers.append(run.answer(*asked)))
        print(f"{name}: {seconds / plain:.2f} passes, route {answers[0].route}")


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attributes", type=int, default=16)
    parser.add_argument("--ways", type=int, default=5)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--passes", action="store_true")
    flags = parser.parse_args()
    names = [f"x{axis}" for axis in range(flags.attributes)]
    domain = Domain(tuple(map(BooleanAttribute, names)))
    generator = np.random.default_rng(0)
    shares = generator.dirichlet(np.full(min(domain.num_cells, 2**20), 0.01))
    held = generator.multinomial(flags.records, shares).astype(np.int64)
    # Larger domains are tiled, so that data are made in no time.
    counts = np.resize(held, domain.num_cells)
    records = int(counts.sum())
    guarantee = Guarantee(flags.epsilon, flags.delta, "replace_one", "record", 1)
    if flags.passes:
        print_passes(domain, counts, guarantee)
        return
    queries = conjunctions(domain, flags.ways, flags.queries, seed=1)
    start = time.perf_counter()
    plan = plan_private_mw(domain, guarantee, records, num_questions=len(queries))
    run = PrivateMW(plan, Histogram(domain, counts), NoiseSource())
    planned = time.perf_counter() - start
    start = time.perf_counter()
    answers = [run.answer(query) for query in queries]
    rate = len(queries) / (time.perf_counter() - start)
    weights, exact = run.weights, counts.astype(np.float64)
    dense = [query.values() for query in queries[:_DENSE]]
    start = time.perf_counter()
    for values in dense:
        float((values * weights).sum()), float((values * exact).sum())
    dense_rate = len(dense) / (time.perf_counter() - start)
    errors = [
        abs(answer.value - query.count(counts) / 2**16)
        for query, answer in zip(queries, answers, strict=True)
    ]
    routes = Counter(answer.route for answer in answers)
    print(
        f"cells 2^{math.log2(domain.num_cells):g}, {len(queries):,} {flags.ways}-way conjunctions"
    )
    print(
        f"plan {planned:.2f} s; {run.settings.noise.method}, {run.settings.noise.max_above} updates"
    )
    print(f"answered {rate:,.0f} a second; {dict(routes)}")
    print(f"dense vectors, made before {dense_rate:,.0f} a second; ratio {rate / dense_rate:.1f}")
    print(
        f"largest error {max(errors) / records:.4f} of the records,"
        f" mean {np.mean(errors) / records:.5f},"
        f" bound {run.settings.hypothesis_bound / records:.4f}"
    )


if __name__ == "__main__":
    main()
