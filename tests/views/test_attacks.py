"""Attacks with the records: distances and intervals by hand, the verdict, and the command."""

import os
import pathlib
import stat
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from pages import Parsed
from seeded_releases import seeded_releases  # noqa: F401

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.views import attacks
from beam_dp.views.attacks import Attack, Attacks
from beam_dp.views.cells import Truth

DOMAIN = dp.Domain(
    (
        dp.IntegerAttribute("age", 0, 4, other=True, nullable=True),
        dp.CategoricalAttribute("city", ("a", "b", "c")),
        dp.NumericAttribute("pay", (0.0, 1.0, 2.0, 3.0)),
    )
)
COLUMNS = [f"c{place}" for place in range(6)]
PEOPLE = dp.Domain(tuple(dp.IntegerAttribute(name, 0, 9) for name in COLUMNS))


def truth(records: np.ndarray, domain: dp.Domain = PEOPLE) -> Truth:
    return Truth(domain, list(records.T), 0)


def people(seed: int, number: int) -> np.ndarray:
    """Records of one population: columns that follow a hidden class."""
    draws = np.random.default_rng(seed)
    classes, noise = draws.integers(0, 5, (number, 1)), draws.integers(0, 5, (number, 6))
    return (2 * classes + noise) % 10


def attacked(copy: np.ndarray, others: np.ndarray | None = None, **more: Any) -> Attacks:
    """Attacks on a release of some records."""
    records, counts = np.unique(copy, axis=0, return_counts=True)
    release: Any = SimpleNamespace(domain=PEOPLE, codes=list(records.T), counts=counts)
    members = more.get("members", people(1, 3000))
    known = None if others is None else truth(others)
    return attacks.attack(release, truth(members), known, more.get("limit", 10.0))


def test_distance_is_a_share_of_the_range_and_whole_without_an_order():
    age, city, _ = DOMAIN
    assert attacks._distances(age, 1).tolist() == [250, 0, 250, 500, 750, 1000, 1000]
    assert attacks._distances(age, 5).tolist() == [1000] * 5 + [0, 1000]
    assert attacks._distances(city, 2).tolist() == [1000, 1000, 0]


def test_nearest_records_are_those_of_all_distances():
    """Compares every target with every record, and every attribute left out."""
    draws = np.random.default_rng(3)
    records, targets = (
        np.stack([draws.integers(0, attribute.size, n) for attribute in DOMAIN], axis=1)
        for n in (7, 60)
    )
    counts = draws.integers(1, 4, len(records))
    near, guesses = attacks._nearest(DOMAIN, records, counts, targets)
    for target, distance, guess in zip(targets, near, guesses, strict=True):
        apart = np.stack(
            [attacks._distances(a, c)[r] for a, c, r in zip(DOMAIN, target, records.T, strict=True)]
        )
        assert distance == apart.sum(axis=0).min()
        for axis, code in enumerate(guess):
            rest = apart.sum(axis=0) - apart[axis]
            votes = np.bincount(records[:, axis], counts * (rest == rest.min()))
            assert votes[code] == votes.max()


def test_interval_is_that_of_newcombe():
    """Newcombe (1998), table II: 56 of 70 and 48 of 80."""
    hits, control = np.arange(70) < 56, np.arange(80) < 48
    found = attacks._compared("a", hits, control)
    assert (found.low, found.high) == pytest.approx((5.24, 33.39), abs=0.005)
    paired = attacks._compared("a", hits, control, is_paired=True)
    assert paired.low < found.low and paired.high > found.high


@pytest.mark.parametrize(
    ("release", "copy", "verdict"),
    [
        ((1.0, 3.0), (50.0, 60.0), "passes"),
        ((1.0, 7.0), (50.0, 60.0), "does not pass"),
        ((-9.0, 11.0), (50.0, 60.0), "too few records"),
        ((6.0, 30.0), (1.0, 60.0), "does not pass"),
        ((1.0, 3.0), (4.0, 60.0), "no power"),
    ],
)
def test_verdict_follows_from_the_intervals(release, copy, verdict):
    of_release, of_copy = (Attack("a", sum(ends) / 2, 0.0, *ends) for ends in (release, copy))
    assert Attacks([of_release], [of_copy], 5.0, 9, 9).verdict == verdict


def test_catches_a_copy_and_passes_what_knows_only_the_population():
    members, others, same = people(1, 3000), people(2, 3000), people(3, 3000)
    caught = attacked(members, others)
    assert caught.verdict == "does not pass" and caught.of_release == caught.of_copy
    assert all(each.low > 10 for each in caught.of_release)
    passed = attacked(same, others)
    assert passed.verdict == "passes" and passed == attacked(same, others)
    # A tenth of the members, which only guesses of membership tell.
    part = attacked(np.concatenate([members[:900], same]), others)
    assert part.of_release[0].name == "membership" and part.of_release[0].low > 10
    assert attacked(same, members).verdict == "no power"
    few = attacked(same[:99], others[:99], members=members[:99], limit=5.0)
    assert few.verdict == "too few records"


def test_without_others_only_inference_is_tried():
    found = attacked(people(3, 3000))
    assert [each.name for each in found.of_release] == [f"inference of {c}" for c in COLUMNS]
    assert "membership was not tried" in attacks.attacks_markup(found)


@pytest.mark.usefixtures("seeded_releases")
def test_command_is_a_gate_whose_result_is_private(tmp_path, capfd, monkeypatch):
    """Members have two records each, of which one is attacked."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("members", 1), ("others", 2)):
        columns = dict(zip(COLUMNS, people(seed, 1000).T, strict=True))
        table = pa.table({**columns, "person": np.arange(1000) // 2})
        pyarrow.csv.write_csv(table, f"{name}.csv")
        if name == "members":
            guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 2)
            dp.release(table, PEOPLE, dp.marginals(PEOPLE, ways=1), guarantee, output="out")
    files = {path: path.read_bytes() for path in pathlib.Path("out").iterdir()}
    gate = ["attack", "out", "--against", "members.csv"]
    control = ["--control", "others.csv"]
    assert main([*gate, *control, "--fail_above", "20"]) == 0
    page = pathlib.Path("out.attack.html")
    assert stat.S_IMODE(os.stat(page).st_mode) == 0o600
    shown = Parsed(page.read_text("utf-8"))
    assert shown.faults == [] and shown.texts["title"] == ["PRIVATE: Attacks"]
    first = shown.texts["p"][0]
    assert first.startswith("PRIVATE: ") and "The guarantee does not cover" in first
    assert {"500 members", "500 others"} <= {*shown.texts["th"]}
    assert main([*gate, *control, "--fail_above", "0", "--output", "strict.html"]) in (3, 4)
    assert main([*gate, "--control", "members.csv", "--output", "same.html"]) == 4
    assert "no power" in capfd.readouterr().out
    assert {path: path.read_bytes() for path in pathlib.Path("out").iterdir()} == files
    report = ["report", "out", "--against", "members.csv", *control, "--output", "report.html"]
    assert main(report) == 0
    assert "Attacks" in Parsed(pathlib.Path("report.html").read_text("utf-8")).texts["h2"]
