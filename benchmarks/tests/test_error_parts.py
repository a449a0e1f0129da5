"""The parts of an error: closed forms against draws, and parts that add up."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest
from tiny import on_trees

from beam_dp.queries.workload import marginals

BENCHMARKS = pathlib.Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def made(sizes: tuple[int, ...], ways: int, epsilon: float = 1.0):
    import accuracy_tables
    from error_parts import Task

    domain, codes = accuracy_tables.MadeTable(20_261_127, 3000, sizes).draw()
    return Task.of(domain, codes, marginals(domain, ways=ways), epsilon)


@pytest.mark.parametrize("sizes", [(2, 3, 4, 2), (2, 66, 3)])
def test_expected_error_of_unbiased_tables_is_the_mean_of_draws(sizes):
    """With an attribute above 64 codes as well, whose basis has more vectors than dimensions."""
    from error_parts import Residuals

    residuals, generator = Residuals(made(sizes, 2)), np.random.default_rng(1)
    drawn = np.array([residuals.draw(generator) for _ in range(200)])
    errors = drawn[:, 0].std() / np.sqrt(len(drawn))
    assert abs(drawn[:, 0].mean() - residuals.expected()) < 5 * errors
    assert drawn[:, 2].mean() < drawn[:, 0].mean()  # shrunken tables are closer


def test_parts_add_up_and_structure_has_less_error_than_noise():
    from error_parts import measure

    with on_trees(60):
        task = made((3, 4, 2, 3, 2), 2, epsilon=3.0)
        row = measure("made", task, 1, np.random.default_rng(2))
    found = {name: figure.value for name, figure in row.figures.items()}
    parts = ("structure", "noise", "paid selection", "rounding")
    total = sum(found[f"part: {name}"] for name in parts)
    assert total == pytest.approx(found["records, total variation"])
    assert found["structure, total variation"] < found["distribution, total variation"]
    assert 0 <= found["part: not measured"] < found["records, total variation"]


def test_sample_of_equal_error_has_that_error():
    from error_parts import equal_share, sampled

    task = made((3, 4, 2), 2)
    order = np.random.default_rng(3).permutation(task.num_records)
    error = sampled(task, order, 0.2)[0]
    # Errors of larger samples of one order fall, but not at every record.
    assert 0.1 < equal_share(task, order, error) < 0.4
    assert sampled(task, order, 1.0) == [0.0, 0.0]


def test_all_of_a_table_that_is_measured_at_once_has_no_paid_selection():
    from error_parts import measure

    row = measure("made", made((2, 3, 2), 3), 1, np.random.default_rng(4))
    assert row.figures["part: paid selection"].value == row.figures["part: not measured"].value == 0
    assert "free selection, total variation" not in row.figures


def test_weights_of_a_flag_multiply_the_marginals_with_the_attribute():
    from accuracy import errors, weighted

    task = made((2, 3, 2), 2)
    name = task.domain.names[1]
    workload = weighted(task.domain, 2, f"{name}:10")
    assert workload.weights == tuple(10.0 if name in names else 1.0 for names in workload)
    uniform = ((np.full(task.exact.marginal(n).shape, 1 / task.exact.marginal(n).size),) for n in
               workload)  # fmt: skip
    plain, largest, heavy = errors(uniform, workload, task.exact)
    assert plain != heavy and 0 < heavy < 1 and largest < 1


@pytest.mark.parametrize(
    ("flag", "told"),
    [("c00:x", "could not convert"), ("nothing:2", "known are"), ("c00:-1", "-1.0")],
)
def test_refuses_weights_of_no_attribute_and_no_number(flag, told, monkeypatch, capsys):
    import accuracy

    monkeypatch.setattr(sys, "argv", ["accuracy.py", "people1", "--ways=2", f"--weights={flag}"])
    with pytest.raises(SystemExit, match="2"):
        accuracy.main()
    last = capsys.readouterr().err
    assert f"--weights: {flag!r} is refused" in last and told in last


def test_absent_table_is_skipped_with_the_file_to_add(monkeypatch, tmp_path):
    import accuracy_tables

    monkeypatch.setenv("BEAM_DP_DATA", str(tmp_path))
    assert accuracy_tables.lacking("wide") == ""
    assert "nist/national2019.csv must be" in accuracy_tables.lacking("nist")
    with pytest.raises(SystemExit, match=r"nist: nist/national2019\.csv"):
        accuracy_tables.load("nist")
    monkeypatch.delenv("BEAM_DP_DATA")
    assert "nltcs.csv and nltcs-domain.json" in accuracy_tables.lacking("nltcs")
