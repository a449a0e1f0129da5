"""Values of open columns: which are counted, in which form, and how much one unit can add."""

import collections
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import beam_dp as dp
from beam_dp.secret.encoding import open_values
from beam_dp.secret.encoding.open_values import GRID, OpenColumns
from beam_dp.secret.summaries.sparse_counts import ValueCounts, counted_values

CITY = dp.CategoricalAttribute("city", ("Paris",), other=True, nullable=True, null_values=("-",))
LOOSE = dp.CategoricalAttribute("town", ("Paris",), other=True, case="ignore", trim=True)
LEAVES = dp.NumericAttribute("income", (0.0, 10.0, 20.0, 30.0), clip=True)
AGE = dp.IntegerAttribute("age", 0, 99)
OPEN = OpenColumns(dp.Domain((AGE,)), (CITY, LOOSE), (LEAVES,))


def columns(*texts: dp.CategoricalAttribute, leaves: Any = (), declared: Any = None) -> OpenColumns:
    return OpenColumns(declared, texts, leaves)


def promise(unit: str = "record", k: int = 1) -> dp.Guarantee:
    return dp.Guarantee(1.0, 1e-9, "add_or_remove_one", unit, k)


def counted(open_columns: OpenColumns, table: pa.Table, k: int = 0) -> ValueCounts:
    guarantee = promise("person", k) if k else promise()
    return counted_values(open_columns, guarantee, table.combine_chunks().to_batches())


def texts_of(found: ValueCounts, name: str = "city") -> dict[bytes, int]:
    texts, sums = found.texts[name]
    assert len(set(texts.to_pylist())) == len(texts) and (sums > 0).all()
    return dict(zip(texts.to_pylist(), sums.tolist(), strict=True))


def in_units(found: ValueCounts, name: str = "city") -> dict[str, float]:
    return {text.decode(): total / GRID for text, total in texts_of(found, name).items()}


@pytest.mark.parametrize("declared", [None, dp.Domain((AGE,))])
@pytest.mark.parametrize("k", [0, 2])
def test_counts_texts_of_records_whose_number_is_missing_or_unreadable(declared, k):
    """A release counts such a number as null, or in the middle bin."""
    incomes = [5, None, "unknown", 1e9, math.nan]
    table = {"city": list("abcde"), "income": pa.array(list(map(str, incomes)))}
    table |= {"age": [1] * 5, "person": [1, 2, 3, 4, 5]}
    found = counted(columns(CITY, leaves=(LEAVES,), declared=declared), pa.table(table), k)
    assert in_units(found) == dict.fromkeys("abcde", 1)
    assert found.leaves["income"].tolist() == [GRID, 0, GRID]


def test_equal_texts_of_two_columns_are_counted_apart():
    first, second = (dp.CategoricalAttribute(name, ("x",), other=True) for name in "ab")
    table = pa.table({"a": ["1:y", "y", "y"], "b": ["y", "1:y", "z"]})
    for k in (0, 3):
        grown = table.append_column("person", pa.array([1, 2, 3]))
        found = counted(columns(first, second), grown, k)
        assert in_units(found, "a") == {"1:y": 1, "y": 2}
        assert in_units(found, "b") == {"y": 1, "1:y": 1, "z": 1}


def test_leaves_out_records_outside_the_declared_columns():
    table = pa.table(
        {
            "age": [5, 500, None, 7],
            "city": ["Bern", "Ulm", "Ulm", "Bonn"],
            "town": ["a", "b", "b", "c"],
            "income": [1.0, 2.0, 3.0, 25.0],
            "person": ["p", "q", "q", None],
        }
    )
    found = counted(OPEN, table)
    assert in_units(found) == {"Bern": 1, "Bonn": 1}
    assert (found.leaves["income"] / GRID).tolist() == [1, 0, 1]
    found = counted(OPEN, table, k=2)  # one record has no unit
    assert in_units(found) == {"Bern": 1} and in_units(found, "town") == {"a": 1}
    assert (found.leaves["income"] / GRID).tolist() == [1, 0, 0]


