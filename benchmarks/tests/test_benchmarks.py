"""The benchmarks of the pass, of errors by queries, of online answers and of sparse queries run."""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import norm

BENCHMARKS = pathlib.Path(__file__).parents[1]

pytestmark = pytest.mark.part
DEAR = pytest.mark.benchmark


@pytest.mark.parametrize(
    ("name", "flags", "told"),
    [
        ("sparse_queries", [], "1,000 membership queries of 100 elements"),
        ("sparse_queries", ["--weighted"], "1,000 weighted queries of 100 elements"),
        pytest.param("projection_pass", [], "| the kernel alone |", marks=DEAR),
        pytest.param("hashing", [], "| 8 blocks, 4,096 rows, ", marks=DEAR),
        pytest.param(
            "size",
            ["--only=releases", "--tables=windows", "--processes=1"],
            "| 168 windows, in random order, 1,024 cells, 200,000 records, 1 process |",
            marks=DEAR,
        ),
        pytest.param(
            "size",
            ["--only=counts", "--tables=five", "--processes=1,2"],
            "cells, 200,000 records: beam_dp, 2 processes |",
            marks=DEAR,
        ),
        pytest.param(
            "distributed_pass",
            ["--only=csv,bounding", "--repeats=1"],
            "| peak of memory |",
            marks=DEAR,
        ),
    ],
)
def test_quick_benchmarks_run(name, flags, told):
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick", *flags],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)},
    )
    assert told in done.stdout


def test_times_of_the_stages_add_up_to_the_time_of_a_release():
    import size

    lines = [
        (2.0, "[    0.1 s] release of 2 attributes, 6 cells, 1 marginal; runner FnApiRunner"),
        (3.0, "[    1.1 s] measure: 1 of 2"),
        (3.5, "[    1.6 s] measure: 2 of 2"),
        (4.0, "[    2.1 s] fit: about 60 to 240 s"),
        (34.0, "[   32.1 s] working: fit for 30 s, about 30 to 210 s left"),
        (90.0, "[   88.1 s] records"),
        (91.0, "warning: of something else"),
        (94.0, "[   92.1 s] released"),
    ]
    found = {name: figure.value for name, figure in size.stages(lines, 95.0).items()}
    expected = {"start": 2, "count": 1, "measure": 1, "fit": 86, "records": 4, "end": 1}
    assert found == expected
    hidden = size.stages([lines[0], lines[-1]], 95.0)
    assert {name: figure.value for name, figure in hidden.items()} == {
        "start": 2,
        "all stages": 92,
        "end": 1,
    }


def test_benchmark_of_size_runs_the_longest_table_once_and_counts_it():
    import size

    options = argparse.Namespace(
        only="releases,counts", tables="eight,ten", records="", processes="2,1", repeats=3
    )
    asked = size.jobs(options)
    kinds = [(kind, records) for kind, made, records in asked if made is size.TABLES["eight"]]
    assert kinds == [
        (kind, n) for n in (*size.RECORDS, size.MOST) for kind in ("releases", "counts")
    ]
    assert [(kind, records) for kind, _, records in asked[len(kinds) :]] == [("releases", 1304)]
    assert size.ways(size.MOST, options) == ["1 process"]
    assert size.ways(1304, options) == ["1 process", "2 processes"]
    assert re.match(
        r"9 tables to release or to count: about \d+ minutes", size.forecast(asked, options)
    )
    options.records = "7"
    assert {records for _, _, records in size.jobs(options)} == {7, 1304}


def test_generated_tables_are_repeatable_with_dependent_pairs(tmp_path, monkeypatch):
    import pass_inputs
    from pair_counts import bare_pairs

    monkeypatch.setattr(pass_inputs, "CHUNK_ROWS", 3000)
    monkeypatch.setattr(pass_inputs, "FILE_ROWS", 5000)
    sizes = {"a": 5, "b": 3, "c": 2}
    first = pass_inputs.write_latent(tmp_path, sizes, 11_000)
    assert len(list(tmp_path.iterdir())) == 3
    counts = bare_pairs(first, sizes)
    monkeypatch.setattr(pass_inputs, "MOST_FILES", 2)
    repeated = bare_pairs(pass_inputs.write_latent(tmp_path, sizes, 20_000), sizes)
    twice = bare_pairs(pass_inputs.write_latent(tmp_path, sizes, 10_000), sizes)
    assert all((repeated[pair] == 2 * each).all() for pair, each in twice.items())
    (tmp_path / "again").mkdir()
    again = bare_pairs(pass_inputs.write_latent(tmp_path / "again", sizes, 11_000), sizes)
    for pair, table in counts.items():
        assert table.tolist() == again[pair].tolist()
        assert table.sum() == 11_000 and table.min() > 0
        independent = np.outer(table.sum(axis=1), table.sum(axis=0)) / 11_000
        assert np.abs(table - independent).sum() / 22_000 > 0.05


def codes(number: int, share: float) -> list[np.ndarray]:
    """Yes/no columns in which so large a share is yes."""
    drawn = np.random.default_rng(0).random((16, number)) < share
    return list(drawn.astype(np.int64))


def test_conjunctions_agree_with_their_single_queries():
    from conjunction_sets import ConjunctionSet

    asked = ConjunctionSet.draw(4, 3, 2, 60, seed=5)
    table = np.random.default_rng(1).integers(100, size=81).astype(np.float64)
    rows = [asked.query(index).values() for index in asked.indices.tolist()]
    assert len({row.tobytes() for row in rows}) == 60
    assert asked.sums(table).tolist() == [row @ table for row in rows]
    assert asked.asked_of_cells().tolist() == sum(rows).tolist()
    assert all(asked.axes[0] <= axes for axes in asked.axes)


