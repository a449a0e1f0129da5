"""Edges from a finished release of interval counts."""

from __future__ import annotations

import itertools
import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest
from noise_sources import Seeded
from numpy.typing import NDArray

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.attributes import Attribute
from beam_dp.mechanisms.intervals.plan import plan_intervals, release_intervals
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.schemas.edges import binned_attribute

PAID = {"ledger_release": "visits/1"}
STRATEGIES = ("histogram", "textbook_tree", "tree", "windows", "sine")


def released(
    counts: NDArray[np.int64] | list[int],
    attribute: Attribute | None = None,
    epsilon: float = 1.0,
    strategy: str = "tree",
    seed: int = 0,
    parameters: Any = PAID,
) -> IntervalRelease:
    array = np.asarray(counts, np.int64)
    attribute = attribute or dp.IntegerAttribute("age", 0, len(array) - 1)
    delta = 1e-9 if strategy == "sine" else 0.0
    guarantee = dp.Guarantee(epsilon, delta, "add_or_remove_one", "record", 1)
    plan = plan_intervals(len(array), guarantee, strategy)
    return release_intervals(plan, array, Seeded(seed), attribute, parameters)


def cuts(attribute: Any) -> NDArray[np.int64]:
    """Where the bins of an integer column start, and one above its largest integer."""
    first, last = attribute.whole_ends
    return np.append(first, last[-1] + 1)


def ages() -> NDArray[np.int64]:
    """Counts of 100 ages of 20,000 people; a tenth of them is of one age."""
    counts = np.round(18_000 * np.exp(-(((np.arange(100) - 35) / 20) ** 2)) / 34).astype(np.int64)
    counts[65] += 2000
    return counts


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bins_have_about_equal_masses(strategy):
    counts = ages()
    attribute = binned_attribute(released(counts, strategy=strategy, epsilon=5.0), 8)
    edges = cuts(attribute)
    masses = np.add.reduceat(counts, edges[:-1])
    assert (edges[0], edges[-1], len(masses)) == (0, 100, 8)
    assert masses.max() < 1.4 * counts.sum() / 8 and masses.min() > 0.6 * counts.sum() / 8


def test_level_with_more_records_than_a_bins_share_has_its_own_bin():
    counts = np.full(64, 100, np.int64)
    counts[20] = 50_000
    edges = binned_attribute(released(counts, epsilon=5.0), 6).edges
    assert {20.0, 21.0} <= {*edges} and len(edges) == 7
    top = np.full(64, 100, np.int64)
    top[63] = 50_000
    assert binned_attribute(released(top, epsilon=5.0), 4).edges[-2:] == (63.0, 63.5)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("strategy", ["textbook_tree", "tree"])
def test_no_bin_consists_of_noise_only(strategy, seed):
    counts = np.zeros(128, np.int64)
    counts[[10, 11, 70]] = [400, 600, 800]
    release = released(counts, strategy=strategy, epsilon=0.5, seed=seed)
    try:
        edges = cuts(binned_attribute(release, 40))
    except dp.InputError as error:
        assert "above its noise" in str(error)
        return
    assert (edges[0], edges[-1]) == (0, 128) and (np.diff(edges) > 0).all()
    for start, stop in itertools.pairwise(edges):
        found = release.answer(start, stop - 1)
        # The last one also holds what was left over at the end.
        assert stop == 128 or found.values >= 2 * found.standard_errors
    assert len(edges) <= 12


def test_release_of_only_noise_gives_no_edges():
    refusals = 0
    for seed in range(20):
        try:
            found = binned_attribute(released([0] * 64, epsilon=0.1, seed=seed), 10)
            assert len(found.edges) <= 4
        except dp.InputError as error:
            refusals += "must have counts above its noise" in str(error)
    assert refusals >= 10


ATTRIBUTES = [
    dp.NumericAttribute("x", tuple(np.linspace(0, 1, 17)), clip=True, other=True),
    dp.DateAttribute("x", tuple(f"20{year:02}-01-01" for year in range(17)), nullable=True),
    dp.DatetimeAttribute("x", tuple(f"20{year:02}-01-01T00:00Z" for year in range(17))),
]


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_edges_of_bins_are_edges_of_the_release(attribute):
    found = binned_attribute(released([1000] * 16, attribute), 4)
    assert type(found) is type(attribute) and {*found.edges} < {*attribute.edges}
    assert found.edges == attribute.edges[::4]
    kept = ("clip", "other", "nullable")
    assert [getattr(found, key) for key in kept] == [getattr(attribute, key) for key in kept]
    again = dp.parse_domain({"attributes": [found.to_json()]})["x"]
    assert again == found and again.edges_from == found.edges_from is not None


