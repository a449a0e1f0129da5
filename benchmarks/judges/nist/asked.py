"""Runs NIST's report on released records; where ``sdnist`` is installed.

    python asked.py FOLDER [NAME ...]

FOLDER holds NIST's table and its data dictionary, and released records as ``NAME.csv`` in
``released``. All get a k-marginal score, and those that are named the whole report.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import pandas as pd
from sdnist.load import TestDatasetName
from sdnist.report.__main__ import run  # imports the others in an order that works

from sdnist.metrics.kmarginal import KMarginal  # isort: skip
from sdnist.report.dataset import Dataset
from sdnist.utils import SimpleLogger

TABLE = TestDatasetName.national2019
NUMBERS = ("AGEP", "DENSITY", "PINCP", "POVPIP", "PWGTP", "WGTP")


def prepare(folder: pathlib.Path) -> pathlib.Path:
    """Lays out the files that the report wants beside the table, made from its data dictionary."""
    told = json.loads((folder / "data_dictionary.json").read_text("utf-8"))
    root = folder / "root"
    (root / "national").mkdir(parents=True)
    text = (folder / "national2019.csv").read_bytes()
    (root / "national" / "national2019.csv").write_bytes(text)
    table = pd.read_csv(folder / "national2019.csv", dtype=str)
    schema = {
        name: _column(name, told[name].get("values", {}), table[name]) for name in table.columns
    }
    named = {puma: {"name": name} for puma, name in told["PUMA"]["values"].items()}
    files = {
        "national/national2019": {"schema": schema},
        "config": {},
        "mappings": {"PUMA": named},
        "data_dictionary": told,
    }
    for name, content in files.items():
        (root / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return root


def _column(name: str, values: dict[str, Any], column: pd.Series) -> dict[str, Any]:
    """What a column holds, as the report's schema says it."""
    is_text = bool((column == "N").any()) or name == "PUMA"
    known = column[column != "N"]
    kind = "object" if is_text else "float64" if name == "DENSITY" else "int64"
    found: dict[str, Any] = {"dtype": kind}
    if is_text and name != "PUMA":
        found |= {"has_null": True, "null_value": "N"}
    if name in NUMBERS:
        numbers = pd.to_numeric(known)
        return {**found, "min": float(numbers.min()), "max": float(numbers.max())}
    listed = list(values) if values and "min" not in values else sorted(column.unique())
    return {**found, "values": listed if is_text else [int(each) for each in listed]}


def main() -> None:
    """Writes what is found of each release."""
    folder, found = pathlib.Path(sys.argv[1]), {}
    root = prepare(folder)
    for path in sorted((folder / "released").glob("*.csv")):
        data = Dataset(path, SimpleLogger(), TABLE, root, False)
        groups = data.config["k_marginal"]["group_features"]
        score = KMarginal(data.d_target_data, data.d_synthetic_data, groups).compute_score()
        found[path.stem] = {"score": float(score)}
        if path.stem in sys.argv[2:]:
            output = folder / "reports" / path.stem
            output.mkdir(parents=True)
            run(path, output, TABLE, root, {}, False, False)
            found[path.stem] |= json.loads((output / "report.json").read_text("utf-8"))
    (folder / "answer.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
