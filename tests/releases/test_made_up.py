"""Columns that are made up for test systems: ids, units and constants."""

import collections

import numpy as np
import pyarrow.parquet
import pytest
from kinds_of_releases import after

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.releases.domain.earlier import UnitCounts
from beam_dp.releases.synthetic_database.made_up import AT_RANDOM, MadeUp, read_constants

PROMISE = dp.Guarantee(6.0, 1e-9, "add_or_remove_one", "person", 8)


def units_of(release, number, seed=0):
    table = release.sample(number, seed=seed)
    return MadeUp(unit_id="unit").added_to(table, release, seed)["unit"].to_numpy()


@pytest.mark.parametrize("pattern", ["P{:06d}", "{:d}", "a{:02d}-z"])
def test_ids_differ_and_are_ascending_or_random(pattern):
    release = after(PROMISE)
    table = release.sample(300)
    found = {}
    for is_random in (False, True):
        made = MadeUp(row_id=("id", pattern), constants={"country": "DE"}, is_random=is_random)
        rows = made.added_to(table, release)
        assert rows.column_names == ["id", *table.column_names, "country"]
        assert rows.select(table.column_names).equals(table)
        assert set(rows["country"].to_pylist()) == {"DE"}
        found[is_random] = rows["id"].to_pylist()
        assert made.added_to(table, release).equals(rows)
    assert made.added_to(table, release, 1)["id"].to_pylist() != found[True]
    assert found[False] == [pattern.format(each) for each in range(1, 301)]
    assert len(set(found[True])) == 300 and sorted(found[True]) != found[True]
    if pattern == "P{:06d}":
        numbers = np.array([int(text[1:]) for text in found[True]])
        assert {len(text) for text in found[True]} == {7}
        # One in each of 300 ranges of equal length.
        assert (np.sort((numbers - 1) * 300 // 999_999) == np.arange(300)).mean() > 0.9


def test_units_have_one_row_where_no_release_has_numbers_of_records():
    assert (units_of(after(PROMISE), 50) == np.arange(1, 51)).all()
    unwritten = after(PROMISE, choice=True)
    object.__setattr__(unwritten, "directory", None)
    assert (units_of(unwritten, 50) == np.arange(1, 51)).all()


@pytest.mark.parametrize("domain", [False, True])
def test_units_have_as_many_rows_as_the_released_numbers_say(domain):
    release = after(PROMISE, choice=True, domain=domain)
    folder = f"{release.directory}/{'domain/' if domain else ''}records_per_unit"
    counts = dp.read_release(folder, kind=UnitCounts)
    most = release.limited_guarantee.max_records_per_unit
    levels = np.arange(counts.num_leaves)
    weights = np.maximum(counts.estimate.answer(levels, levels), 0)
    starts = np.floor(counts.attribute.edges).astype(int)
    law = np.zeros(most + 1)
    for first, stop, weight in zip(starts[:-1], [*starts[1:-1], 9], weights, strict=True):
        for size in range(first, stop):
            law[min(size, most)] += weight / weights.sum() / (stop - first)
    units = units_of(release, 40_000)
    assert most > 1 and (np.diff(units) >= 0).all()
    sizes = np.bincount(list(collections.Counter(units.tolist()).values())[:-1], minlength=most + 1)
    assert len(sizes) == most + 1
    shares = sizes / sizes.sum()
    # Six standard errors: the words follow from the draw's id, so this never fails by chance.
    assert (np.abs(shares - law) < 6 * np.sqrt(law / sizes.sum()) + 1e-9).all()
    assert (units_of(release, 400, seed=1) != units[:400]).any()


def test_command_writes_the_columns_and_what_they_do_not_say(tmp_path, capsys):
    place, output = tmp_path / "release", tmp_path / "rows.parquet"
    dp.write_release(after(PROMISE), place)
    made = ("--row_id", "id=P{:03d}", "--unit_id", "person", "--constants", "a1=x,b1=")
    assert main(["sample", str(place), "--rows", "7", "--output", str(output), *made]) == 0
    assert f"; made up: id, person, a1, b1; {AT_RANDOM}" in capsys.readouterr().out
    table = pyarrow.parquet.read_table(output)
    assert table.column_names == ["id", "person", "a", "b", "c", "a1", "b1"]
    assert table["id"].to_pylist()[:2] == ["P001", "P002"]
    assert AT_RANDOM.encode() in table.schema.metadata[b"beam_dp.rows"]
    assert read_constants("a1=x,b1=") == {"a1": "x", "b1": ""}
