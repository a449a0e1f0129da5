"""The made tables of raw look have the columns, the typos and the tails that they promise."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from benchmarks import raw_tables

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["people", "payments", "visits"])
def test_same_arguments_give_the_same_table(name):
    table = raw_tables.raw_table(name, 200)
    assert table.equals(raw_tables.raw_table(name, 200))
    assert not table.equals(raw_tables.raw_table(name, 200, seed=1))
    declared = [each["name"] for each in raw_tables.DOMAINS[name]["attributes"]]
    assert table.column_names == declared


def test_values_lie_in_the_public_ranges_of_the_domain_files():
    for name, domain in raw_tables.DOMAINS.items():
        table = raw_tables.raw_table(name, 2000)
        for each in domain["attributes"]:
            discover = each.get("discover", {})
            if "min" in discover:
                values = table[each["name"]].to_numpy()
                assert discover["min"] <= values.min() and values.max() <= discover["max"]


def test_texts_are_misspelt_and_incomes_have_a_long_tail():
    table = raw_tables.raw_table("people", 10_000, num_cities=500)
    cities = np.array(table["city"].to_pylist())
    normal = np.char.capitalize(np.char.strip(cities))
    assert 0.01 < np.mean(np.char.isupper(cities)) + np.mean(cities != np.char.strip(cities)) < 0.04
    _, counts = np.unique(normal, return_counts=True)
    assert 0.1 < counts.max() / 10_000 < 0.2  # Zipf: 1 / (sum of 1/i for i to 500) is 0.147
    assert (counts == 1).sum() > 50
    incomes = table["income"].to_numpy()
    assert incomes.max() > 10 * np.quantile(incomes, 0.9)


def test_a_person_has_several_rows():
    table = raw_tables.raw_table("visits", 3000, records_per_person=3)
    _, counts = np.unique(table["person"].to_numpy(), return_counts=True)
    assert counts.sum() == 3000
    assert 2.5 < counts.mean() < 3.5
    assert counts.max() > 8


@pytest.mark.job
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_command_writes_a_table(tmp_path, suffix):
    path = tmp_path / f"payments.{suffix}"
    command = [sys.executable, str(ROOT / "benchmarks" / "raw_tables.py"), "payments", "100"]
    subprocess.run([*command, str(path)], check=True)
    read = pyarrow.csv.read_csv if suffix == "csv" else pyarrow.parquet.read_table
    table = raw_tables.raw_table("payments", 100)
    assert read(path).to_pylist() == table.to_pylist()


@pytest.mark.part
def test_found_bins_are_measured_next_to_other_bins():
    import discovery

    for method in discovery.METHODS:
        for name, (_, columns) in discovery.COLUMNS.items():
            found = discovery.measure(name, 2000, 0, method)
            assert tuple(found) == columns
            for errors in found.values():
                assert set(errors) == {*discovery.ERRORS, "bins"} and errors["bins"] >= 1
                assert all(0 <= each < 10_000 for each in errors.values())
