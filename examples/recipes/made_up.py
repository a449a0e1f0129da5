"""Writes the made-up tables that the recipes read into the working directory."""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from visits import DOMAIN, visits

SEED = 20_261_130
# The clinic's survey draws people up to 44 years less often: public rates, 1 in 50 and 1 in 20.
WEIGHTS = {True: 50.0, False: 20.0}


def main() -> None:
    """Writes ``visits.parquet``, its domain ``visits.json``, and ``survey.parquet``."""
    table = visits()
    days = np.random.default_rng(SEED).integers(0, 365, table.num_rows)
    table = table.append_column("day", pa.array(days))
    pq.write_table(table, "visits.parquet")
    pathlib.Path("visits.json").write_text(json.dumps(DOMAIN), encoding="utf-8")
    people = table.group_by("person_id", use_threads=False).aggregate(
        [(name, "first") for name in ("age", "sex", "smoker", "charge")]
    )
    people = people.rename_columns([name.removesuffix("_first") for name in people.column_names])
    weights = [WEIGHTS[age < 45] for age in people["age"].to_pylist()]
    pq.write_table(people.append_column("weight", pa.array(weights)), "survey.parquet")


if __name__ == "__main__":
    main()
