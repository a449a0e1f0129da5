"""Measures how many sparse queries a second online multiplicative weights answer.

    python benchmarks/sparse_queries.py --queries 100000 --sparsity 100

asks distinct queries over an unbounded universe of text, such as e-mail addresses, one at a time.
Most keys of the queries have no record and most records are of keys that are never asked about.
Making a query, which checks it, is timed by itself. On a busy machine read the processor time.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np

from beam_dp.mechanisms.online.sparse_mw import SparseMW, plan_sparse_mw
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.sparse import SparseQuery
from beam_dp.secret.summaries.sparse_counts import KeyCounts

_SKEW = 1.1  # of the law of the keys of records
_AT_ONCE = 10_000  # queries held as tables


def key(number: int) -> str:
    """Returns one element of the universe."""
    return f"user{number:x}@example.org"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--sparsity", type=int, default=100)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000, help="that queries choose from")
    parser.add_argument("--weighted", action="store_true", help="values other than 1")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--neighboring", default="replace_one")
    parser.add_argument("--quick", action="store_true", help="a hundredth of queries and records")
    flags = parser.parse_args()
    if flags.quick:
        for name in ("queries", "records", "keys"):
            setattr(flags, name, getattr(flags, name) // 100)
    generator = np.random.default_rng(0)
    records = KeyCounts.of(map(key, generator.zipf(_SKEW, flags.records).tolist()))
    names = [key(number) for number in range(1, flags.keys + 1)]
    guarantee = Guarantee(flags.epsilon, flags.delta, flags.neighboring, "record", 1)
    num_records = "noisy" if flags.neighboring == "add_or_remove_one" else flags.records
    start = time.process_time()
    plan = plan_sparse_mw(
        guarantee, num_records, max_sparsity=flags.sparsity, num_questions=flags.queries
    )
    planned = time.process_time() - start
    run = SparseMW(plan, records, NoiseSource())
    wall, making, answering = 0.0, 0.0, 0.0
    errors, routes = [], Counter[str]()
    for first in range(0, flags.queries, _AT_ONCE):
        size = min(_AT_ONCE, flags.queries - first), flags.sparsity
        values = np.round(generator.uniform(0.01, 1, size), 2) if flags.weighted else np.ones(size)
        tables = [
            dict(zip([names[each] for each in chosen], weights, strict=True))
            for chosen, weights in zip(
                generator.integers(0, flags.keys, size).tolist(), values.tolist(), strict=True
            )
        ]
        start = time.process_time()
        queries = [SparseQuery(table) for table in tables]
        making += time.process_time() - start
        start, wall_start = time.process_time(), time.perf_counter()
        answers = [run.answer(query) for query in queries]
        answering += time.process_time() - start
        wall += time.perf_counter() - wall_start
        routes.update(answer.route for answer in answers)
        errors += [
            abs(answer.value - query.count(records.counts) / 2**16)
            for query, answer in zip(queries, answers, strict=True)
        ]
    settings = run.settings
    kind = "weighted" if flags.weighted else "membership"
    print(f"{flags.queries:,} {kind} queries of {flags.sparsity} elements, universe without end")
    print(f"{flags.records:,} records of {len(records.counts):,} keys")
    print(
        f"plan {planned:.2f} s; {settings.noise.method}, {settings.noise.max_above} updates,"
        f" {run.num_slots:,} slots"
    )
    print(
        f"answered {flags.queries / wall:,.0f} a second, {flags.queries / answering:,.0f} a second"
        f" of processor time, {flags.queries / (answering + making):,.0f} with making and checking"
        f" the queries; {dict(routes)}"
    )
    print(
        f"largest error {max(errors) / flags.records:.4f} of the records,"
        f" mean {np.mean(errors) / flags.records:.5f},"
        f" bound {settings.hypothesis_bound / flags.records:.4f}"
    )


if __name__ == "__main__":
    main()
