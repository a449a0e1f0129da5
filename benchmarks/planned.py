"""What `beam-dp plan` predicts of jobs that select pairs, beside one release of each.

    BEAM_DP_DATA=DIR python benchmarks/planned.py adult --records 3000 --dependence 0.5

draws that many records of a table; by default, all. With ``--dependence``, the frequencies of codes
stay, and a hidden number of the record decides each of its values with this chance: 0 makes columns
independent, and with 1 each follows from the others. Errors are those of ``accuracy.py``.
"""

import argparse

import accuracy
import accuracy_tables
import numpy as np

import beam_dp as dp
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table


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
    generator, available = np.random.default_rng(20_261_130), len(codes[0])
    number = options.records or available
    name = f"{options.data}, {options.ways}-way, {number:,} records"
    drawn = generator.choice(available, number, number > available)
    codes = [column[drawn] for column in codes]
    if options.dependence is not None:
        name += f", dependence {options.dependence:g}"
        hidden = generator.random(number)
        for place, column in enumerate(codes):
            order = np.argsort(generator.permutation(int(column.max()) + 1)[column])
            follows, own = generator.random((2, number))
            ranks = np.where(follows < options.dependence, hidden, own)
            codes[place] = column[order][(ranks * number).astype(int)]
    workload, rows = dp.marginals(domain, ways=options.ways), []
    exact = accuracy_tables.count(domain, codes, workload)
    for epsilon in options.epsilon:
        guarantee = dp.Guarantee(epsilon, 1e-9, "add_or_remove_one", "record", 1)
        option = dp.rank_mechanisms(dp.PlanningJob(workload, guarantee, number, True)).options[0]
        running = accuracy.Synthesis(dp.MWEM())
        estimates, seconds = running.run(domain, codes, workload, guarantee, noisy=False)
        assert option.total_variation_range and option.resources, "the job selects no pairs"
        figures = {
            "predicted, from": Figure(option.total_variation_range[0], "share"),
            "to": Figure(option.total_variation_range[1], "share"),
            "measured": Figure(accuracy.errors(estimates, workload, exact)[2], "share"),
            "predicted CPU time": Figure(option.resources.seconds, "seconds"),
            "CPU time": Figure(seconds, "seconds"),
        }
        rows.append(Row(f"{name}, epsilon {epsilon:g}", figures))
        print(table(rows[-1:]), flush=True)
    keep(options.record, rows)


if __name__ == "__main__":
    main()
