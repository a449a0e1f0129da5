"""The distributed pass against its limits: ratios, from interleaved runs on one machine.

    python benchmarks/distributed_pass.py --quick
    python benchmarks/distributed_pass.py --record benchmarks/results/distributed_pass.json

``peers/side_by_side.py`` compares the pass that limits a unit's records with PipelineDP.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import logging
import pathlib
import sys
import tempfile
from collections.abc import Callable

logging.disable(logging.WARNING)

import apache_beam as beam  # noqa: E402 - its import already logs
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.secret.summaries.histogram import HistogramAccumulator, MarginalsAccumulator  # noqa: E402
from beam_dp.transforms.counting.limit_contributions import LimitContributions  # noqa: E402
from beam_dp.transforms.counting.summarise import EncodeRecords, Summarise  # noqa: E402
from beam_dp.transforms.reading.read import ReadRecords  # noqa: E402
from benchmarks.pair_counts import BARE  # noqa: E402
from benchmarks.pass_inputs import (  # noqa: E402
    ADULT,
    ALL_3_WAY,
    DOMAIN,
    FEW,
    FULL,
    MAX_RECORDS_PER_UNIT,
    QUICK,
    Sizes,
    write_data,
)
from benchmarks.pass_peers import (  # noqa: E402
    bare_avro,
    bare_csv,
    bare_parquet,
    beam_count_per_element,
    beam_count_per_marginal,
)
from benchmarks.pass_runs import (  # noqa: E402
    IN_PROCESS,
    TWO_PROCESSES,
    Timed,
    apart,
    interleaved,
    run_pipeline,
    timed,
)
from benchmarks.recorded import Figure, Row, add_flag, keep  # noqa: E402
from benchmarks.tables import table  # noqa: E402

Comparison = Callable[[float, float], float]  # of this pass and the other, in the same unit


def our_histogram(
    pattern: str, unit: str = "record", options: tuple[str, ...] = IN_PROCESS
) -> np.ndarray:
    """The pass of this project: files to exact counts."""
    accumulator = HistogramAccumulator(DOMAIN)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        columns = [*DOMAIN.names, *([] if unit == "record" else [unit])]
        encoded = (
            pipeline | ReadRecords(pattern, columns) | EncodeRecords(DOMAIN, unit, as_cells=True)
        )
        if unit != "record":
            encoded = encoded | LimitContributions(DOMAIN, MAX_RECORDS_PER_UNIT, cost_limit=None)
        return encoded | Summarise(accumulator)

    return accumulator.from_shards(run_pipeline(build, options)).counts


def our_marginals(path: str, unit: str = "record") -> dict[tuple[str, ...], np.ndarray]:
    """All 3-way marginals of the wide table, in the pass of this project."""
    accumulator = MarginalsAccumulator(ADULT, ALL_3_WAY)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        columns = [*ADULT.names, *([] if unit == "record" else [unit])]
        encoded = pipeline | ReadRecords(path, columns) | EncodeRecords(ADULT, unit, as_cells=False)
        if unit != "record":
            encoded = encoded | LimitContributions(ADULT, MAX_RECORDS_PER_UNIT, cost_limit=None)
        return encoded | Summarise(accumulator)

    return dict(accumulator.from_shards(run_pipeline(build)).tables)


def bounded_count(path: str) -> int:
    """Where few enough records of a unit are its own: how many records bounding must keep."""
    of_unit = np.bincount(pa.parquet.read_table(path).column("unit").to_numpy())
    return int(np.minimum(of_unit, MAX_RECORDS_PER_UNIT).sum())


def times(ours: float, other: float) -> float:
    """How many times the other's."""
    return ours / other


def above(ours: float, other: float) -> float:
    """How much above the other's."""
    return ours - other


def alone(ours: float, _: float) -> float:
    """Itself."""
    return ours


@dataclasses.dataclass(frozen=True)
class Pair:
    """This pass and, but for one that stands alone, another, in the same unit.

    Args:
        ours: what this pass took.
        other: what the other took.
        unit: of both.
        beside: what the other is.
    """

    ours: Timed
    other: Timed | None = None
    unit: str = "seconds"
    beside: str = ""

    def row(self, what: str, wanted: str, figure: Comparison, runs: int) -> Row:
        """The figure by processor and by elapsed time, and what it is made of."""
        against = self.ours if self.other is None else self.other
        unit = "times" if figure is times else self.unit
        figures = {
            "by CPU time": Figure(figure(self.ours.cpu_seconds, against.cpu_seconds), unit),
            "by elapsed time": Figure(figure(self.ours.seconds, against.seconds), unit),
        }
        for name, each in (("this pass", self.ours), ("the other", self.other)):
            if each is not None and self.other is not None:
                figures[f"{name}, CPU"] = Figure(each.cpu_seconds, self.unit)
                figures[f"{name}, elapsed"] = Figure(each.seconds, self.unit)
        return Row(what, figures, runs, self.beside, wanted)


