"""What `beam-dp plan` predicts of jobs that select pairs, beside one release of each.

    BEAM_DP_DATA=DIR python benchmarks/planned.py adult --records 3000 --dependence 0.5

draws that many records of a table; by default, all of them. ``--dependence`` gives each value, by
such a chance, the rank of a hidden number of the record among the shuffled codes of its column, and
otherwise a value that is independent. So the frequencies of codes stay, and pairs depend on each
other from not at all (0) to totally (1). Errors are total variations, as in ``accuracy.py``.
"""

from __future__ import annotations

import argparse

import accuracy
import accuracy_tables
import numpy as np
from accuracy_tables import Codes

from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.planning.job import PlanningJob
from beam_dp.planning.ranking import rank_mechanisms
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import marginals
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table

SEED = 20_261_130


def dependent(codes: Codes, chance: float, generator: np.random.Generator) -> Codes:
    """Returns columns with the same frequencies, which depend on each other by a hidden number."""
    number = len(codes[0])
    hidden, made = generator.random(number), []
    for column in codes:
        places = generator.permutation(int(column.max()) + 1)
        ordered = column[np.argsort(places[column], kind="stable")]
        ranks = np.where(generator.random(number) < chance, hidden, generator.random(number))
        made.append(ordered[(ranks * number).astype(np.int64)])
    return made


def main() -> None:
    """Prints the predicted and measured errors and times of a table, by epsilon."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", choices=accuracy_tables.NAMES)
    parser.add_argument("--ways", type=int, default=2)
    parser.add_argument("--records", type=int)
    parser.add_argument("--dependence", type=float)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    add_flag(parser)
    options = parser.parse_args()
    domain, codes = accuracy_tables.load(options.data)
    generator = np.random.default_rng(SEED)
    if options.records:
        drawn = generator.choice(len(codes[0]), options.records, options.records > len(codes[0]))
        codes = [column[drawn] for column in codes]
    name = f"{options.data}, {options.ways}-way, {len(codes[0]):,} records"
    if options.dependence is not None:
        codes = dependent(codes, options.dependence, generator)
        name += f", dependence {options.dependence:g}"
    workload, rows = marginals(domain, ways=options.ways), []
    exact = accuracy_tables.count(domain, codes, workload)
    for epsilon in options.epsilon:
        guarantee = Guarantee(epsilon, 1e-9, "add_or_remove_one", "record", 1)
        option = rank_mechanisms(PlanningJob(workload, guarantee, len(codes[0]), True)).options[0]
        assert option.total_variation_range is not None, "the job measures all"
        assert option.resources is not None
        low, high = option.total_variation_range
        running = accuracy.Synthesis(MWEM())
        estimates, seconds = running.run(domain, codes, workload, guarantee, noisy=False)
        error = accuracy.errors(estimates, workload, exact)[2]
        is_inside = "inside" if low <= error <= high else "outside"
        figures = {
            "predicted, from": Figure(low, "share"),
            "to": Figure(high, "share"),
            "measured": Figure(error, "share"),
            "predicted CPU time": Figure(option.resources.seconds, "seconds"),
            "CPU time": Figure(seconds, "seconds"),
        }
        rows.append(Row(f"{name}, epsilon {epsilon:g}: {is_inside}", figures))
        print(table(rows[-1:]), flush=True)
    keep(options.record, rows)


if __name__ == "__main__":
    main()
