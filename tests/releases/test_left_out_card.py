"""Counts of left-out records on a card: round trips, and rejected damage."""

import dataclasses

import numpy as np
import pytest
from damaged_files import edited_card
from kind_examples import IMPOSSIBLE, left_out_of
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