@DEAR
def test_measures_and_plots_every_mechanism_of_the_error_benchmark():
    import error_by_queries

    from benchmarks import error_pictures

    # Far from uniform, and many: SmallDB's search takes long where all cells answer alike.
    table = codes(20_000, 0.15)
    found = list(error_by_queries.rows(table, {"conjunctions": 10, "subsets": 10}, runs=1))
    assert {row.what for row in found} == {
        f"{panel}, {mechanism}"
        for panel, made in error_by_queries.PANELS.items()
        for mechanism in made.mechanisms
    }
    # With 10 queries no noise is as large as the data.
    assert 0 < max(row.figures["largest error"].value for row in found) < 1
    assert "| Laplace, pure |" in error_pictures.table(found, "subsets", "largest error")
    assert "Laplace, pure: 10: " in error_pictures.picture(found)


def test_plots_errors_of_sums_of_windows():
    from benchmarks import window_pictures

    found = dict(
        zip(window_pictures.LENGTHS, window_pictures.errors(7, "independent"), strict=True)
    )
    assert (found[1], found[24]) == (pytest.approx(9.89, 1e-3), pytest.approx(48.5, 1e-3))
    days = dict(zip(window_pictures.LENGTHS, window_pictures.errors(7, "levels"), strict=True))
    assert days[1] > found[1] and days[168] < found[168]
    assert "c = 7: 1: 9.9, " in window_pictures.picture()


@DEAR
def test_compares_online_mechanisms():
    import online_comparison

    settings = [(2000, (0.2, 0.001))]
    found = list(online_comparison.rows(codes(2000, 0.5), settings, runs=1, length=50))
    assert [row["stream"] for row in found] == 2 * list(online_comparison.STREAMS)
    easy, hard = found[0], found[-1]
    # Uniform data: the first hypothesis is right.
    assert easy["private_mw"]["answered"] == [50, 0] and easy["warm"]["within"] == [1, 0]
    assert hard["private_mw"] is None and hard["warm"] is None
    assert "| 2,000 | 0.2 | random | 50 | 50 | 50 | 50 (" in online_comparison.markdown(found)


def test_fresh_noise_answers_up_to_the_target_error():
    import online_comparison

    # One answer has the deviation 5.49527 at epsilon 1 and delta 1e-9.
    quantile = 5.49527 * norm.isf(0.05 / 2)
    assert online_comparison.fresh_capacity(quantile * 0.999) == 0
    assert online_comparison.fresh_capacity(quantile * 1.001) == 1
    assert online_comparison.fresh_capacity(1000.0) == pytest.approx(1827, rel=0.1)


def test_mean_squared_error_over_all_supports_matches_enumeration():
    import sparse_measure

    errors = np.array([1.0, -2.0, 4.0, 0.5])
    for m in (1, 2, 3, 4):
        squared = [sum(chosen) ** 2 for chosen in itertools.combinations(errors.tolist(), m)]
        assert sparse_measure.over_supports(errors, 0.0, m) == pytest.approx(np.mean(squared))
    assert sparse_measure.over_supports(errors, 0.0, 9) == pytest.approx(3.5**2)


def test_errors_at_other_elements_do_not_change_a_mean():
    import sparse_measure

    from beam_dp.mechanisms.sketches.mechanisms import CountSketch

    generator = np.random.default_rng(0)
    counts = np.append(np.ones(2000, np.int64), 300)
    more, squares = [], []
    for _ in range(40):
        # So narrow that several keys of each release share two rows with the heavy one; and cells
        # of unequal numbers of buckets.
        drawn = sparse_measure.drawn_release(CountSketch(3 * 30, 3), counts, generator)
        more.append(sparse_measure.of_other_places(*drawn))
        squares.append(float((sparse_measure.keyed_errors(*drawn) ** 2).sum()))
    assert abs(np.mean(more)) < 5 * np.std(more) / 40**0.5
    assert np.std(np.add(squares, more)) < 0.7 * np.std(squares)


@DEAR
def test_compares_choice_of_a_sparse_release_with_the_best():
    import sparse_grid
    from sparse_measure import equal

    rows = sparse_grid.compared(equal(100, 10**5), 2**12, seed=0, releases=(10, 10))
    assert [row.sparsity for row in rows] == [1, 256, 1000]
    assert [row.choice.mechanism.name for row in rows] == 3 * ["stability_histogram"]
    # Laplace noise of scale 1, and nothing below the threshold.
    assert rows[0].error == pytest.approx(1.357, rel=0.05)
    assert 1 <= rows[1].ratio < 1.3


def test_compares_cost_limits_with_record_limits(monkeypatch, capsys):
    import accuracy_tables
    import unit_costs

    from beam_dp.domain.ordered import IntegerAttribute
    from beam_dp.domain.universe import Domain

    domain = Domain(tuple(IntegerAttribute(name, 0, 1) for name in "abcd"))
    columns = [*np.random.default_rng(3).integers(0, 2, (4, 3000))]
    monkeypatch.setattr(accuracy_tables, "load", lambda name: (domain, columns))

    monkeypatch.setattr(sys, "argv", ["unit_costs.py", "nltcs", "--limits", "3", "--runs", "2"])
    unit_costs.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[-2:]] == ["| 3 records", "| cost 3"]
    by_number, by_cost = (int(line.split(" | ")[1].replace(",", "")) for line in lines[-2:])
    assert by_number < by_cost
