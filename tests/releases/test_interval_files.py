"""Interval counts on disk: round trips, and rejected files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from damaged_files import refusal_of
from intervals import all_intervals
from noise_sources import Seeded

from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.errors import InputError
from beam_dp.interval_strategies.tables import strategy_from_tables, strategy_tables
from beam_dp.mechanisms.intervals.plan import GAUSSIAN, PURE, Choice, planned, release_intervals
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.releases.files.avro import read_blocks, write_blocks
from beam_dp.releases.intervals.files import TABLE_SCHEMA
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.kinds import read_release, release_from_bytes, release_to_bytes, write_release

ADD = Neighboring.ADD_OR_REMOVE_ONE
# More cells than blocks of windows, so that there are trees below.
MANY = 1100


def released(
    choice: Choice, num_leaves: int = 23, neighboring: Neighboring = ADD
) -> IntervalRelease:
    guarantee = Guarantee(1.0, 1e-9, neighboring, "person", 3)
    plan = planned(num_leaves, guarantee, choice)
    attribute = IntegerAttribute("age", -3, num_leaves - 4, other=True)
    counts = np.arange(num_leaves)
    return release_intervals(plan, counts, Seeded(5), attribute, {"ledger_release": "r1"})


def assert_same(one: IntervalRelease, other: IntervalRelease) -> None:
    ends = all_intervals(one.num_leaves)
    for name, value in vars(one.answer(*ends)).items():
        np.testing.assert_array_equal(value, getattr(other.answer(*ends), name))
    for field in ("attribute", "guarantee", "choice", "scale", "grid", "noise_variance",
                  "mean_squared_error", "draw_id", "plan", "versions"):  # fmt: skip
        assert getattr(one, field) == getattr(other, field)


@pytest.mark.parametrize("neighboring", Neighboring)
@pytest.mark.parametrize("choice", PURE + GAUSSIAN, ids="/".join)
def test_interval_release_round_trips_through_files(tmp_path, choice, neighboring):
    release = released(choice, neighboring=neighboring)
    write_release(release, tmp_path)
    found = read_release(tmp_path)
    assert isinstance(found, IntervalRelease)
    assert_same(release, found)
    again = release_from_bytes(release_to_bytes(release))
    assert isinstance(again, IntervalRelease)
    assert_same(release, again)


@pytest.mark.slow
def test_strategy_with_trees_below_windows_round_trips(tmp_path):
    release = released(("windows", "discrete_laplace"), MANY)
    assert len(strategy_tables(release.strategy)["sizes"]) == 2
    write_release(release, tmp_path)
    found = read_release(tmp_path)
    assert isinstance(found, IntervalRelease)
    assert_same(release, found)


def test_large_table_stored_in_pieces_round_trips():
    release = released(("histogram", "discrete_laplace"), 2**17 + 5)
    found = release_from_bytes(release_to_bytes(release))
    assert isinstance(found, IntervalRelease)
    np.testing.assert_array_equal(release.prefixes(), found.prefixes())


@pytest.mark.mostly_slow(one_in=2)
@pytest.mark.parametrize("choice", PURE + GAUSSIAN, ids="/".join)
def test_pickled_plan_is_unchanged(choice):
    guarantee = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    plan = planned(MANY if choice[0] == "windows" else 37, guarantee, choice)
    plan.strategy.errors.mean()
    data = pickle.dumps(plan)
    assert len(data) < 10**6
    found = pickle.loads(data)
    counts = np.arange(plan.num_leaves)
    np.testing.assert_array_equal(found.strategy.measure(counts), plan.strategy.measure(counts))
    assert (found.scale, found.grid, found.loss) == (plan.scale, plan.grid, plan.loss)
    assert found.mean_squared_error == plan.mean_squared_error


def test_cells_are_found_by_attribute_values():
    release = released(("histogram", "discrete_laplace"))
    assert release.cells(-3, 19) == (0, 22) and release.cells(0, 0) == (3, 3)
    for low, high in ((5, 4), (-4, 3), (0, 20), (0.5, 2), ("other", 3), (None, 3), (True, 3)):
        with pytest.raises(InputError, match=r"is not valid|is not one of"):
            release.cells(low, high)


WINDOWS: Choice = ("windows", "discrete_laplace")
SINE: Choice = ("sine", "discrete_gaussian")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda card: card.update(mechanism="trees"), "must be one that this version knows"),
        (lambda card: card.update(mechanism="sine"), "must be kernel, scales"),
        (lambda card: card.update(mechanism="textbook_tree"), "must be none"),
        (lambda card: card["attribute"].update(max=20), "sizes"),
        (lambda card: card["attribute"].update(max=2**40), "must have from 2 to"),
        (lambda card: card["attribute"].update(type="boolean"), "is boolean"),
        (lambda card: card["noise"].update(scale=-1), "scale"),
        (lambda card: card["noise"].update(scale=10**400), "scale"),
        (lambda card: card["noise"].update(variance=True), "variance"),
        (lambda card: card["noise"].update(grid=0), "grid"),
        (lambda card: card["noise"].update(distribution="uniform"), "distribution"),
        (lambda card: card["errors"].clear(), "mean_squared_error"),
        (lambda card: card["noise"].update(variance=5e-324), "that of the strategy"),
        (lambda card: card["errors"].update(mean_squared_error=1.0), "that of the strategy"),
        (lambda card: card.update(files={"a": {}}), "files"),
        (lambda card: card.update(draw_id="../" * 10), "32 hexadecimal digits"),
        (lambda card: card["guarantee"].update(epsilon=0), "epsilon"),
        (lambda card: card.update(versions={"a": 1}), "versions"),
        (lambda card: card.pop("parameters"), "parameters"),
    ],
)
def test_rejects_hostile_cards(tmp_path, change, message):
    assert message in refusal_of(released(WINDOWS), "intervals", tmp_path, change)


def tables_changed(
    choice: Choice, change: Callable[[dict[str, bytes]], Any]
) -> Callable[[bytes], bytes]:
    """Returns the file with changed blocks, which are named by their tables."""
    draw_id = released(choice).draw_id

    def changed(data: bytes) -> bytes:
        found = read_blocks(data, TABLE_SCHEMA)
        blocks = {block[1 : 1 + block[0] // 2].decode(): block for _, block in found}
        change(blocks)
        held = [(1, block) for block in blocks.values()]
        return write_blocks(TABLE_SCHEMA, draw_id, "intervals", held, deflate=True)

    return changed


def last_number(name: str, value: float) -> Callable[[dict[str, bytes]], Any]:
    def change(blocks: dict[str, bytes]) -> None:
        blocks[name] = blocks[name][:-9] + np.array(value, "<f8").tobytes() + b"\0"

    return change


@pytest.mark.parametrize(
    ("choice", "change", "message"),
    [
        (WINDOWS, last_number("estimate", np.nan), "not finite"),
        (WINDOWS, last_number("top", 0.5), "must contain integers"),
        (WINDOWS, last_number("top", -1), "must contain integers from 0"),
        (WINDOWS, last_number("top", 2**40), "must contain integers from 0"),
        (WINDOWS, last_number("sizes", 22), "must not decrease, from at most"),
        (WINDOWS, lambda blocks: blocks.pop("top"), "must be sizes, weights, top"),
        (WINDOWS, lambda blocks: blocks.pop("estimate"), "estimate"),
        (WINDOWS, lambda blocks: blocks.update(x=b"\2x" + blocks["top"][4:]), "tables"),
        (WINDOWS, lambda blocks: blocks.update(top=blocks["top"][:-1]), "is truncated"),
        (WINDOWS, lambda blocks: blocks.update(top=blocks["top"] * 2), "bytes after"),
        (SINE, last_number("scales", 0), "must contain integers from 1"),
        (SINE, last_number("kernel", 2**26), "inverse"),
    ],
)
def test_rejects_hostile_files(tmp_path, choice, change, message):
    assert message in refusal_of(
        released(choice), "intervals", tmp_path, change_data=tables_changed(choice, change)
    )


def test_rejects_matrix_that_leaves_a_cell_unmeasured():
    tables = {
        "sizes": np.array([3]),
        "weights": np.zeros((0, 3), np.int64),
        "top": np.array([[1, 1, 0]]),
    }
    with pytest.raises(InputError, match="must measure every root"):
        strategy_from_tables("windows", 3, ADD, tables)


def test_bins_are_found_by_their_edges():
    guarantee = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
    plan = planned(3, guarantee, ("histogram", "discrete_laplace"))
    pay = NumericAttribute("pay", (0, 10, 20.5, 30), nullable=True)
    release = release_intervals(plan, np.zeros(3, np.int64), Seeded(1), pay)
    assert release.cells(10, 30) == (1, 2) and release.cells(0, 30) == (0, 2)
    for low, high in ((10, 10), (0, 11), (20.5, 10)):
        with pytest.raises(InputError, match=r"is not valid|is not one of"):
            release.cells(low, high)