def compare_parquet(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[Row]:
    """Rows of the table of results: Parquet."""
    few = str(folder / f"few-{FEW}.parquet")
    fixed = interleaved({"few": lambda: our_histogram(few)}, repeats)["few"]
    rows = [Pair(fixed).row(f"Beam's fixed cost: the pass of {FEW:,} rows", "", alone, repeats)]
    each_row = []
    for kind in ("uint8", "int64"):
        pattern = str(folder / f"{kind}-{sizes.parquet}-*.parquet")
        found = interleaved(
            {
                "bare": functools.partial(bare_parquet, pattern),
                "ours": functools.partial(our_histogram, pattern),
            },
            repeats,
        )
        bare, ours = found["bare"], found["ours"]
        np.testing.assert_array_equal(ours.result, bare.result)
        each_row.append(ours.per(sizes.parquet))
        what = f"Parquet, 8 {kind} columns, {sizes.parquet:,} rows"
        rows.append(Pair(ours, bare, beside=BARE).row(what, "<= 1.05", times, repeats))
    path = str(folder / f"peer-{sizes.peer_rows}.parquet")
    peer = timed(lambda: beam_count_per_element(path))
    np.testing.assert_array_equal(peer.result, bare_parquet(path))
    beside = f"`ReadFromParquet`, `Map`, `Count.PerElement` of {sizes.peer_rows:,} rows"
    found = Pair(min(each_row), peer.per(sizes.peer_rows), "microseconds", beside)
    return [*rows, found.row("a row of Parquet", "<= 1/100", times, 1)]


def compare_processes(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[Row]:
    """Rows of the table of results: Parquet in two worker processes."""
    rows = []
    for kind, name in (("few", "few-*"), ("uint8", "uint8-*"), ("int64", "int64-*")):
        num_rows = FEW if kind == "few" else sizes.parquet
        pattern = str(folder / f"{name.removesuffix('*')}{num_rows}*.parquet")
        found = interleaved(
            {
                "bare": functools.partial(bare_parquet, pattern),
                "one": functools.partial(our_histogram, pattern),
                "ours": functools.partial(our_histogram, pattern, options=TWO_PROCESSES),
            },
            repeats,
        )
        np.testing.assert_array_equal(found["ours"].result, found["bare"].result)
        what = f"Parquet in 2 worker processes, {kind}, {num_rows:,} rows"
        if kind == "few":
            start = Pair(found["ours"])
            rows.append(start.row(f"{what}: their start", "", alone, repeats))
        else:
            both = Pair(found["ours"], found["bare"], beside=BARE)
            rows.append(both.row(what, "<= 0.7", times, repeats))
            both = Pair(found["ours"], found["one"], beside="this pass in one process")
            rows.append(both.row(what, "<= 0.8 elapsed, 1.2 CPU", times, repeats))
    return rows


def compare_avro(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[Row]:
    """Rows of the table of results: Avro."""
    path = str(folder / f"rows-{sizes.avro}.avro")
    found = interleaved(
        {"bare": lambda: bare_avro(path), "ours": lambda: our_histogram(path)}, repeats
    )
    bare, ours = found["bare"], found["ours"]
    assert ours.result.sum() == bare.result == sizes.avro
    what = f"Avro, {sizes.avro:,} rows: how much above, a row"
    both = Pair(ours.per(sizes.avro), bare.per(sizes.avro), "microseconds", "fastavro alone")
    return [both.row(what, "<= 2", above, repeats)]


def compare_csv(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[Row]:
    """Rows of the table of results: CSV."""
    rows = []
    for kind, described, target in (("rows", "", "1.2"), ("quoted", ", all quoted", "1.5")):
        path = str(folder / f"{kind}-{sizes.csv}.csv")
        found = interleaved(
            {
                "ours": functools.partial(our_histogram, path),
                # Who comes next gets the memory of a whole table anew, in twice the time: nobody's.
                "untold": functools.partial(bare_csv, path, False),
                "threads": functools.partial(bare_csv, path, True),
                "one thread": functools.partial(bare_csv, path, False),
            },
            repeats,
        )
        assert found["ours"].result.sum() == sizes.csv
        for name in ("threads", "one thread"):
            both = Pair(found["ours"], found[name], beside=f"pyarrow alone, {name}")
            what = f"CSV{described}, {sizes.csv:,} rows"
            rows.append(both.row(what, f"<= {target}", times, repeats))
    return rows


def compare_bounding(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[Row]:
    """Rows of the table of results: contribution bounding, also of a unit with most records."""
    usual, heavy = (str(folder / f"{name}-{sizes.bounding}.parquet") for name in ("units", "heavy"))
    bound = functools.partial(our_histogram, unit="unit")
    ours, peak = apart(bound, usual, repeats)
    of_one, heavy_peak = apart(bound, heavy, repeats)
    assert ours.result.sum() == bounded_count(usual)
    assert of_one.result.sum() == bounded_count(heavy)
    what = f"{sizes.bounding:,} rows of {sizes.units:,} units, at most {MAX_RECORDS_PER_UNIT} each"
    one, without = f"{what}, where one unit has 90 % of the rows", "the same without it"
    each_row = Pair(ours.per(sizes.bounding), unit="microseconds")
    memory = {
        "peak of memory": Figure(heavy_peak / peak, "times"),
        "this pass, peak": Figure(heavy_peak, "MiB"),
        "the other, peak": Figure(peak, "MiB"),
    }
    return [
        each_row.row(f"{what}: a row", "<= 1.2 us (CPU)", alone, repeats),
        Pair(of_one, ours, beside=without).row(one, "<= 1.3", times, repeats),
        Row(f"{one}: memory", memory, repeats, without, "<= 1.3"),
    ]


def compare_marginals(folder: pathlib.Path, sizes: Sizes, repeats: int) -> list[Row]:
    """Rows of the table of results: all 3-way marginals of a table too wide for a histogram."""
    path = str(folder / f"adult-{sizes.marginals}.parquet")
    few = str(folder / f"adult-{sizes.marginals_peer}.parquet")
    found = interleaved(
        {"record": lambda: our_marginals(path), "unit": lambda: our_marginals(path, "unit")},
        repeats,
    )
    rows = []
    tables = f"all {len(ALL_3_WAY)} 3-way marginals of {len(ADULT.names)} columns"
    for unit, described in (("record", "a record"), ("unit", "a column, at most 3 records each")):
        assert len({int(table.sum()) for table in found[unit].result.values()}) == 1
        what = f"{tables}, {sizes.marginals:,} Parquet rows, the unit is {described}"
        each_row = Pair(found[unit].per(sizes.marginals), unit="microseconds")
        rows.append(each_row.row(f"{what}: a row", "<= 3 us (CPU)", alone, repeats))
    peer = timed(lambda: beam_count_per_marginal(few))
    for names, counts in our_marginals(few).items():
        np.testing.assert_array_equal(counts, peer.result[names])
    beside = f"`ReadFromParquet`, {len(ALL_3_WAY)} tuples a row, `Count.PerElement`"
    beside += f" of {sizes.marginals_peer:,} rows"
    ours, other = found["record"].per(sizes.marginals), peer.per(sizes.marginals_peer)
    both = Pair(ours, other, "microseconds", beside)
    return [*rows, both.row(f"{tables}, a row", "<= 1/100", times, 1)]


def main() -> None:
    """Prints the table of medians, and keeps it where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: fixed costs show")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="parquet,processes,avro,csv,bounding,marginals")
    parser.add_argument("--data", help="where inputs are kept; a temporary folder by default")
    add_flag(parser)
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.data or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_data(folder, sizes)
        how = folder, sizes, arguments.repeats
        comparisons: dict[str, Callable[[], list[Row]]] = {
            "parquet": functools.partial(compare_parquet, *how),
            "processes": functools.partial(compare_processes, *how),
            "avro": functools.partial(compare_avro, *how),
            "csv": functools.partial(compare_csv, *how),
            "bounding": functools.partial(compare_bounding, *how),
            "marginals": functools.partial(compare_marginals, *how),
        }
        chosen = [comparisons[name] for name in arguments.only.split(",")]
        rows = list(itertools.chain.from_iterable(compare() for compare in chosen))
    print(table(rows))
    keep(arguments.record, rows)


if __name__ == "__main__":
    main()
