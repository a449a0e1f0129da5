"""NIST's report about releases of its own table of people, beside reports that NIST published."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

import beam_dp as dp
from beam_dp.queries.workload import Workload
from benchmarks.accuracy_tables import NIST, NIST_COLUMNS
from benchmarks.judges.environment import Environment
from benchmarks.recorded import Figure, Row

DELTA = 1e-9
PERSON = [
    *("PUMA", "AGEP", "SEX", "MSP", "HISP", "RAC1P", "NOC", "NPF", "HOUSING_TYPE", "OWN_RENT"),
    *("DENSITY", "INDP_CAT", "EDU", "PINCP", "PINCP_DECILE", "POVPIP", "DVET", "DREM", "DPHY"),
    *("DEYE", "DEAR"),
]
# Sets of columns, by the names that NIST gives them.
SETS = {
    "10 demographic": NIST_COLUMNS,
    "11 family": [
        *("PUMA", "AGEP", "SEX", "MSP", "HISP", "RAC1P", "NOC", "NPF", "OWN_RENT"),
        *("PINCP_DECILE", "POVPIP"),
    ],
    "21 simple": PERSON,
    "all 24": [*PERSON, "INDP", "PWGTP", "WGTP"],
}
# Edges that anybody may choose without the table. A 0 has a bin of its own, as has the code 501.
# Many incomes are round numbers, which end a bin.
ROUND = [1000, 2500, 4000, 6000, 8000, 10_000, 12_000, 15_000, 18_000, 20_000, 24_000, 30_000]
ROUND += [35_000, 40_000, 50_000, 60_000, 75_000, 100_000, 150_000, 300_000, 1_341_000]
EDGES = {
    "AGEP": [0, 5, 10, 15, 16, 18, *range(20, 96, 5), 100],
    "PINCP": [-9000, 0, 1, *(each + 1 for each in ROUND)],
    "POVPIP": [0, 1, *range(25, 501, 25), 501, 502],
    "PWGTP": [1, *range(10, 201, 10), 250, 300, 400, 10_000],
    "WGTP": [0, 1, *range(10, 201, 10), 250, 300, 400, 10_000],
}
# What geography and the list of industries tell.
DETERMINES = (("PUMA", "DENSITY"), ("INDP", "INDP_CAT"))
SHARES = (10, 20, 40)  # percent of the rows in a sample
DRAWS = 3
# Scores of reports that NIST published: set, system, version of its tool, score.
PUBLISHED = (
    ("10 demographic", "AIM, epsilon 1", "2.5", 976),
    ("10 demographic", "MST, epsilon 1", "2.5", 958),
    ("11 family", "MST, epsilon 1", "2.3.0", 804),
    ("21 simple", "Genetic SD, epsilon 1", "2.2.1", 851),
    ("21 simple", "MST, epsilon 1", "2.3.0", 774),
    ("21 simple", "CART without privacy, with INDP for DENSITY", "2.5", 923),
    ("all 24", "MWEM+PGM, epsilon 1", "2.2.1", 847),
    ("all 24", "Genetic SD, epsilon 1", "2.2.1", 682),
)


class Table:
    """NIST's table, and domains of its columns."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.rows = pd.read_csv(folder / NIST[0], dtype=str)
        self._told = json.loads((folder / NIST[1]).read_text("utf-8"))

    def domain(self, names: Sequence[str]) -> dp.Domain:
        """Returns the domain of some columns."""
        written: dict[str, Any] = {"attributes": [self._attribute(name, names) for name in names]}
        found = {
            one: {other: self._mapping(one, other)}
            for one, other in DETERMINES
            if one in names and other in names
        }
        return dp.read_domain({**written, "determines": found} if found else written)

    def _attribute(self, name: str, names: Sequence[str]) -> dict[str, Any]:
        values = self._told[name].get("values", {})
        null = {"nullable": True, "null_values": ["N"]}
        more = null if "N" in values or name == "INDP" else {}
        if name == "AGEP" and len(names) == len(NIST_COLUMNS):
            return {"name": name, "type": "integer", "min": 0, "max": 99}
        if name in EDGES:
            return {"name": name, "type": "numeric", "edges": EDGES[name], "whole": True, **more}
        if name in ("NOC", "NPF"):
            least = 0 if "0" in values else values["min"]
            return {"name": name, "type": "integer", "min": least, "max": values["max"], **more}
        is_listed = values and name not in ("PUMA", "DENSITY")
        listed = list(values) if is_listed else sorted(self.rows[name].unique())
        levels = [each for each in listed if each != "N"]
        return {"name": name, "type": "categorical", "values": levels, **more}

    def _mapping(self, one: str, other: str) -> dict[str, str | None]:
        pairs = self.rows[[one, other]].drop_duplicates().itertuples(index=False)
        return {
            "null" if level == "N" else level: None if mapped == "N" else mapped
            for level, mapped in pairs
        }

    def release(self, names: Sequence[str], epsilon: float) -> pd.DataFrame:
        """Returns released records of some columns, written as NIST writes them."""
        domain = self.domain(names)
        guarantee = dp.Guarantee(epsilon, DELTA, "add_or_remove_one", "record", 1)
        records = self.rows[list(names)]
        release = dp.release(records, domain, workload(domain), guarantee, num_records=len(records))
        found = release.to_pandas()
        return found.apply(lambda column: column.map(_written).astype(object))


