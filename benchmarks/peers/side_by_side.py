"""Runs this project and its peers on the same records, and writes one page of tables.

    BEAM_DP_DATA=DIR MBI_MECHANISMS=DIR python benchmarks/peers/side_by_side.py
    BEAM_DP_DATA=DIR python benchmarks/peers/side_by_side.py --only "beam_dp"

Each peer gets an environment of its own, made when it is first needed from a file of
``requirements``. ``MBI_MECHANISMS`` names the folder ``mechanisms`` of a copy of mbi's repository.
What is run replaces what ``peers.json`` keeps of it, and the page is written from all that is kept;
so ``--only`` measures one system again, as after a change of this one.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent
PROJECT = FOLDER.parents[1]
sys.path[:0] = [str(folder) for folder in (FOLDER, FOLDER.parent, PROJECT)]

import accuracy  # noqa: E402
import accuracy_tables  # noqa: E402
import page  # noqa: E402
import pass_inputs  # noqa: E402
import pyarrow.parquet  # noqa: E402
from contenders import OWN, PASS, RECORDS, Contender  # noqa: E402
from task import Task, released  # noqa: E402

from beam_dp.queries.workload import marginals  # noqa: E402
from benchmarks import recorded  # noqa: E402

EPSILON, DELTA = 1.0, 1e-9
# Tables, and the ways of the marginals that each system is asked for; errors are of both ways.
TABLES = {"adult": 2, "nltcs": 3, "people1": 2}
MEASURED_WAYS = (2, 3)
# Of the pass: its rows, the codes of the column that is counted, and a unit's rows on average and
# at most.
PASS_ROWS = 2_000_000
NUM_CODES = pass_inputs.SIZES[0]
MEAN_ROWS, MAX_ROWS = 5, pass_inputs.MAX_RECORDS_PER_UNIT
RESULTS = FOLDER.parent / "results"


class Table:
    """A table of records, the true answers about it, and how wrong released records are.

    Args:
        name: of those of ``accuracy_tables.py``.
        ways: of the marginals that systems are asked for.
    """

    def __init__(self, name: str, ways: int) -> None:
        self.name, self.ways = name, ways
        self.domain, codes = accuracy_tables.load(name)
        self.codes = np.stack(codes, axis=1)
        self.workloads = {ways: marginals(self.domain, ways=ways) for ways in MEASURED_WAYS}
        self.exact = {
            ways: accuracy_tables.count(self.domain, codes, workload)
            for ways, workload in self.workloads.items()
        }

    @property
    def described(self) -> dict[str, Any]:
        """What the page tells of it."""
        return {
            "records": len(self.codes),
            "attributes": len(self.domain.names),
            "ways": self.ways,
            "marginals": {str(ways): len(each) for ways, each in self.workloads.items()},
        }

    def task(self, seed: int, options: dict[str, Any]) -> Task:
        """Returns what a system is given."""
        sizes = dict(zip(self.domain.names, map(int, self.domain.shape), strict=True))
        return Task(sizes, self.codes, self.ways, EPSILON, DELTA, seed, options)

    def holds(self, codes: np.ndarray) -> bool:
        """Returns whether records are of this table's domain."""
        is_table = codes.ndim == 2 and codes.shape[1] == len(self.domain.names)
        return is_table and bool(((codes >= 0) & (codes < self.domain.shape)).all())

    def errors(self, codes: np.ndarray) -> dict[str, list[float]]:
        """Returns mean total variation and largest cell error of records, by ways."""
        columns = list(codes.T)
        found = {}
        for ways, workload in self.workloads.items():
            counted = accuracy_tables.count(self.domain, columns, workload)
            estimates = ((counted.marginal(names) / len(codes),) for names in workload)
            found[str(ways)] = accuracy.errors(estimates, workload, self.exact[ways])
        return found