@pytest.mark.parametrize("counts", [[1000] * 16, [10] * 15 + [9000]])
def test_binned_integer_column_keeps_its_range(counts):
    found = binned_attribute(released(counts), 4)
    assert isinstance(found, dp.NumericAttribute) and found.whole
    ends = found.whole_ends
    assert ends is not None and (ends[0][0], ends[1][-1]) == (0, 15)
    # What is above the largest integer is outside, as before.
    assert found.edges[-1] < 16


@pytest.mark.parametrize(
    ("bins", "parameters", "condition"),
    [
        *((bins, PAID, "must be an integer from 2 to 16") for bins in (1, 0, 17, 2.0, True)),
        (4, {}, "must be paid for by a ledger"),
    ],
)
def test_refuses_bins_out_of_range_and_releases_without_ledger(bins, parameters, condition):
    with pytest.raises(dp.InputError, match=condition):
        binned_attribute(released([1000] * 16, parameters=parameters), bins)


def refused(capfd: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["init", *argv]) == 2
    out, err = capfd.readouterr()
    assert out == "" and re.fullmatch(r"error: [^\n]+\n", err), err
    return err


def test_init_puts_released_edges_into_draft(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    release = released(ages())
    dp.write_release(release, "ages")
    schema = [{"name": "sex", "type": "STRING"}, {"name": "age", "type": "INT64"}]
    pathlib.Path("s.json").write_text(json.dumps(schema), encoding="utf-8")
    given = ["s.json", "--output", "d.json", "--edges_from", "ages", "--bins", "6"]
    assert main(["init", *given]) == 0
    out = capfd.readouterr().out
    assert "d.json: 2 attributes, 0 open points" in out
    sex, age = json.loads(pathlib.Path("d.json").read_text("utf-8"))["attributes"]
    assert sex["discover"] == {"max_values": 100}
    assert age["edges_from"] == {"ledger_release": "visits/1", "draw_id": release.draw_id}
    assert (age["type"], len(age["edges"]), age["nullable"]) == ("numeric", 7, True)
    # What is written may be drafted on: here a second time, from the file itself.
    assert main(["init", "d.json", "--output", "e.json"]) == 0
    assert pathlib.Path("e.json").read_bytes() == pathlib.Path("d.json").read_bytes()
    capfd.readouterr()
    with pytest.raises(dp.InputError, match="must declare the levels of 'sex'"):
        dp.read_domain("d.json")
    assert "must not exist: nothing is overwritten" in refused(capfd, "s.json", "--output=d.json")


def test_refused_init_writes_nothing(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dp.write_release(released(ages()), "ages")
    pathlib.Path("s.json").write_text('{"agee": 5}', encoding="utf-8")
    edges = ("--edges_from", "ages", "--bins", "6")
    for argv, condition in [
        (("s.json",), "--output is required"),
        (("s.json", "--output=d", "--bins=6"), "--edges_from is required with --bins"),
        (("s.json", "--output=d", *edges[:2]), "--bins is required with --edges_from"),
        (("s.json", "--output=d", *edges), "--edges_from: 'age' is not valid: must be a column of"),
        (
            ("s.json", "--output=d", *edges[:3], "two"),
            "--bins: 'two' is not valid: must be a whole",
        ),
        (("s.json", "--output=d", *edges[:3], "1"), "--bins: 1 is not valid: must be an integer"),
        (("s.json", "--output=absent/d"), "--output: 'absent/d' is not valid: must be a file that"),
        (("s.json", "--output=d", "--table=t"), "--table: 't' is not valid: must be given for SQL"),
        (("s.json", "--output=d", "--from=x"), "--from: 'x' is not valid: must be 'arrow', 'avro'"),
        (
            ("s.json", "--output=d", "--edges_from=no", "--bins=6"),
            "--edges_from: 'no' is not valid",
        ),
        (("s.xyz", "--output=d"), "--from is required: must say how to read 's.xyz'"),
        (("s.json", "--output=d", "--fro=x"), "--fro=x is not a flag. Did you mean --from?"),
    ]:
        assert condition in refused(capfd, *argv), argv
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ages", "s.json"]
