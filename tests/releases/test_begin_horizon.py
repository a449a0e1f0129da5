"""The first file of a horizon: one job creates it, others resume or are rejected."""

import dataclasses
import json
from typing import Any

import pytest
from horizons import FIRST, SECOND, WORKLOAD, card_of, leveled
from interruptions import orders, stepping
from places import draft_in
from tiny import domain_of
from window_plans import RECORD, person, plan_of

import beam_dp as dp
from beam_dp.releases.leftovers import finish_writing
from beam_dp.releases.windows.horizon_files import HorizonCard, begin_horizon, read_horizon

CARD = card_of(leveled())


def refusal(caught: pytest.ExceptionInfo[dp.InputError]) -> str:
    text = str(caught.value)
    assert "\n" not in text and len(text) < 1000
    return text


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


def changed(windows: int = 2, protected: int = 6, records: int = 1, **options: Any) -> HorizonCard:
    given = {"num_windows": 6, "strategy": "levels", "block": 3, **options}
    return card_of(
        plan_of(given.pop("num_windows"), person(windows, protected, records), WORKLOAD, **given)
    )


def of_two_hours() -> HorizonCard:
    plan = leveled()
    unit = "person_id in any 6 consecutive windows of 2h"
    guarantee = dataclasses.replace(plan.guarantee, privacy_unit=unit)
    horizon = dataclasses.replace(plan.horizon, window="2h")
    return card_of(plan, horizon=horizon, guarantee=guarantee)


@pytest.mark.parametrize(
    ("card", "line"),
    [
        (changed(num_windows=9, protected=9), "num_windows: 9 is not valid: must be 6, as horizon"),
        (changed(epsilon=2.0), "epsilon: 2.0 is not valid: must be 1.0, as "),
        (changed(delta=1e-8), "delta: 1e-08 is not valid: must be 1e-09, as "),
        (changed(records=2), "max_records_per_unit: 2 is not valid: must be 1, as "),
        (changed(windows=3), "max_windows_per_unit: 3 is not valid: must be 2, as "),
        (
            changed(protected=5, strategy="independent"),
            "protected_windows: 5 is not valid: must be 6, as ",
        ),
        (changed(block=2), "block: 2 is not valid: must be 3, as "),
        (
            changed(strategy="independent"),
            "strategy: 'independent' is not valid: must be 'levels', as ",
        ),
        (
            card_of(leveled(), source={"event_time": "u", "arrival": "file_time"}),
            "event_time: 'u' is not valid: must be 't', as ",
        ),
        (of_two_hours(), "window: 7200 is not valid: must be 3600, as "),
    ],
    ids=str,
)
def test_error_names_the_first_parameter_that_differs(tmp_path, card, line):
    begin_horizon(tmp_path, CARD, FIRST)
    before = (tmp_path / "horizon.json").read_bytes()
    with pytest.raises(dp.InputError) as caught:
        begin_horizon(tmp_path, card, SECOND)
    assert refusal(caught).startswith(line) and repr(str(tmp_path)) in refusal(caught)
    assert (tmp_path / "horizon.json").read_bytes() == before


def test_resumes_horizon_whose_derived_fields_differ(tmp_path):
    """Another version may word fields differently, and another machine may round differently."""
    begin_horizon(tmp_path, CARD, FIRST)
    path = tmp_path / "horizon.json"
    card = json.loads(path.read_text())
    card["promise"], card["versions"] = "the same in other words", {"python": "4"}
    card["plan"]["window_loss"]["rho"] *= 1 + 1e-15
    path.write_text(json.dumps(card))
    assert begin_horizon(tmp_path, CARD, SECOND) == FIRST


def test_rejects_job_with_another_domain_or_workload(tmp_path):
    begin_horizon(tmp_path, CARD, FIRST)
    plan = leveled()
    for workload, name in (
        (dp.marginals(domain_of(2, 4), ways=1), "domain"),
        (dp.marginals(WORKLOAD.domain, ways=2), "workload"),
    ):
        with pytest.raises(dp.InputError, match=rf"^{name}: .* as horizon\.json in ") as caught:
            begin_horizon(tmp_path, card_of(plan, workload=workload), SECOND)
        refusal(caught)


def test_unreplayable_source_resumes_only_with_per_window_promises(tmp_path):
    whole = card_of(plan_of(6, person(2, 6), WORKLOAD), replayable=False)
    assert begin_horizon(tmp_path / "whole", whole, FIRST) == FIRST
    with pytest.raises(
        dp.InputError, match=r"^replayable: False is not valid: must be True"
    ) as caught:
        begin_horizon(tmp_path / "whole", whole, SECOND)
    refusal(caught)
    for name, unit in (("each", person(1, 1)), ("record", RECORD)):
        card = card_of(plan_of(6, unit, WORKLOAD), replayable=False)
        begin_horizon(tmp_path / name, card, FIRST)
        assert begin_horizon(tmp_path / name, card, SECOND) == FIRST


def test_rejects_directory_with_other_content(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(dp.InputError, match=r"^output: .* does not exist yet, or an empty one"):
        begin_horizon(tmp_path, CARD, FIRST)
    with pytest.raises(dp.InputError, match=r"^output: .* does not exist yet, or an empty one"):
        begin_horizon(tmp_path / "notes", CARD, FIRST)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


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


def test_horizon_is_no_release_and_no_link_or_large_file_is_read(tmp_path):
    begin_horizon(tmp_path, CARD, FIRST)
    with pytest.raises(dp.ReleaseError, match="contains the releases of many windows: use"):
        dp.read_release(tmp_path)
    with (tmp_path / "horizon.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(dp.ReleaseError, match="too large for a card"):
        read_horizon(tmp_path)
    (tmp_path / "horizon.json").unlink()
    (tmp_path / "elsewhere").write_text(CARD.text(FIRST))
    (tmp_path / "horizon.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(dp.ReleaseError, match=r"horizon\.json cannot be read"):
        read_horizon(tmp_path)


VALUES: list[Any] = [None, True, -1, 0, 2**80, 1.5, 1e999, "", "x" * 100, [], {}, [[]], {"a": 1}]


def test_hostile_file_gives_a_one_line_error(tmp_path):
    """Any value in a field is rejected, or gives a valid card."""
    path = tmp_path / "horizon.json"
    good = json.loads(CARD.text(FIRST))
    places = [(name,) for name in good] + [
        (name, inner)
        for name in ("horizon", "guarantee", "worst_case", "domain", "workload", "plan")
        for inner in good[name]
    ]
    for keys in places:
        for value in VALUES:
            card = json.loads(json.dumps(good))
            *above, last = keys
            held = card
            for key in above:
                held = held[key]
            if held[last] == value and held[last] is not True:
                continue
            held[last] = value
            path.write_text(json.dumps(card))
            try:
                _, read = read_horizon(tmp_path)
            except dp.ReleaseError as error:
                text = str(error)
                assert "\n" not in text and len(text) < 1500 and "horizon.json" in text
            else:
                assert isinstance(read, HorizonCard)
                free = ("plan", "source", "promise", "versions", "replayable")
                is_number = keys[-1] in ("start", "grace") and value in (-1, 0)
                is_weights = keys[-1] == "weights" and value == []
                assert keys[0] in free or is_number or is_weights, (keys, value)
