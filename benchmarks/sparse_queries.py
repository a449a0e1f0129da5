"""Measures how many sparse queries a second online multiplicative weights answer.

    python benchmarks/sparse_queries.py --queries 100000 --sparsity 100

asks distinct queries over an unbounded universe of text, such as e-mail addresses, one at a time.
Most keys of the queries have no record and most records are of keys that are never asked about.
Checking a query, which happens once when it is made, is timed by itself.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np

from beam_dp.mechanisms import SparseMW, plan_sparse_mw
from beam_dp.noise import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.sparse import SparseQuery
from beam_dp.summaries import KeyCounts

_SKEW = 1.1  # of the law of the keys of records


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
    flags = parser.parse_args()
    generator = np.random.default_rng(0)
    records = KeyCounts.of(map(key, generator.zipf(_SKEW, flags.records).tolist()))
    guarantee = Guarantee(flags.epsilon, flags.delta, flags.neighboring, "record", 1)
    chosen = generator.integers(1, flags.keys, (flags.queries, flags.sparsity)).tolist()
    values = np.round(generator.random(flags.sparsity), 2) if flags.weighted else None
    value = [1.0] * flags.sparsity if values is None else values.tolist()
    tables = [dict(zip(map(key, row), value, strict=True)) for row in chosen]
    start = time.perf_counter()
    queries = [SparseQuery(table) for table in tables]
    made = len(queries) / (time.perf_counter() - start)
    del tables, chosen
    start = time.perf_counter()
    num_records = "noisy" if flags.neighboring == "add_or_remove_one" else flags.records
    plan = plan_sparse_mw(
        guarantee, num_records, max_sparsity=flags.sparsity, num_questions=len(queries)
    )
    planned = time.perf_counter() - start
    run = SparseMW(plan, records, NoiseSource())
    start = time.perf_counter()
    answers = [run.answer(query) for query in queries]
    rate = len(queries) / (time.perf_counter() - start)
    errors = [
        abs(answer.value - query.count(records.counts) / 2**16)
        for query, answer in zip(queries, answers, strict=True)
    ]
    settings = run.settings
    kind = "weighted" if flags.weighted else "membership"
    print(f"{len(queries):,} {kind} queries of {flags.sparsity} elements, universe without end")
    print(f"{flags.records:,} records of {len(records.counts):,} keys")
    print(
        f"plan {planned:.2f} s; {settings.noise.method}, {settings.noise.max_above} updates,"
        f" {run.num_slots:,} slots"
    )
    print(f"made and checked {made:,.0f} a second")
    print(
        f"answered {rate:,.0f} a second; {dict(Counter(answer.route for answer in answers))};"
        f" both {1 / (1 / rate + 1 / made):,.0f} a second"
    )
    print(
        f"largest error {max(errors) / flags.records:.4f} of the records,"
        f" mean {np.mean(errors) / flags.records:.5f},"
        f" bound {settings.hypothesis_bound / flags.records:.4f}"
    )


if __name__ == "__main__":
    main()
