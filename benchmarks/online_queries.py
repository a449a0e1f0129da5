"""Measures how many linear queries a second online multiplicative weights answer.

    python benchmarks/online_queries.py --attributes 16 --queries 100000 --ways 5

asks distinct conjunctions of random literals over binary attributes, one at a time, and prints
queries a second beside the same queries answered by two sums over their dense vectors, as
a query without structure would be: once by the hypothesis, once by the exact counts.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import Counter

import numpy as np

from beam_dp.domain import BooleanAttribute, Domain
from beam_dp.mechanisms import PrivateMW, plan_private_mw
from beam_dp.noise import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear import Product
from beam_dp.summaries import Histogram

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


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attributes", type=int, default=16)
    parser.add_argument("--ways", type=int, default=5)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    flags = parser.parse_args()
    names = [f"x{axis}" for axis in range(flags.attributes)]
    domain = Domain(tuple(map(BooleanAttribute, names)))
    generator = np.random.default_rng(0)
    shares = generator.dirichlet(np.full(domain.num_cells, 0.01))
    counts = generator.multinomial(flags.records, shares).astype(np.int64)
    guarantee = Guarantee(flags.epsilon, flags.delta, "replace_one", "record", 1)
    queries = conjunctions(domain, flags.ways, flags.queries, seed=1)
    start = time.perf_counter()
    plan = plan_private_mw(domain, guarantee, flags.records, num_questions=len(queries))
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
        f"largest error {max(errors) / flags.records:.4f} of the records,"
        f" mean {np.mean(errors) / flags.records:.5f},"
        f" bound {run.settings.hypothesis_bound / flags.records:.4f}"
    )


if __name__ == "__main__":
    main()