def test_a_text_counts_once_per_unit_with_the_weight_of_its_number_of_texts():
    table = pa.table(
        {
            "person": ["p"] * 5 + ["q"] * 2 + ["r"],
            "city": ["Bern", "Bern", "Ulm", "Bonn", "Paris", "Bern", "Bern", "Ulm"],
        }
    )
    three = math.isqrt(GRID**2 // 3)  # three different texts; included ones have no weight
    expected = {b"Bern": three + GRID, b"Ulm": three + GRID, b"Bonn": three}
    assert texts_of(counted(columns(CITY), table, k=5)) == expected


def test_writings_of_a_text_count_once_per_unit():
    table = pa.table({"person": [1, 1, 1], "town": ["Bern", " bern", "BERN"]})
    assert in_units(counted(columns(LOOSE), table, k=3), "town") == {"bern": 1}


def test_records_of_a_unit_share_its_weight_over_leaves():
    table = pa.table({"person": [1, 1, 1, 2], "income": [5.0, 6.0, 15.0, 25.0]})
    found = counted(columns(leaves=(LEAVES,)), table, k=3)
    assert found.leaves["income"].tolist() == [2 * (GRID // 3), GRID // 3, GRID]


def random_table(seed: int, people: int = 300, cities: int = 40) -> pa.Table:
    generator = np.random.default_rng(seed)
    size = people * 4
    return pa.table(
        {
            "age": generator.integers(0, 110, size),
            "city": [f"city {n} of a long name" for n in generator.zipf(1.3, size) % cities],
            "town": [
                f"{'T' if n % 2 else 't'}own {n // 2}" for n in generator.integers(0, 9, size)
            ],
            "income": generator.exponential(12.0, size),
            "person": generator.integers(0, people, size),
        }
    )


def changes(one: ValueCounts, other: ValueCounts, name: str) -> list[int]:
    before, after = texts_of(other, name), texts_of(one, name)
    moved = [after.get(text, 0) - before.get(text, 0) for text in before.keys() | after.keys()]
    return [change for change in moved if change]


@pytest.mark.parametrize("k", [1, 3, 10])
def test_a_unit_with_many_values_moves_the_sums_by_at_most_its_bound(k):
    table = random_table(k)
    size = 5_000
    unit = pa.table(
        {
            "age": np.full(size, 30),
            "city": [f"city {n} of a long name" for n in range(size)],
            "town": [f"town {n % 50}" for n in range(size)],
            "income": np.linspace(0, 40, size),
            "person": np.full(size, 10**6),
        }
    )
    without, found = counted(OPEN, table, k), counted(OPEN, pa.concat_tables([table, unit]), k)
    for name in ("city", "town"):
        moved = changes(found, without, name)
        assert len(moved) == k and set(moved) == {math.isqrt(GRID**2 // k)}
        assert sum(change**2 for change in moved) <= GRID**2
    leaves = found.leaves["income"] - without.leaves["income"]
    assert leaves.min() >= 0 and GRID - k < leaves.sum() <= GRID


def test_counts_do_not_depend_on_order_batches_or_the_rows_of_a_step(monkeypatch):
    table = random_table(7)
    mixed = table.take(pa.array(np.random.default_rng(8).permutation(len(table))))
    parts = [mixed.slice(at, 37).combine_chunks().to_batches() for at in range(0, 1200, 37)]
    for k in (0, 2):
        guarantee = promise("person", k) if k else promise()
        whole = counted(OPEN, table, k)
        found = [counted_values(OPEN, guarantee, [batch for part in parts for batch in part])]
        with monkeypatch.context() as patch:
            patch.setattr(open_values, "_ROWS", 37)
            found.append(counted(OPEN, table, k))
        for each in found:
            for name in ("city", "town"):
                assert texts_of(each, name) == texts_of(whole, name)
            assert np.array_equal(each.leaves["income"], whole.leaves["income"])


def test_counts_of_records_are_those_of_a_plain_count():
    table = random_table(9)
    inside = [row for row in table.to_pylist() if 0 <= row["age"] <= 99]
    found = counted(OPEN, table)
    assert in_units(found) == collections.Counter(row["city"] for row in inside)
    assert in_units(found, "town") == collections.Counter(row["town"].lower() for row in inside)
    bins = np.histogram([min(row["income"], 29.0) for row in inside], LEAVES.edges)[0]
    assert (found.leaves["income"] / GRID).tolist() == bins.tolist()


@pytest.mark.parametrize("k", [0, 2])
def test_empty_table_has_no_texts_and_empty_leaves(k):
    found = counted(OPEN, random_table(1).slice(0, 0), k)
    assert texts_of(found) == {} and found.leaves["income"].tolist() == [0, 0, 0]


def test_secret_sums_are_not_shown():
    assert "Bern" not in repr(counted(columns(CITY), pa.table({"city": ["Bern"]})))
