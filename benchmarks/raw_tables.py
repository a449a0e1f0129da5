"""Made tables that look raw: texts with typos, amounts with long tails, dates as text.

    python benchmarks/raw_tables.py people 50000 people.csv

writes a table. The tables are public: they follow from the seed alone, so everyone can repeat what
was measured on them. ``DOMAINS`` has domain files that list no value of the wide columns.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

SEED = 36
PERSON = "person"
NUM_CITIES = 3_000
NUM_DIAGNOSES = 800
# Shares of texts that are written differently: in capitals, with blanks, or with a typo.
CAPITALS, BLANKS, TYPOS = 0.01, 0.01, 0.02
_MOST_MISSPELT = 200_000  # different misspelt texts in a table
_FIRST = ("Al", "Bar", "Cor", "Dun", "El", "Fal", "Gre", "Hol", "Ing", "Kar", "Lan", "Mor", "Nor")
_MIDDLE = ("", "a", "an", "be", "den", "er", "i", "ling", "mo", "o", "ra", "sen", "ti", "u", "wen")
_LAST = ("berg", "burg", "by", "dale", "ford", "ham", "hausen", "mouth", "stad", "ton", "ville")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
CATEGORIES = ("employed", "self-employed", "retired", "student", "unemployed", "civil servant")
PRODUCTS = ("books", "clothes", "food", "furniture", "software", "toys", "travel")
WARDS = ("surgery", "medicine", "children", "emergency", "psychiatry")
FIRST_DAY, LAST_DAY = "2015-01-01", "2024-12-31"
_NUM_DAYS = int((np.datetime64(LAST_DAY) - np.datetime64(FIRST_DAY)).astype(int)) + 1

Columns = dict[str, Any]
Generator = np.random.Generator


def people(generator: Generator, size: int, num_cities: int = NUM_CITIES) -> Columns:
    """Returns a city, a category and an income; richer cities and categories have higher ones.

    Cities follow Zipf's law. Incomes are whole numbers: some are 0, most are near 30,000, and one
    in fifty follows a Pareto law that has no variance.
    """
    city = _zipf(generator, num_cities, size)
    category = _follow(generator, city % 7, 7, len(CATEGORIES))
    age = np.clip(generator.gamma(9.0, 5.0, size) + 20 * (category == 2) - 6, 0, 105).astype(int)
    centre = np.array([10.4, 10.3, 9.9, 8.9, 9.2, 10.6])[category] - 0.04 * np.log1p(city)
    income = np.exp(centre + 0.45 * generator.normal(size=size))
    tail = generator.random(size) < 0.02
    income = np.where(tail, 60_000 * (generator.pareto(1.5, size) + 1), income)
    income = np.where(generator.random(size) < 0.04 + 0.2 * (category == 4), 0, income)
    rounds = np.where(generator.random(size) < 0.5, 1_000, 1)  # people round
    income = np.minimum(np.rint(income / rounds) * rounds, 9_999_999).astype(np.int64)
    cities = _misspelt(generator, _names(generator, num_cities), city)
    return {
        "city": cities,
        "category": pa.array(CATEGORIES).take(pa.array(category)),
        "age": age,
        "income": income,
    }


def payments(generator: Generator, size: int) -> Columns:
    """Returns a product, an amount with two decimals, a duration in seconds, and a rating.

    Amounts of a product are lognormal; some prices, such as 9.99, are frequent, and one amount in
    thirty is a refund, below 0. Durations are a mixture of short visits and long ones, so their
    density has two peaks.
    """
    product = _zipf(generator, len(PRODUCTS), size, 0.7)
    centre = np.array([2.7, 3.8, 3.0, 5.6, 4.1, 3.1, 6.4])[product]
    amount = np.exp(centre + 0.8 * generator.normal(size=size))
    price = np.array([4.99, 9.99, 19.99, 49.0, 99.0, 499.0])
    usual = generator.random(size) < 0.25
    nearest = np.abs(np.log(amount)[:, None] - np.log(price)).argmin(axis=1)
    amount = np.where(usual, price[nearest], np.round(np.clip(amount, 0.01, 99_999.99), 2))
    amount = np.where(generator.random(size) < 1 / 30, -amount, amount)
    is_long = generator.random(size) < 0.15 + 0.08 * product
    duration = np.where(
        is_long, generator.gamma(2.0, 1_500.0, size), generator.exponential(20.0, size)
    )
    rating = 1 + _follow(generator, product * 2 + is_long, 14, 5)
    return {
        "product": pa.array(PRODUCTS).take(pa.array(product)),
        "amount": amount,
        "duration": np.round(np.minimum(duration, 86_400.0), 1),
        "rating": rating,
    }


def visits(generator: Generator, size: int) -> Columns:
    """Returns a date as text, a diagnosis code, a ward, and the days of a stay.

    Visits grow over ten years, with winters above summers and weekends below weekdays. Diagnoses
    follow Zipf's law; those of winter are more frequent in winter.
    """
    days = np.arange(_NUM_DAYS)
    dates = np.datetime64(FIRST_DAY) + days
    season = np.cos(2 * np.pi * (days - 15) / 365.25)
    weekday = (days + 3) % 7  # the first day is a Thursday
    weights = np.exp(days / _NUM_DAYS + 0.4 * season) * np.where(weekday >= 5, 0.4, 1.0)
    day = generator.choice(_NUM_DAYS, size, p=weights / weights.sum())
    diagnosis = _zipf(generator, NUM_DIAGNOSES, size)
    is_winter = (season[day] > 0.5) & (generator.random(size) < 0.3)
    diagnosis = np.where(is_winter, diagnosis // 8 * 8, diagnosis)
    ward = _follow(generator, diagnosis % 11, 11, len(WARDS))
    stay = generator.negative_binomial(1, 0.3 - 0.05 * ward, size)
    stay = np.minimum(stay + (generator.pareto(1.2, size) * 0.3).astype(np.int64), 365)
    chapter, number = np.divmod(np.arange(NUM_DIAGNOSES), 40)
    codes = [f"{chr(65 + c)}{n // 4 + 10}.{n % 4}" for c, n in zip(chapter, number, strict=True)]
    order = generator.permutation(NUM_DIAGNOSES)
    return {
        "date": pa.array(np.datetime_as_string(dates)).take(pa.array(day)),
        "diagnosis": _misspelt(generator, np.array(codes)[order].tolist(), diagnosis),
        "ward": pa.array(WARDS).take(pa.array(ward)),
        "stay": stay,
    }


TABLES: dict[str, Callable[..., Columns]] = {
    "people": people,
    "payments": payments,
    "visits": visits,
}

# The ranges and the numbers are what someone knows who never saw the records.
DOMAINS: dict[str, dict[str, Any]] = {
    "people": {
        "attributes": [
            {"name": "city", "type": "categorical", "discover": {"max_values": 500}},
            {"name": "category", "type": "categorical", "values": list(CATEGORIES)},
            {
                "name": "age",
                "type": "numeric",
                "whole": True,
                "discover": {"bins": 12, "min": 0, "max": 120},
            },
            {
                "name": "income",
                "type": "numeric",
                "whole": True,
                "discover": {"bins": 20, "min": 0, "max": 10_000_000},
            },
        ]
    },
    "payments": {
        "attributes": [
            {"name": "product", "type": "categorical", "values": list(PRODUCTS)},
            {
                "name": "amount",
                "type": "numeric",
                "discover": {"bins": 20, "min": -100_000, "max": 1_000_000},
            },
            {
                "name": "duration",
                "type": "numeric",
                "discover": {"bins": 20, "min": 0, "max": 86_400},
            },
            {"name": "rating", "type": "integer", "min": 1, "max": 5},
        ]
    },
    "visits": {
        "attributes": [
            {
                "name": "date",
                "type": "date",
                "discover": {"bins": 40, "min": "2000-01-01", "max": "2029-12-31"},
            },
            {"name": "diagnosis", "type": "categorical", "discover": {"max_values": 200}},
            {"name": "ward", "type": "categorical", "values": list(WARDS)},
            {
                "name": "stay",
                "type": "numeric",
                "whole": True,
                "discover": {"bins": 10, "min": 0, "max": 1_000},
            },
        ]
    },
}


def raw_table(
    name: str, num_records: int, seed: int = SEED, records_per_person: float = 1, **options: Any
) -> pa.Table:
    """Returns a table of ``TABLES``; the same arguments give the same table.

    Args:
        name: ``people``, ``payments`` or ``visits``.
        num_records: number of rows.
        seed: seed of everything drawn.
        records_per_person: mean number of rows of a person. Above 1, the table has a column
            ``person``; numbers of rows follow a geometric law, and rows are shuffled.
        options: arguments of the table's function, such as ``num_cities``.
    """
    generator = np.random.default_rng([seed, list(TABLES).index(name)])
    columns = TABLES[name](generator, num_records, **options)
    if records_per_person == 1:
        return pa.table(columns)
    starts = generator.random(num_records) < 1 / records_per_person
    person = generator.permutation(np.cumsum(starts))
    return pa.table({PERSON: person, **columns})


def write_raw_table(table: pa.Table, path: pathlib.Path) -> None:
    """Writes a table as CSV or Parquet, by the suffix of the path."""
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.csv.write_csv(table, path)


def _zipf(generator: Generator, num_values: int, size: int, power: float = 1.0) -> NDArray[Any]:
    """Returns ranks whose frequencies are proportional to (rank + 1)^-power."""
    weights = np.cumsum(np.arange(1.0, num_values + 1) ** -power)
    return np.searchsorted(weights, weights[-1] * generator.random(size), "right")


def _follow(
    generator: Generator, values: NDArray[Any], num_values: int, num_codes: int
) -> NDArray[Any]:
    """Returns codes whose distribution depends on the given values."""
    laws = np.cumsum(generator.dirichlet([1.0] * num_codes, num_values), axis=1)
    uniforms = generator.random(len(values))
    return np.minimum((laws[values] < uniforms[:, None]).sum(axis=1), num_codes - 1)


def _names(generator: Generator, number: int) -> list[str]:
    """Returns different names of places, in random order."""
    names: dict[str, None] = {}
    while len(names) < number:
        size = 2 * (number - len(names))
        parts = [generator.integers(0, len(each), size) for each in (_FIRST, _MIDDLE, _LAST)]
        for first, middle, last in zip(*parts, strict=True):
            name = _FIRST[first] + _MIDDLE[middle] + _LAST[last]
            if name in names:
                name = f"{name} {_FIRST[generator.integers(len(_FIRST))]}{_MIDDLE[middle]}"
            if name in names:
                name = f"{name} {len(names)}"
            names[name] = None
    return list(names)[:number]


def _misspelt(generator: Generator, texts: list[str], codes: NDArray[Any]) -> pa.Array:
    """Returns the texts of codes; some in capitals, with blanks around them, or with a typo."""
    each = max(1, min(20, _MOST_MISSPELT // len(texts)))
    typos = [_typo(generator, text) for text in texts for _ in range(each)]
    known = [*texts, *map(str.upper, texts), *(f" {text} " for text in texts), *typos]
    how = generator.random(len(codes))
    typo = 3 * len(texts) + codes * each + generator.integers(0, each, len(codes))
    place = np.select(
        [how < CAPITALS, how < CAPITALS + BLANKS, how < CAPITALS + BLANKS + TYPOS],
        [codes + len(texts), codes + 2 * len(texts), typo],
        codes,
    )
    return pa.array(known).take(pa.array(place))


def _typo(generator: Generator, text: str) -> str:
    """Returns a text with one letter replaced, left out or doubled."""
    place = int(generator.integers(len(text)))
    letter = _LETTERS[generator.integers(len(_LETTERS))]
    middle = (letter, "", 2 * text[place])[generator.integers(3)]
    return text[:place] + middle + text[place + 1 :]


def main() -> None:
    """Writes one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("num_records", type=int)
    parser.add_argument("path", type=pathlib.Path, help="a file that ends in .csv or .parquet")
    parser.add_argument("--records_per_person", type=float, default=1)
    options = parser.parse_args()
    table = raw_table(
        options.table, options.num_records, records_per_person=options.records_per_person
    )
    write_raw_table(table, options.path)


if __name__ == "__main__":
    main()
