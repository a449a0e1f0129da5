"""Measures releases of raw tables of which only the types of the columns are known.

    python benchmarks/undescribed_tables.py --sizes 3000,30000

Every draw makes a table anew from a public seed and releases all of its pairs twice, at epsilon 1
and delta 1e-9: *found*, with every column left to ``discover`` as ``beam-dp init --types`` writes
it; and *declared*, with the domain that somebody would declare who has seen the records: whole
numbers one by one where there are few, else 20 quantile bins, and the 50 most frequent texts. Both
have the same epsilon in total. A copy is judged as its user does, by its columns beside the true:

- *mean*: the error of the mean over the true standard deviation, the worst column;
- *sd*: how far the standard deviation is off, as a share of the true one, the worst column;
- *quantiles*: errors of the 5, 25, 50, 75 and 95 % quantiles over the interquartile range (the
  standard deviation where that is 0), the mean of each column, the worst column;
- *outside*: the share of numbers outside the true range; *far*: by more than a tenth of it;
- *clipped*: the share of true numbers outside the edges of the domain;
- *impossible*: the share of numbers with a fraction where the truth has none, or of a third value
  where the truth has two;
- *correlation*: the mean absolute error of the correlations of pairs of number columns;
- *texts*: the total variation of a text column, the mean;
- *left out*: the share of records that the domain has no level for;
- *quality*: the overall score of the quality report of SDMetrics, where that is installed.

``--columns`` prints every column of one draw.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import pathlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import beam_dp as dp
from beam_dp.domain.discover import OpenDomain
from benchmarks.raw_tables import CATEGORIES, raw_table
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table

EPSILON, DELTA, SEED = 1.0, 1e-9, 52
# As a user types them: beam-dp init --types.
Types = dict[str, str]
Columns = dict[str, Any]
Generator = np.random.Generator
_FEW = 64  # whole numbers that somebody would declare one by one
_BINS, _TEXTS = 20, 50
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_NULLS = 0.03


def wages(generator: Generator, size: int) -> Columns:
    """Eleven columns of a survey: yes and no as 1 and 0, ages, texts, money and its log."""
    age = np.clip(np.rint(18 + 62 * generator.beta(1.7, 2.6, size)), 18, 80).astype(int)
    female = (generator.random(size) < 0.45).astype(int)
    school = np.clip(np.rint(generator.normal(13, 2.6, size)), 6, 20).astype(int)
    experience = np.maximum(age - school - 6 - generator.poisson(2, size), 0)
    degree = (school >= 16).astype(int)
    union = (generator.random(size) < 0.18 + 0.1 * (age > 45)).astype(int)
    married = (generator.random(size) < np.clip((age - 18) / 40, 0.05, 0.75)).astype(int)
    job = np.minimum(generator.poisson(2.0 - degree, size), len(CATEGORIES) - 1)
    region = generator.choice(4, size, p=[0.2, 0.25, 0.35, 0.2])
    log_wage = (
        3.35 + 0.075 * school + 0.009 * experience - 0.17 * female + 0.12 * union
        + 0.05 * married - 0.04 * job + 0.28 * generator.normal(size=size)
    )  # fmt: skip
    wage = np.round(np.clip(np.exp(log_wage), 20, 318), 2)
    return {
        "age": age,
        "female": female,
        "school": school,
        "experience": experience,
        "degree": degree,
        "union": union,
        "married": married,
        "job": np.array(CATEGORIES)[job],
        "region": np.array(["north", "east", "south", "west"])[region],
        "wage": wage,
        "log_wage": np.round(np.log(wage), 4),
    }


def inspections(generator: Generator, size: int) -> Columns:
    """Scores of inspections: years, scores up to 100, sizes of chains, and weekends."""
    year = 2000 + np.minimum(generator.binomial(25, 0.52, size), 19)
    chain = np.minimum(np.floor(generator.pareto(0.6, size)) + 1, 646).astype(int)
    score = 100 - generator.gamma(1.4, 4.3 + 0.15 * (year - 2000), size) + 1.5 * (chain > 50)
    return {
        "year": year,
        "score": np.clip(np.rint(score), 66, 100).astype(int),
        "locations": chain,
        "weekend": np.where(generator.random(size) < 0.06, "True", "False"),
    }


def loans(generator: Generator, size: int) -> Columns:
    """Two questions with Yes and No, and two amounts."""
    student = generator.random(size) < 0.29
    income = np.where(student, 17_950, 40_000) + np.where(student, 4_500, 10_000) * (
        generator.normal(size=size)
    )
    balance = np.maximum(780 + 200 * student + 480 * generator.normal(size=size), 0)
    default = generator.random(size) < 1 / (1 + np.exp(10.6 - 0.0057 * balance))
    return {
        "default": np.where(default, "Yes", "No"),
        "student": np.where(student, "Yes", "No"),
        "balance": np.round(balance, 2),
        "income": np.round(np.clip(income, 770, 74_000), 2),
    }


def orders(generator: Generator, size: int) -> Columns:
    """Dates, moments and ids far from 0, counts with many zeros, codes, money with long tails."""
    day = np.floor(1_460 * generator.beta(2.0, 1.3, size)).astype(int)
    season = 9 - 11 * np.cos(2 * np.pi * day / 365)
    product = np.minimum(generator.geometric(0.25, size), 12)
    number = np.where(generator.random(size) < 0.7, 0, generator.geometric(0.2, size))
    amount = np.round(np.exp(3.5 + 0.1 * product + 1.5 * generator.normal(size=size)), 2)
    return {
        "date": np.datetime64("2019-01-01") + day,
        "seconds": 1_546_300_800 + 86_400 * day + generator.integers(0, 86_400, size),
        "customer": 48_000_000 + generator.integers(0, 250_000, size),
        "complaints": number,
        "postcode": 10_000 + 97 * np.minimum(generator.geometric(0.02, size), 500),
        "product": np.array([f"P{each:02}" for each in range(13)])[product],
        "amount": amount,
        "discount": np.where(generator.random(size) < 0.8, 0.0, np.round(amount / 10, 2)),
        "celsius": np.round(season + 3 * generator.normal(size=size), 1),
    }


def insurance(generator: Generator, size: int) -> Columns:
    """Forty-four columns of yearly records of people: shares, counts with many zeros, and logs."""
    people = max(1, round(size * 5_912 / 20_190))
    person = np.sort(generator.integers(0, people, size))
    latent = generator.normal(size=people)[person]
    columns: Columns = {"person": person}
    columns["year"] = 1 + generator.integers(0, 5, size)
    columns["site"] = generator.integers(1, 7, people)[person]
    columns["female"] = (generator.random(people) < 0.52).astype(int)[person]
    columns["age"] = np.round(np.clip(62 * generator.beta(1.1, 1.6, people), 0, 64)[person], 2)
    columns["school"] = np.clip(np.rint(generator.normal(12, 3, people)), 0, 25).astype(int)[person]
    columns["income"] = np.round(np.exp(9 + 0.8 * generator.normal(size=people))[person], 2)
    for number in range(8):
        rate = np.exp(0.4 * latent + 0.8 - 0.3 * number)
        columns[f"visits_{number}"] = generator.negative_binomial(1, 1 / (1 + rate))
    for number in range(6):
        spent = np.exp(3 + 0.5 * latent + 1.2 * generator.normal(size=size))
        spent = np.where(generator.random(size) < 0.2 + 0.1 * number, 0.0, np.round(spent, 2))
        columns[f"spent_{number}"] = spent
        columns[f"log_spent_{number}"] = np.round(np.log1p(spent), 4)
    for number in range(16):
        chance = 1 / (1 + np.exp(-(0.6 * latent + 0.25 * (number - 8))))
        columns[f"illness_{number}"] = (generator.random(size) < chance).astype(int)
    columns["plan"] = np.array(["A", "B", "C", "D"])[generator.integers(0, 4, people)[person]]
    columns["health"] = np.round(
        np.clip(70 - 15 * latent + generator.normal(0, 5, size), 0, 100), 1
    )
    return columns


def visits(generator: Generator, size: int) -> Columns:
    """The visits of ``raw_tables.py``: dates, many diagnoses with typos, wards, and stays."""
    seed = int(generator.integers(2**31))
    records = raw_table("visits", size, seed)
    return {name: records[name].to_numpy() for name in records.column_names}


TABLES: dict[str, Callable[[Generator, int], Columns]] = {
    "wages": wages,
    "inspections": inspections,
    "loans": loans,
    "orders": orders,
    "insurance": insurance,
    "visits": visits,
}
_DATES = {"date"}
UNITS = {"insurance": ("person", 5)}


def made(name: str, size: int, seed: int, *, nulls: bool = False) -> pd.DataFrame:
    """Returns a table; the same arguments give the same. With nulls, 3 % of the cells are empty."""
    generator = np.random.default_rng([SEED, list(TABLES).index(name), size, seed])
    frame = pd.DataFrame(TABLES[name](generator, size))
    for column in _DATES.intersection(frame.columns):
        frame[column] = pd.to_datetime(frame[column]).dt.date
    if nulls:
        for column in frame.columns:
            kept = frame[column].convert_dtypes() if column not in _DATES else frame[column]
            frame[column] = kept.mask(generator.random(size) < _NULLS)
    return frame


def types_of(frame: pd.DataFrame) -> Types:
    """Returns what its owner knows of every column: its type."""
    kinds = {"i": "integer", "u": "integer", "f": "numeric"}
    return {
        column: "date" if column in _DATES else kinds.get(frame[column].dtype.kind, "categorical")
        for column in frame.columns
    }


def found_domain(types: Types) -> OpenDomain:
    """Returns the domain of ``beam-dp init --types --null none``."""
    drafts = {
        "integer": {"type": "numeric", "whole": True, "discover": {"bins": _BINS}},
        "numeric": {"type": "numeric", "discover": {"bins": _BINS}},
        "categorical": {"type": "categorical", "discover": {"max_values": 100}},
        "date": {
            "type": "date",
            "discover": {"bins": _BINS, "min": "1900-01-01", "max": "2100-01-01"},
        },
    }
    domain = dp.read_open_domain(
        {"attributes": [{"name": name, **drafts[kind]} for name, kind in types.items()]}
    )
    assert isinstance(domain, OpenDomain)
    return domain


def declared_domain(frame: pd.DataFrame, types: Types) -> dp.Domain:
    """Returns the domain that somebody would declare who has seen the records."""
    entries: list[dict[str, Any]] = []
    for name, kind in types.items():
        column = frame[name].dropna()
        if kind == "categorical":
            values = column.value_counts().index[:_TEXTS].tolist()
            entries.append({"name": name, "type": kind, "values": values, "other": True})
            continue
        numbers = numbers_of(column)
        low, high = numbers.min(), numbers.max()
        if kind == "integer" and high - low < _FEW:
            entries.append({"name": name, "type": kind, "min": int(low), "max": int(high)})
            continue
        inner = np.quantile(numbers, np.arange(1, _BINS) / _BINS, method="inverted_cdf")
        edges: list[Any] = sorted({float(each) for each in (low, *inner, high)})
        if kind == "date":
            edges = [str(_EPOCH + int(each)) for each in edges]
        entry: dict[str, Any] = {"name": name, "type": "date" if kind == "date" else "numeric"}
        whole = {"whole": True} if kind == "integer" else {}
        entries.append({**entry, "edges": edges, **whole})
    return dp.read_domain({"attributes": entries})


_EPOCH = np.datetime64("1970-01-01")


def numbers_of(column: pd.Series) -> NDArray[np.float64]:
    """Returns a column as numbers; dates as days."""
    present = column.dropna()
    if present.dtype == object:
        return np.array(present.to_list(), "datetime64[D]").astype(np.float64)
    return present.to_numpy(np.float64)


@dataclasses.dataclass(frozen=True)
class ColumnErrors:
    """How far one column of a copy is from the truth."""

    name: str
    mean: float = 0.0
    sd: float = 0.0
    quantiles: float = 0.0
    outside: float = 0.0
    far: float = 0.0
    clipped: float = 0.0
    impossible: float = 0.0
    texts: float = math.nan


def column_errors(
    name: str, kind: str, truth: pd.Series, copy: pd.Series, domain: dp.Domain
) -> ColumnErrors:
    """Returns the errors of one column."""
    if kind == "categorical":
        shares = [each.astype(str).value_counts(normalize=True) for each in (truth, copy)]
        apart = shares[0].subtract(shares[1], fill_value=0).abs().sum() / 2
        return ColumnErrors(name, texts=float(apart))
    true = numbers_of(truth)
    released = pd.to_numeric(copy, errors="coerce") if kind != "date" else copy
    released = numbers_of(released)
    if not len(released):
        return ColumnErrors(name, *[1.0] * 7)
    low, high, deviation = true.min(), true.max(), true.std() or 1.0
    quartiles = np.quantile(true, [0.25, 0.75])
    unit = float(quartiles[1] - quartiles[0]) or deviation
    apart = np.abs(np.quantile(true, _QUANTILES) - np.quantile(released, _QUANTILES))
    room = (high - low) / 10
    strange = released != np.rint(released) if kind == "integer" else np.zeros(1)
    if kind == "integer" and len(np.unique(true)) == 2:
        strange = strange | ~np.isin(released, true)
    text = int(len(copy) - len(released)) / max(len(copy), 1)
    attribute = domain[name]
    edges = getattr(attribute, "edges_to_json", lambda: [low, high])()
    if kind == "date":
        edges = np.array(edges, "datetime64[D]").astype(np.float64).tolist()
    return ColumnErrors(
        name=name,
        mean=abs(released.mean() - true.mean()) / deviation,
        sd=abs(released.std() / deviation - 1),
        quantiles=float(apart.mean() / unit),
        outside=float(np.mean((released < low) | (released > high))),
        far=float(np.mean((released < low - room) | (released > high + room))),
        clipped=float(np.mean((true < edges[0]) | (true > edges[-1]))),
        impossible=float(strange.mean()) + text,
    )


def correlation_error(types: Types, truth: pd.DataFrame, copy: pd.DataFrame) -> float:
    """Returns the mean absolute error of the correlations of pairs of number columns."""
    names = [name for name, kind in types.items() if kind in ("integer", "numeric")]
    if len(names) < 2:
        return math.nan
    both = [
        each[names].apply(pd.to_numeric, errors="coerce").astype(float).corr().fillna(0.0)
        for each in (truth, copy)
    ]
    upper = np.triu_indices(len(names), 1)
    return float(np.abs(both[0].to_numpy() - both[1].to_numpy())[upper].mean())


def quality(types: Types, truth: pd.DataFrame, copy: pd.DataFrame) -> float:
    """Returns SDMetrics' overall score of a copy; not a number where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from sdmetrics.reports.single_table import QualityReport
    except ImportError:
        return math.nan
    kinds = {"integer": "numerical", "numeric": "numerical", "date": "datetime"}
    columns = {
        name: {"sdtype": kinds.get(kind, "categorical")}
        | ({"datetime_format": "%Y-%m-%d"} if kind == "date" else {})
        for name, kind in types.items()
    }
    frames = []
    for each in (truth, copy):
        frame = each.copy()
        for name, kind in types.items():
            if kind in ("integer", "numeric"):
                frame[name] = pd.to_numeric(frame[name], errors="coerce").astype(float)
            else:
                frame[name] = frame[name].astype(str)
        frames.append(frame)
    report = QualityReport()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report.generate(*frames, {"columns": columns}, verbose=False)
    return float(report.get_score())


