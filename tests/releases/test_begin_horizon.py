"""The first file of a horizon: one job creates it, others resume or are rejected."""

import json

import pytest
from horizons import FIRST, SECOND, WORKLOAD, card_of, leveled
from interruptions import orders, stepping
from places import draft_in
from window_plans import RECORD, person, plan_of

import beam_dp as dp
from beam_dp.releases.kinds import finish_writing
from beam_dp.releases.windows.horizon_files import begin_horizon, read_horizon

CARD = card_of(leveled())


def test_beginning_an_existing_horizon_returns_its_id(place):
    assert begin_horizon(place.url(), CARD, FIRST) == FIRST
    assert place.names() == ["horizon.json"]
    assert begin_horizon(place.url(), card_of(leveled()), SECOND) == FIRST
    assert place.names() == ["horizon.json"]
    horizon_id, card = read_horizon(place.url())
    assert horizon_id == FIRST and card.promised() == CARD.promised()


def test_horizon_file_states_the_promise_and_its_worst_case(tmp_path):
    plan = plan_of(168, person(7, 24, 3), WORKLOAD)
    begin_horizon(tmp_path, card_of(plan), FIRST)
    card = json.loads((tmp_path / "horizon.json").read_text())
    assert (card["kind"], card["horizon_id"], card["schema_version"]) == ("horizon", FIRST, 2)
    assert "at most 7 of any 24 consecutive windows of 1h" in card["promise"]
    assert card["worst_case"] == {"periods": 7, "epsilon": 7.0, "delta": pytest.approx(7e-9)}
    assert card["horizon"]["num_windows"] == 168 and card["plan"]["strategy"] == "independent"
    # The promise is stated only once.
    assert not set(card["plan"]) & set(card)


def test_resumes_horizon_whose_derived_fields_differ(tmp_path):
    """Another version may word fields differently, and another machine may round differently."""
    begin_horizon(tmp_path, CARD, FIRST)
    path = tmp_path / "horizon.json"
    card = json.loads(path.read_text())
    card["promise"], card["versions"] = "the same in other words", {"python": "4"}
    card["plan"]["window_loss"]["rho"] *= 1 + 1e-15
    path.write_text(json.dumps(card))
    assert begin_horizon(tmp_path, CARD, SECOND) == FIRST


def test_unreplayable_source_resumes_where_each_window_has_its_own_promise(tmp_path):
    for name, unit in (("each", person(1, 1)), ("record", RECORD)):
        card = card_of(plan_of(6, unit, WORKLOAD), replayable=False)
        begin_horizon(tmp_path / name, card, FIRST)
        assert begin_horizon(tmp_path / name, card, SECOND) == FIRST


def test_drafts_of_another_job_block_a_new_horizon_but_not_a_resumed_one(place):
    for is_begun in (False, True):
        place.new()
        if is_begun:
            begin_horizon(place.url(), CARD, FIRST)
        draft_in(place.url())
        if is_begun:
            assert begin_horizon(place.url(), CARD, SECOND) == FIRST
            continue
        with pytest.raises(
            dp.InputError, match=r"^output: .* must not contain drafts of another job"
        ):
            begin_horizon(place.url(), CARD, FIRST)
        assert "horizon.json" not in place.names()
        assert finish_writing(place.url()) is False
        assert begin_horizon(place.url(), CARD, SECOND) == SECOND


@pytest.mark.parametrize("num_stops", [1, pytest.param(2, marks=pytest.mark.part)])
def test_only_one_of_two_concurrent_jobs_creates_the_file(place, monkeypatch, num_stops):
    """Covers all orders of their steps with one or two interruptions in total."""
    stepping(monkeypatch, place.owner, place.steps)
    tried = 0
    for outcomes in orders(
        lambda: begin_horizon(place.url(), CARD, FIRST),
        lambda: begin_horizon(place.url(), CARD, SECOND),
        place.new,
        num_stops=num_stops,
    ):
        assert outcomes in ((FIRST, FIRST), (SECOND, SECOND))
        assert place.names() == ["horizon.json"]
        tried += 1
    assert tried > 10
