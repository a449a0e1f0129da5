"""Measures every statement of the literature that this package builds on, as docs/claims.md tells.

    python benchmarks/claims.py --quick

prints a line a statement: its key, whether it held, and what was measured. Noise is real, so that
counts of failures differ a little from run to run. ``--only small_db`` measures the statements
whose keys start so; ``--write`` puts what was measured into docs/claims.md. Without ``--quick``
there are ten times as many trials. The exit code is 1 if a statement does not hold.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor

from claim_rows import (
    composition,
    intervals,
    linear_answers,
    multiplicative_weights,
    offline_weights,
    projections,
    query_forms,
    selection,
    small_db,
    sparse_vector,
    sparse_weights,
    vc_dimension,
)
from claim_rows.claim import Claim, Measured

SECTIONS = {
    "Forms of queries": query_forms.CLAIMS,
    "Noisy answers": linear_answers.CLAIMS,
    "Histograms and intervals": intervals.CLAIMS,
    "Selection": selection.CLAIMS,
    "Small databases": small_db.CLAIMS,
    "VC dimension": vc_dimension.CLAIMS,
    "The sparse vector": sparse_vector.CLAIMS,
    "Multiplicative weights": multiplicative_weights.CLAIMS,
    "Multiplicative weights, offline": offline_weights.CLAIMS,
    "Multiplicative weights for sparse queries": sparse_weights.CLAIMS,
    "Sparse queries: projections": projections.CLAIMS,
    "Composition": composition.CLAIMS,
}
PAGE = pathlib.Path(__file__).parents[1] / "docs" / "claims.md"
_HEAD = """# What the literature claims, measured

Made by `python benchmarks/claims.py --quick --write`. Each row has a statement from the literature
([references.md](references.md)), what is wrong with it in print, the form that holds here, and a
measurement of that form: how often a bound failed, or how close anything came to it. The noise is
real, so counts of failures differ a little between runs. To measure one row again:

```sh
python benchmarks/claims.py --quick --only KEY
```

n and N are numbers of records, U = |X| cells of the universe, k = |Q| queries, alpha an error as a
share of the records, beta the probability of failure; ln is the natural logarithm, and lg the
logarithm to base 2.
"""
_CELL = re.compile(r"(?<!\\)\|")
_COLUMNS = ("key and source", "statement", "wrong in print", "here", "measured")


def all_claims() -> list[Claim]:
    """Returns the claims of all sections."""
    return [claim for claims in SECTIONS.values() for claim in claims]


def measured(key: str, factor: float) -> tuple[list[Measured], float]:
    """Measures one claim; returns that and the seconds of processor time that it took."""
    (claim,) = (each for each in all_claims() if each.key == key)
    start = time.process_time()
    found = claim.results(max(1, round(claim.trials * factor)))
    return found, time.process_time() - start


def written() -> dict[str, str]:
    """Returns what docs/claims.md says was measured, by key."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    rows = [_CELL.split(line) for line in lines if line.startswith("| `")]
    return {cells[1].split("`")[1]: cells[-2].strip() for cells in rows}


def page(results: Mapping[str, str]) -> str:
    """Returns docs/claims.md, from what was measured of each key."""
    lines = [_HEAD]
    for title, claims in SECTIONS.items():
        lines += [f"## {title}", "", "| " + " | ".join(_COLUMNS) + " |", "| --- " * 5 + "|"]
        for claim in claims:
            told = results.get(claim.key, "not yet")
            first = f"`{claim.key}` {claim.source}"
            texts = (first, claim.statement, claim.printed or "-", claim.here)
            cells = [each.replace("|", "\\|") for each in texts]
            lines.append("| " + " | ".join([*cells, told]) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Measures, prints, and writes the page if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials")
    parser.add_argument("--only", default="", metavar="KEY", help="the first letters of keys")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--write", action="store_true", help="docs/claims.md")
    flags = parser.parse_args()
    keys = [claim.key for claim in all_claims() if claim.key.startswith(flags.only)]
    if not keys:
        parser.error(f"--only {flags.only}: must be how one of the keys in docs/claims.md starts")
    factor = 1.0 if flags.quick else 10.0
    results, broken = written(), 0
    with ProcessPoolExecutor(flags.processes) as pool:
        waiting = [(key, pool.submit(measured, key, factor)) for key in keys]
        for key, future in waiting:
            found, seconds = future.result()
            results[key] = "; ".join(map(str, found))
            held = all(each.holds for each in found)
            broken += not held
            told = f"{'holds' if held else 'BROKEN'}: {results[key]}"
            print(f"{key}: {told} ({seconds:.1f} s)", flush=True)
    if flags.write:
        PAGE.write_text(page(results))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
