"""Measures how many online queries PrivateMW answers, beside fresh noise for every query.

    BEAM_DP_DATA=DIR python benchmarks/online_comparison.py --runs 3

Epsilon 1, delta 1e-9, a record is added or removed, the number of records is public. Every
contender must answer so that, with probability 95 %, no answer is wrong by more than the target:

* ``fresh``: Gaussian noise for each query, for as many as the target allows, decided before;
* ``cache``: the same, but a query that was asked before gets the answer that it got;
* ``private_mw``: with as many updates as its bound on all answers allows at the target;
* ``warm``: the same with half the budget, started from an MWEM release of all 3-way marginals that
  the other half pays for.

NLTCS, its 16 columns in pairs (see ``error_by_queries.py``), as it is, and drawn again with more
records. Queries are conjunctions of 4 of the 8 attributes, 2,689,120 of them; streams: ``random``
with repetition, ``distinct``, ``zipf`` (the query of rank r with probability as 1 / r), and
``adversarial``: those of 20,000 which the hypothesis answers worst, by somebody who knows the
records and looks at the hypothesis after every 20 queries. Counted are the queries answered until
the updates are used up, and what is within the target of all 2,689,120 if the last hypothesis
answers them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import accuracy_tables
import numpy as np
from conjunction_sets import ConjunctionSet
from error_by_queries import PAIRS, WAYS, four_valued, histogram
from numpy.typing import NDArray
from scipy.stats import norm

from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.online.private_mw import PrivateMW, PrivateMWPlan, plan_private_mw
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.workload import marginals
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.summaries.histogram import Histogram

EPSILON, DELTA, FAILURE = 1.0, 1e-9, 0.05
NUM_QUESTIONS = 10**6  # that bounds of PrivateMW are stated for
MAX_UPDATES = 2**14
POOL = 20_000  # of the adversary, who looks at the hypothesis after so many queries:
_LOOKS_AFTER = 20
STREAMS = ("random", "distinct", "zipf", "adversarial")
SETTINGS = [
    (21_574, (0.1, 0.05, 0.02)),
    (10**6, (0.02,)),
]
_RESULTS = pathlib.Path(__file__).parent / "results" / "online_comparison"


def promise(share: float = 1.0) -> Guarantee:
    """Returns a share of the whole guarantee."""
    return Guarantee(EPSILON * share, DELTA * share, "add_or_remove_one", "record", 1)


def fresh_capacity(target: float) -> int:
    """Returns how many answers Gaussian noise can keep within a target, in records.

    The noise of k counts has the deviation sqrt(k) / mu; a union bound over k normal tails.
    """
    mu = discrete_gaussian_mu(EPSILON, DELTA)

    def fits(number: int) -> bool:
        return bool(2 * number * norm.sf(target * mu / math.sqrt(number)) <= FAILURE)

    return _largest(fits, 2**60)


def private_plan(domain: Any, total: int, target: float, share: float) -> PrivateMWPlan | None:
    """Returns the plan with the most updates whose bound is the target, or None."""

    def plan(updates: int) -> PrivateMWPlan:
        return plan_private_mw(
            domain,
            promise(share),
            total,
            num_questions=NUM_QUESTIONS,
            max_updates=updates,
            failure_probability=FAILURE,
            starts_from_release=share < 1,
        )

    updates = _largest(
        lambda each: plan(each).settle(total).hypothesis_bound <= target, MAX_UPDATES
    )
    return plan(updates) if updates else None


def _largest(fits: Any, most: int) -> int:
    """The largest number up to ``most``, a power of 2, that fits, if none above it does; or 0."""
    low, step = 0, most
    while step:
        if low + step <= most and fits(low + step):
            low += step
        step //= 2
    return low


@dataclasses.dataclass
class Measured:
    """What a run answered.

    Args:
        answered: queries, of the stream, before the first that found no updates left.
        updates: that were used.
        within: share of all 2,689,120 queries that the last hypothesis answers within the target.
        largest_error: of the answers that were counted, as a share of the records.
    """

    answered: int
    updates: int
    within: float
    largest_error: float


def every_query() -> ConjunctionSet:
    """Returns all queries that streams are made of."""
    return ConjunctionSet(PAIRS, 4, WAYS, np.arange(math.comb(PAIRS, WAYS) * 14**WAYS))


def stream(name: str, length: int) -> NDArray[np.int64]:
    """Returns the indices of the queries, in the order asked."""
    generator = np.random.default_rng()
    number = math.comb(PAIRS, WAYS) * 14**WAYS
    if name == "random":
        return generator.integers(number, size=length)
    if name == "distinct":
        return generator.choice(number, size=length, replace=False)
    weights = 1 / np.arange(1, number + 1)
    ranks = np.searchsorted(np.cumsum(weights / weights.sum()), generator.random(length))
    return generator.permutation(number)[np.minimum(ranks, number - 1)]


def asked_by_adversary(run: PrivateMW, counts: NDArray[np.int64], length: int) -> Iterator[int]:
    """Yields the worst query that was not asked yet, again and again."""
    pool = ConjunctionSet.draw(PAIRS, 4, WAYS, POOL, seed=int(counts.sum()))
    exact, is_left = pool.sums(counts / counts.sum()), np.ones(POOL, np.bool_)
    left = None
    for number in range(length):
        if number % _LOOKS_AFTER == 0 and run.updates_left != left:
            left, errors = run.updates_left, np.abs(pool.sums(run.weights) - exact)
        worst = int(np.argmax(np.where(is_left, errors, -1.0)))
        is_left[worst] = False
        yield int(pool.indices[worst])


def first_hypothesis(data: Histogram) -> SyntheticDatabase:
    """Returns a release for half the budget, to start from."""
    mwem, workload = MWEM(), marginals(data.domain, ways=3)
    plan = mwem.plan(data.domain, workload, promise(0.5), int(data.counts.sum()))
    return mwem.release(plan, data.marginals(plan.summary_tables), NoiseSource())


def measure(
    data: Histogram,
    exact: NDArray[np.float64],
    plan: PrivateMWPlan,
    start: SyntheticDatabase | None,
    target: float,
    name: str,
    length: int,
) -> Measured:
    """Returns what one run of PrivateMW answers of one stream.

    Args:
        data: the records.
        exact: the true answer to every query there is, as a share of the records.
        plan: of the run.
        start: the release that it starts from.
        target: in records.
        name: of the stream.
        length: of the stream.
    """
    total = int(data.counts.sum())
    run = PrivateMW(plan, data, NoiseSource(), start)
    family = every_query()
    if name == "adversarial":
        indices = asked_by_adversary(run, data.counts, length)
    else:
        indices = iter(stream(name, length).tolist())
    answered, largest = 0, 0.0
    for index in indices:
        answer = run.answer(family.query(index))
        if answer.route == "exhausted":
            break
        answered += 1
        largest = max(largest, abs(answer.value / total - exact[index]))
    within = np.abs(family.sums(run.weights) - exact) * total <= target
    used = run.settings.noise.max_above - run.updates_left
    return Measured(answered, used, float(within.mean()), largest)


def answered_with_noise(name: str, target: float, length: int, cached: bool) -> int:
    """Returns how many queries of a stream get noise of their own, or the answer they got."""
    capacity = fresh_capacity(target)
    if not cached or name in ("distinct", "adversarial"):
        return min(capacity, length)
    asked = stream(name, length)
    new = np.zeros(length, np.bool_)
    new[np.unique(asked, return_index=True)[1]] = True
    return int((np.cumsum(new) <= capacity).sum())


def rows(
    codes: accuracy_tables.Codes, settings: Any, runs: int, length: int
) -> Iterator[dict[str, Any]]:
    """Yields a row for each number of records, target and stream."""
    domain = four_valued(PAIRS)
    given = histogram(domain, codes)
    shares = given.counts / given.counts.sum()
    for total, targets in settings:
        data = given
        if total != given.counts.sum():
            drawn = np.random.default_rng(total).multinomial(total, shares)
            data = Histogram(domain, drawn.astype(np.int64))
        exact = every_query().sums(data.counts / total)
        # One for each run; rows of the same number of records share them.
        releases = [first_hypothesis(data) for _ in range(runs)]
        for share_of_records in targets:
            target = share_of_records * total
            plans = {
                name: private_plan(domain, total, target, share)
                for name, share in (("private_mw", 1.0), ("warm", 0.5))
            }
            for name in STREAMS:
                row: dict[str, Any] = {
                    "records": total, "target": share_of_records, "stream": name, "asked": length,
                    "fresh_capacity": fresh_capacity(target), "runs": runs,
                }  # fmt: skip
                for contender, cached in (("fresh", False), ("cache", True)):
                    row[contender] = _with_error(
                        [answered_with_noise(name, target, length, cached) for _ in range(runs)]
                    )
                for contender, plan in plans.items():
                    if plan is None:
                        row[contender] = None
                        continue
                    starts = releases if plan.starts_from_release else [None] * runs
                    found = [
                        measure(data, exact, plan, start, target, name, length) for start in starts
                    ]
                    row[contender] = {
                        "max_updates": plan.max_updates,
                        **{
                            field.name: _with_error([getattr(each, field.name) for each in found])
                            for field in dataclasses.fields(Measured)
                        },
                    }
                print(json.dumps(row), flush=True)
                yield row


def _with_error(values: list[float]) -> list[float]:
    """The mean and its standard error, 0 for a single run."""
    spread = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return [float(f"{each:.4g}") for each in (np.mean(values), spread)]


def markdown(found: list[dict[str, Any]]) -> str:
    """Returns the page of the results."""
    lines = [
        "# Online queries: PrivateMW beside fresh noise\n",
        "`BEAM_DP_DATA=DIR python benchmarks/online_comparison.py`, which says what was measured;",
        "docs/mechanisms.md says what follows. Epsilon 1, delta 1e-9. Targets are shares of the",
        "records. Queries answered of those asked (means over 2 or 3 runs, with standard errors),",
        "in brackets for PrivateMW: updates used of those there are, and the share of all",
        "2,689,120 queries that the last hypothesis answers within the target. `-`: not even one",
        "update fits the target.\n",
        "| records | target | stream | asked | fresh noise | with a cache | PrivateMW | started"
        " from a release |",
        "| --- " * 8 + "|",
    ]
    for row in found:
        cells = [f"{row['records']:,}", f"{row['target']:g}", row["stream"], f"{row['asked']:,}"]
        cells += [_plus_minus(row[name]) for name in ("fresh", "cache")]
        for name in ("private_mw", "warm"):
            each = row[name]
            cells.append(
                "-"
                if each is None
                else f"{_plus_minus(each['answered'])} ({each['updates'][0]:.3g} of"
                f" {each['max_updates']:,}; {each['within'][0]:.1%})"
            )
        lines.append("| " + " | ".join(cells) + " |")
    capacities = {(row["records"], row["target"]): row["fresh_capacity"] for row in found}
    lines.append("\nWhat fresh noise could answer, had more been asked:\n")
    lines += ["| records | target | queries |", "| --- | --- | --- |"]
    lines += [
        f"| {records:,} | {target:g} | {number:,} |"
        for (records, target), number in capacities.items()
    ]
    return "\n".join(lines) + "\n"


def _plus_minus(pair: list[float]) -> str:
    mean, spread = pair
    return f"{mean:,.0f} ± {spread:,.0f}" if spread else f"{mean:,.0f}"


def main() -> None:
    """Measures and writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--length", type=int, default=10_000)
    flags = parser.parse_args()
    codes = accuracy_tables.load("nltcs")[1]
    found = list(rows(codes, SETTINGS, flags.runs, flags.length))
    text = "[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n"
    _RESULTS.with_suffix(".json").write_text(text, encoding="utf-8")
    _RESULTS.with_suffix(".md").write_text(markdown(found), encoding="utf-8")


if __name__ == "__main__":
    main()
