"""Measures how often `beam-dp attack` passes a release of all pairs, and catches a copy.

    BEAM_DP_DATA=DIR python -m benchmarks.gate --draws 20 [--tables adult --rows 8000]

draws members and others from a table anew for every draw, and releases the members. ``passed``,
``caught`` and ``too few records`` count the verdicts on the releases, and ``copies caught`` those
on the members themselves.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import marginals
from beam_dp.views import attacks
from beam_dp.views.cells import Truth
from benchmarks import accuracy_tables
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.small_tables import released
from benchmarks.tables import table

_DELTA, _SEED, _LIMIT = 1e-9, 20_261_130, 5.0
_OTHERS = 8_000  # as many others at most
_VERDICTS = {"passed": "passes", "caught": "does not pass", "too few records": "too few records"}


def main() -> None:
    """Prints a row for each table, and keeps it where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--tables", nargs="+", default=("nltcs", "nist", "adult"), choices=accuracy_tables.NAMES
    )
    parser.add_argument("--rows", type=int, default=_OTHERS)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--draws", type=int, default=20)
    add_flag(parser)
    options = parser.parse_args()
    guarantee = Guarantee(options.epsilon, _DELTA, "add_or_remove_one", "record", 1)
    rows = []
    for name in options.tables:
        domain, codes = accuracy_tables.load(name)
        found, start = [], time.process_time()
        for draw in range(options.draws):
            order = np.random.default_rng((_SEED, draw)).permutation(len(codes[0]))
            members, others = order[: options.rows], order[options.rows :][:_OTHERS]
            kept = [column[members] for column in codes]
            truth = Truth(domain, kept, 0), Truth(domain, [column[others] for column in codes], 0)
            release = released(domain, kept, marginals(domain, ways=2), guarantee, is_noisy=True)
            found.append(attacks.attack(release, *truth, _LIMIT))
        seconds = (time.process_time() - start) / options.draws
        verdicts = [each.verdict for each in found]
        copies = [each._replace(of_release=each.of_copy).verdict for each in found]
        figures = {
            word: Figure(verdicts.count(verdict), "number") for word, verdict in _VERDICTS.items()
        }
        figures["largest number of points"] = Figure(max(each.number for each in found), "points")
        figures["copies caught"] = Figure(copies.count("does not pass"), "number")
        figures["CPU time"] = Figure(seconds, "seconds")
        rows.append(
            Row(f"{name}, {options.rows:,} rows, {options.epsilon:g}", figures, options.draws)
        )
        print(table(rows[-1:], "table, rows, epsilon").splitlines()[-1], flush=True)
    print(table(rows, "table, rows, epsilon"))
    keep(options.record, rows)


if __name__ == "__main__":
    main()
