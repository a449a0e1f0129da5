"""Counts of left-out records on a card: round trips, and rejected damage."""

import dataclasses

import numpy as np
import pytest
from damaged_files import edited_card, refusal_line
from noise_sources import NoNoise
from release_examples import DOMAIN, release_of
from test_describe import text_of
from written_draws import draw_of

from beam_dp.domain.files import domain_from_json
from beam_dp.errors import InputError
from beam_dp.mechanisms.intervals.plan import plan_intervals, release_intervals
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.kinds import (
    read_release,
    release_from_bytes,
    release_to_bytes,
    write_release,
)
from beam_dp.releases.left_out import LeftOut


def left_out_of(domain, start=-3, **fields):
    given = {
        "counts": {name: start + 1300 * number for number, name in enumerate(domain.names)},
        "impossible": 7 if domain.impossible else None,
        "scale": 20.0,
        "standard_error": 28.25,
        "bound": 74.0,
        "sum_standard_error": 40.0,
        "sum_bound": 182.5,
        "failure_probability": 0.05,
        "budget": {
            "release": {"epsilon": 0.95, "delta": 1e-9},
            "left_out": {"epsilon": 0.05, "delta": 0.0},
        },
    }
    return LeftOut(**{**given, **fields})


IMPOSSIBLE = domain_from_json({"a": 9, "b": 2}).with_impossible([{"a": [[3, 5]], "b": [1]}])


@pytest.mark.parametrize("domain", [DOMAIN, IMPOSSIBLE], ids=["all possible", "impossible"])
def test_left_out_counts_round_trip_through_a_card(tmp_path, domain):
    left_out = left_out_of(domain)
    release = release_of(domain, left_out=left_out)
    write_release(release, tmp_path)
    assert read_release(tmp_path).left_out == left_out
    assert release_from_bytes(release_to_bytes(release)).left_out == left_out
    total = sum(left_out.counts.values()) + (7 if domain.impossible else 0)
    assert "left_out" not in draw_of(release_of(domain)).card.fields
    with edited_card(tmp_path) as card:
        assert card["schema_version"] == 2
        assert card.pop("left_out")["sum"] == left_out.total == total
    assert read_release(tmp_path).left_out is None


def test_reads_the_counts_of_interval_releases():
    plan = plan_intervals(4, Guarantee(1.0, 0, "add_or_remove_one", "record", 1), "histogram")

    release = release_intervals(plan, np.zeros(4, np.int64), NoNoise())
    assert release_from_bytes(release_to_bytes(release)).left_out is None
    assert "left_out" not in draw_of(release).card.fields
    left_out = left_out_of(domain_from_json({"cell": 4}))
    counted = dataclasses.replace(release, left_out=left_out)
    assert release_from_bytes(release_to_bytes(counted)).left_out == left_out


def test_rejects_counts_of_another_domain():
    for left_out in (
        left_out_of(IMPOSSIBLE),
        left_out_of(DOMAIN, impossible=3),
        left_out_of(DOMAIN, counts=dict(reversed(left_out_of(DOMAIN).counts.items()))),
    ):
        with pytest.raises(InputError, match="left_out"):
            release_of(DOMAIN, left_out=left_out)
    with pytest.raises(InputError, match="left_out"):
        release_of(IMPOSSIBLE, left_out=left_out_of(IMPOSSIBLE, impossible=None))


@pytest.mark.parametrize(
    "change",
    [
        {"counts": None},
        {"counts": [1, 2]},
        {"counts": {"a": 1.5, "b": 0}},
        {"counts": {"a": True, "b": 0}},
        {"counts": {"a": 2**63, "b": 0}},
        {"counts": {"a": "1", "b": 0}},
        {"counts": {"a": 1, "b": 1, "c": 1}},
        {"impossible": None},
        {"impossible": "7"},
        {"sum": 1},
        {"noise": {"distribution": "uniform", "scale": 1}},
        {"noise": {"distribution": "discrete_laplace", "scale": -1}},
        {"noise": {"distribution": "discrete_laplace"}},
        {"standard_error": None},
        {"bound": -1},
        {"sum_bound": "1"},
        {"failure_probability": 10**400},
        {"budget": {}},
        {"budget": {"release": {"epsilon": 1}, "left_out": {"epsilon": 1}}},
        {"budget": {"release": [], "left_out": []}},
        {"budget": {"release": {"epsilon": 1, "delta": None}, "left_out": {}}},
    ],
    ids=str,
)
def test_damaged_counts_give_a_one_line_error(tmp_path, change):
    write_release(release_of(IMPOSSIBLE, left_out=left_out_of(IMPOSSIBLE)), tmp_path)
    assert read_release(tmp_path).left_out is not None
    with edited_card(tmp_path) as card:
        card["left_out"].update(change)
    assert "left_out" in refusal_line(tmp_path)


def test_describes_counts_with_their_errors():
    text = " ".join(text_of(release_of(left_out=left_out_of(DOMAIN))).split())
    assert "7,788 records outside the domain (a noisy count with standard error 40.0" in text
    assert "attribute member 3,897 28.25 74" in text
    assert text.index("attribute member") < text.index("attribute age") < text.index("attribute h")
    assert "epsilon 0.95, delta 1e-09 for the release; epsilon 0.05, delta 0 for" in text
    text = text_of(release_of(IMPOSSIBLE, left_out=left_out_of(IMPOSSIBLE)))
    assert "an impossible combination 7" in " ".join(text.split())


def test_describes_the_largest_counts_of_many_attributes():
    domain = domain_from_json({f"a{i}": 2 for i in range(30)})
    text = text_of(release_of(domain, left_out=left_out_of(domain)))
    assert "attribute a29" in text and "attribute a19" not in text
    assert "and 20 more: see card.json" in text