def measure(
    name: str, size: int, seed: int, *, nulls: bool = False, columns: bool = False
) -> dict[str, dict[str, float]]:
    """Returns the errors of both releases of one table."""
    frame = made(name, size, seed, nulls=nulls)
    unit, most = UNITS.get(name, ("record", 1))
    types = types_of(made(name, size, seed).drop(columns=unit, errors="ignore"))
    truth = frame[list(types)]
    guarantee = dp.Guarantee(EPSILON, DELTA, "add_or_remove_one", unit, most)
    measured = {}
    for arm, domain in (
        ("found", found_domain(types)),
        ("declared", declared_domain(truth, types)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            released = dp.release(frame, domain, dp.marginals(domain, ways=2), guarantee)
        copy = released.to_arrow().to_pandas()
        closed = released.domain
        errors = [
            column_errors(each, kind, truth[each], copy[each], closed)
            for each, kind in types.items()
        ]
        if columns:
            print(f"{name}, {size:,} records, {arm}, a column a line:")
            for each in errors:
                told = [f"{k} {v:.3f}" for k, v in dataclasses.asdict(each).items() if k != "name"]
                print(f"  {each.name}: {', '.join(told)}; {closed[each.name].labels()[:6]}")
        measured[arm] = _summary(errors) | {
            "correlation": correlation_error(types, truth, copy),
            "left out": max(0.0, 1 - len(copy) / size),
            "quality": quality(types, truth, copy),
        }
    return measured


def _summary(errors: list[ColumnErrors]) -> dict[str, float]:
    numbers = [each for each in errors if math.isnan(each.texts)]
    texts = [each.texts for each in errors if not math.isnan(each.texts)]
    worst = {
        field: max(getattr(each, field) for each in numbers)
        for field in ("mean", "sd", "quantiles", "outside", "far", "clipped", "impossible")
    }
    return worst | {"texts": float(np.mean(texts)) if texts else math.nan}


def main() -> None:
    """Measures all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default=",".join(TABLES), help="names of tables")
    parser.add_argument("--sizes", default="1000,3000,30000,300000", help="numbers of records")
    parser.add_argument("--draws", type=int, default=3, help="tables and releases of each")
    parser.add_argument("--nulls", action="store_true", help="3 %% of the cells are empty")
    parser.add_argument("--columns", action="store_true", help="print every column of one draw")
    add_flag(parser)
    options = parser.parse_args()
    rows = []
    for name, text in itertools.product(options.tables.split(","), options.sizes.split(",")):
        draws = 1 if options.columns or int(text) > 100_000 else options.draws
        runs = [
            measure(name, int(text), seed, nulls=options.nulls, columns=options.columns)
            for seed in range(draws)
        ]
        empty = ", 3 % of cells empty" if options.nulls else ""
        for arm in ("found", "declared"):
            figures = {
                each: Figure.mean([run[arm][each] for run in runs], "share")
                for each in runs[0][arm]
                if not math.isnan(runs[0][arm][each])
            }
            rows.append(Row(f"{name}, {int(text):,} records{empty}, {arm}", figures, draws))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    keep(options.record, rows)


if __name__ == "__main__":
    main()
