"""What public records are worth where a fit starts from them.

    BEAM_DP_DATA=DIR python benchmarks/public_start.py adult7 --split half --epsilon 0.1 --runs 20

splits a table in two from a public seed: some records are public, the others are released, without
and with the public ones as a start. ``half`` and ``tenth`` draw the public ones at random, so that
they are of the same kind; with ``other`` they are those whose last column has its first code, of
another kind. Errors are those of ``accuracy.py``, against the records that are released; the
public records alone are a line of their own.
"""

from __future__ import annotations

import argparse

import accuracy
import accuracy_tables
import numpy as np
from accuracy_tables import Codes
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.checks import NumRecords
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, StartingRecords
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.synthetic_database.records import distinct_records

SEED = 20_261_123
SHARES = {"half": 0.5, "tenth": 0.1}


class FromPublicRecords(MWEM):
    """MWEM whose fits start from some records, where that seems to lower their error."""

    def __init__(self, start: StartingRecords) -> None:
        super().__init__()
        object.__setattr__(self, "start", start)

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
    ) -> MarginalsPlan:
        """Returns the usual plan, with the start."""
        plan = super().plan(domain, workload, guarantee, num_records)
        return plan.starting_from(self.start)  # type: ignore[attr-defined]


def public_ones(codes: Codes, split: str) -> NDArray[np.bool_]:
    """Returns which records are public."""
    if split == "other":
        return codes[-1] == 0
    return np.random.default_rng(SEED).random(len(codes[0])) < SHARES[split]


def main() -> None:
    """Prints the errors of a split table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("table")
    parser.add_argument("--split", choices=(*SHARES, "other"), default="half")
    parser.add_argument("--ways", type=int, default=2)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    domain, codes = accuracy_tables.load(given.table)
    is_public = public_ones(codes, given.split)
    public, secret = ([each[kept] for each in codes] for kept in (is_public, ~is_public))
    workload = marginals(domain, ways=given.ways)
    exact = accuracy_tables.count(domain, secret, workload)
    distinct, counts = distinct_records(domain, public)
    start = StartingRecords(domain, f"{len(public[0])} public records", distinct, counts)
    guarantee = Guarantee(given.epsilon, given.delta, "add_or_remove_one", "record", 1)
    print(f"{given.table}, {given.split}: {len(public[0])} public, {len(secret[0])} released")
    shares = accuracy_tables.count(domain, public, workload)
    alone = ((shares.marginal(names) / len(public[0]),) for names in workload)
    errors = accuracy.errors(alone, workload, exact)
    print(f"public records alone: {errors[0]:.4f} / {errors[1]:.4f}")
    for label, mechanism in (("without", MWEM()), ("with", FromPublicRecords(start))):
        contender, rows, uses = accuracy.Synthesis(mechanism), [], []
        for _ in range(given.runs):
            estimates, seconds = contender.run(domain, secret, workload, guarantee, True)
            uses.append(bool(contender.public.get("start_was_used")))
            rows.append([*accuracy.errors(estimates, workload, exact), seconds])
        table = np.array(rows)
        deviations = table.std(axis=0, ddof=1) / np.sqrt(given.runs)
        cells = [f"{m:.4f} ± {d:.4f}" for m, d in zip(table.mean(axis=0), deviations, strict=True)]
        print(f"{label}: distribution {' / '.join(cells[:2])}, records {' / '.join(cells[2:4])}")
        print(f"    {table[:, 4].mean():.1f} CPU s; started from them in {sum(uses)} runs")


if __name__ == "__main__":
    main()