def release(table: Table, contender: Contender, limit: int, seed: int) -> dict[str, Any]:
    """Returns one run of a system that releases records, with its errors where it got to them."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        table.task(seed, contender.options).write(folder)
        found = contender.measure(folder, limit)
        if found["outcome"] == "done":
            codes = released(folder)
            if table.holds(codes):
                found["errors"] = table.errors(codes)
            else:
                found["outcome"] = "failed: records outside the domain"
    return found


def count(contender: Contender, limit: int, seed: int) -> dict[str, Any]:
    """Returns one run of a pass; the rows that it keeps show that the limits are the same."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = pass_inputs.make_table(PASS_ROWS, seed, np.int64, PASS_ROWS // MEAN_ROWS)
        pyarrow.parquet.write_table(rows, folder / "rows.parquet")
        limits = {
            "epsilon": EPSILON,
            "delta": DELTA,
            "rows_of_a_unit": MAX_ROWS,
            "codes": NUM_CODES,
        }
        (folder / "limits.json").write_text(json.dumps(limits), encoding="utf-8")
        found = contender.measure(folder, limit)
        if found["outcome"] == "done":
            kept = float(np.load(folder / "counts.npy").sum())
            of_unit = np.bincount(rows.column("unit").to_numpy())
            found["kept"] = kept / int(np.minimum(of_unit, MAX_ROWS).sum())
    return found


class Kept:
    """The runs of all systems, in a file.

    Args:
        path: the file, which need not be there yet.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.content: dict[str, Any] = {"tables": {}, "runs": []}
        if path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))

    def replace(self, table: str, contender: Contender, runs: Iterator[dict[str, Any]]) -> None:
        """Puts a system's runs on one table in the place of the earlier ones, one by one."""
        key = {"table": table, "name": contender.name}
        others = [run for run in self.content["runs"] if not key.items() <= run.items()]
        new: list[dict[str, Any]] = []
        for run in runs:
            new.append({**key, **run})
            self.content["runs"] = others + new
            self.write()

    def write(self) -> None:
        """Writes the file anew."""
        self.path.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")


def seeded(
    one: Callable[[int], dict[str, Any]], stated: Mapping[str, Any], num_seeds: int
) -> Iterator[dict[str, Any]]:
    """Yields a run for each seed, and none after one that was not done: the others would not be."""
    for seed in range(num_seeds):
        found = {"seed": seed, **stated, **one(seed)}
        print(f"  seed {seed}: {found['outcome']}, {found['cpu_seconds']:.0f} CPU s", flush=True)
        yield found
        if found["outcome"] != "done":
            return


def compare(kept: Kept, name: str, options: argparse.Namespace) -> None:
    """Runs the systems that are asked for, on one table or the pass."""
    contenders: Sequence[Contender]
    run: Callable[..., dict[str, Any]]
    if name == "pass":
        units = PASS_ROWS // MEAN_ROWS
        told = {"rows": PASS_ROWS, "units": units, "rows_of_a_unit": MAX_ROWS}
        contenders, run = PASS, count
    else:
        table = Table(name, TABLES[name])
        told = table.described
        contenders, run = RECORDS, functools.partial(release, table)
    kept.content["tables"][name] = told
    for contender in contenders:
        if options.only and contender.name not in options.only:
            continue
        print(f"{name}: {contender.name}", contender.lacking, flush=True)
        if contender.lacking:
            continue
        stated = {
            "date": recorded.today(),
            "machine": recorded.machine(),
            "version": recorded.commit() if contender.package == OWN else contender.version,
            "limit": options.limit,
        }
        one = functools.partial(run, contender, options.limit)
        kept.replace(name, contender, seeded(one, stated, options.seeds))


def main() -> None:
    """Runs what is asked for, and writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    systems = (*RECORDS, *PASS)
    names = sorted({each.name for each in systems})
    tables = [*TABLES, "pass"]
    parser.add_argument("--only", action="append", choices=names, help="a system; may be repeated")
    parser.add_argument("--tables", nargs="+", choices=tables, default=tables)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=900, help="processor seconds of one run")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS / "peers.json")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS / "peers.md")
    options = parser.parse_args()
    kept = Kept(options.results)
    for name in options.tables:
        compare(kept, name, options)
    kept.write()
    options.output.write_text(page.text(kept.content), encoding="utf-8")


if __name__ == "__main__":
    main()