def workload(domain: dp.Domain) -> Workload:
    """Returns the marginals of NIST's score: all pairs, within each area if there are areas."""
    if "PUMA" not in domain:
        return dp.marginals(domain, ways=2)
    others = [name for name in domain.names if name not in ("PUMA", "INDP")]
    triples = (("PUMA", *pair) for pair in itertools.combinations(others, 2))
    return Workload(domain, tuple(triples))


def _written(value: Any) -> Any:
    if pd.isna(value):
        return "N"
    return int(value) if isinstance(value, float | np.number) else value


def rows(environment: Environment, quick: bool) -> list[Row]:
    """Returns a row for each set of columns and each epsilon, each sample and published report."""
    data = os.environ.get("BEAM_DP_DATA")
    if not data or not (pathlib.Path(data) / NIST[0]).exists():
        print(f"nist: skipped, {NIST[0]} is not in BEAM_DP_DATA")
        return []
    table, whole, told = Table(pathlib.Path(data)), [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for each in NIST:
            shutil.copy(pathlib.Path(data) / each, folder)
        (folder / "released").mkdir()
        for what, draws in _asked(table, quick):
            for draw, records in enumerate(draws):
                key = f"{len(told)}-{draw}"
                records.to_csv(folder / "released" / f"{key}.csv", index=False)
            told[what] = [f"{len(told)}-{draw}" for draw in range(draw + 1)]
            whole += [] if quick else told[what][:1]
        found = environment.ask(folder, *whole)
    measured = [
        Row(what, _figures([found[key] for key in keys]), len(keys)) for what, keys in told.items()
    ]
    return [*measured, *([] if quick else _published())]


def _asked(table: Table, quick: bool) -> Iterator[tuple[str, Iterator[pd.DataFrame]]]:
    """Yields what is measured, and its draws."""
    for name, columns in SETS.items():
        for epsilon in (1.0, 10.0):
            draws = (table.release(columns, epsilon) for _ in range(1 if quick else DRAWS))
            yield f"{name}: beam_dp, epsilon {epsilon:g}", draws
            if quick:
                return
        for share in SHARES:
            samples = (
                table.rows[columns].sample(frac=share / 100, random_state=seed)
                for seed in range(DRAWS)
            )
            yield f"{name}: {share} % of the rows", samples


def _figures(found: Sequence[dict[str, Any]]) -> dict[str, Figure]:
    """The scores of all draws, and what the report of the first one says."""
    figures = {"k-marginal": Figure.mean([each["score"] for each in found], "number")}
    report = found[0]
    if "unique_exact_matches" in report:
        summary = report["inconsistencies"]["summary"]
        wrong = max(each["Percent Records Inconsistent"] for each in summary)
        matched = report["unique_exact_matches"]["percent records matched in target data"]
        figures |= {
            "propensity": Figure(report["propensity mean square error"]["pmse_score"], "share"),
            "most inconsistent rows": Figure(wrong, "percent"),
            "unique rows matched": Figure(matched, "percent"),
        }
    return figures


def _published() -> list[Row]:
    return [
        Row(
            f"{name}: {system}; published, of version {version}",
            {"k-marginal": Figure(score, "number")},
        )
        for name, system, version, score in PUBLISHED
    ]
