"""Verification of windows and horizons, genuine and changed."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import shutil
from typing import Any

import pytest
from horizons import DOMAIN, WORKLOAD, leveled, released_horizon
from kinds_of_releases import Change, edit
from tiny import domain_of
from verification.forgeries import fields, forged, reason
from window_plans import RECORD, horizon_of, person, plan_of, whole

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.releases.kinds import read_release, verify_release
from beam_dp.releases.windows.horizon_files import read_windows

DELTAS = (0.0, 1e-9)
# Tables of these are not merged: each has its own noise.
ONE_WAY = dp.marginals(domain_of(60, 60, 60), ways=1)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(
    "name", ["levels", "no block yet", "sliding", "record", "whole", "several tables", "none yet"]
)
def test_genuine_windows_and_horizons_pass_verification(name, delta, tmp_path):
    noise = "discrete_gaussian" if delta else "discrete_laplace"
    options = {"delta": delta, "distribution": noise}
    blocked = {**options, "strategy": "levels", "block": 3}
    plan, windows, blocks = {
        "levels": (leveled(delta=delta), range(6), range(2)),
        "no block yet": (leveled(delta=delta, block=4), range(3), ()),
        "sliding": (plan_of(11, person(2, 5, 3), WORKLOAD, delta=delta), range(4), ()),
        "record": (plan_of(10, RECORD, WORKLOAD, delta=delta), range(2), ()),
        "whole": (plan_of(9, person(4, 9, 3), whole(DOMAIN), **blocked), range(9), range(3)),
        "several tables": (plan_of(10, person(2, 5), ONE_WAY, **options), range(2), ()),
        "none yet": (plan_of(10, person(2, 5), WORKLOAD, delta=delta), (), ()),
    }[name]
    directory = str(tmp_path / "out")
    released_horizon(directory, plan, windows, blocks)
    releases: list[Any] = [read_windows(directory)]
    if windows:
        releases.append(read_release(f"{directory}/windows/000000"))
    if blocks:
        releases.append(read_release(f"{directory}/levels/3/000000"))
    for release in releases:
        found = verify_release(release)
        assert found.faults == () and found.epsilon == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("value", [None, "independent", "x"])
@pytest.mark.parametrize("delta", DELTAS)
def test_rejects_wrong_or_missing_strategy(delta, value, tmp_path):
    directory = tmp_path / "out"
    released_horizon(str(directory), leveled(delta=delta), range(6), range(2))
    for place in ("windows/000000", "levels/3/000000"):
        edit(
            directory / place / "card.json", lambda card: card["parameters"].update(strategy=value)
        )
        with pytest.raises(InputError, match=r"(strategy|block): .* is not valid"):
            verify_release(read_release(directory / place))


@pytest.mark.parametrize(
    "change",
    [
        lambda card: card["plan"].pop("block"),
        lambda card: card["plan"].update(block=None),
        lambda card: card["plan"].update(share=0),
        lambda card: card["plan"].pop("strategy"),
        lambda card: card["plan"].update(strategy="independent"),
    ],
)
def test_rejects_horizon_with_missing_or_wrong_blocks(change, tmp_path):
    released_horizon(str(tmp_path / "out"), leveled(block=4), range(3))
    edit(tmp_path / "out" / "horizon.json", change)
    with pytest.raises(InputError, match=r"(strategy|block|share): .* is not valid"):
        verify_release(read_windows(tmp_path / "out"))


def test_horizon_adds_up_the_losses_of_its_windows_and_blocks(tmp_path):
    directory = str(tmp_path / "out")
    released_horizon(directory, leveled(delta=0.0), range(6), range(2))
    for place in (tmp_path / "out").glob("levels/3/*/card.json"):
        edit(place, lambda card: card["noise"][0].update(scale=card["noise"][0]["scale"] / 2))
    with contextlib.suppress(InputError):  # or its tables have other variances than its noise
        assert not verify_release(read_windows(directory)).holds
    begun = tmp_path / "out" / "horizon.json"
    edit(begun, lambda card: card["worst_case"].update(periods=2))
    with pytest.raises(InputError, match="worst_case"):
        read_windows(directory)


@pytest.mark.mostly_slow(one_in=5)
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(
    "mechanism", [dp.MWEM(), dp.Laplace(), dp.MWEM(num_rounds=2)], ids=lambda each: repr(each)
)
def test_window_databases_together_pass_verification(mechanism, delta, tmp_path):
    plan = dp.plan_window_databases(mechanism, WORKLOAD, horizon_of(6), person(2, 3, 2), 1.0, delta)
    released_horizon(str(tmp_path / "out"), plan, range(2))
    found = verify_release(read_windows(tmp_path / "out"))
    assert found.faults == () and 0.9 < found.epsilon <= 1.0
    edit(
        tmp_path / "out" / "windows" / "000001" / "card.json",
        lambda card: card["parameters"].update(predicted_cell_error=1.0, num_units=5),
    )
    with contextlib.suppress(InputError):  # or the strategy has no such parameter
        assert not verify_release(read_windows(tmp_path / "out")).holds


def each_card(directory: pathlib.Path, change: Change) -> None:
    """Changes the cards of all windows and blocks of a horizon."""
    for place in (*directory.glob("windows/*/card.json"), *directory.glob("levels/*/*/card.json")):
        edit(place, change)


def does_not_hold(directory: pathlib.Path) -> bool:
    try:
        return not verify_release(read_windows(directory)).holds
    except InputError:
        return True


WINDOW_FORGERIES: list[Change] = [
    lambda card: card["parameters"].update(max_windows_per_unit=3),
    lambda card: card["parameters"].update(max_records_per_unit=4),
    lambda card: card["parameters"]["worst_case"].update(periods=1),
    lambda card: card["parameters"]["window_loss"].update(rho=1e-3),
    lambda card: card["parameters"].update(protected_windows=3),
    lambda card: card["guarantee"].update(epsilon=0.9),
    lambda card: card["noise"].pop(),
    lambda card: card["parameters"].update(second_scale=1e-6),
    lambda card: card["parameters"]["window_loss"].update(mu=1e-3),
    lambda card: card["parameters"]["window_loss"].update(more=1),
    lambda card: card["parameters"]["worst_case"].update(more=1),
    lambda card: card["parameters"]["horizon"].update(num_windows=100),
    lambda card: card["parameters"]["horizon"].update(start=0),
    lambda card: card["parameters"].update(max_records_per_unit=1, max_windows_per_unit=6),
    lambda card: card["noise"][0].update(standard_deviation=1.0),
    lambda card: card.update(more_noise=[]),
    lambda card: card["guarantee"].update(privacy_unit="visit_id"),
]


@pytest.mark.parametrize("change", WINDOW_FORGERIES)
def test_forged_windows_fail_verification(change, tmp_path):
    plan = plan_of(10, person(2, 5, 3), WORKLOAD)
    released_horizon(str(tmp_path), plan, range(2))
    each_card(tmp_path, change)
    assert does_not_hold(tmp_path)
    with contextlib.suppress(InputError):
        assert not verify_release(read_release(tmp_path / "windows" / "000000")).holds


@pytest.mark.parametrize("moved", ["windows/000010", "windows/000003", "levels/3/000000"])
def test_rejects_releases_outside_the_horizon(moved, tmp_path):
    plan = plan_of(10, person(2, 5, 3), WORKLOAD)
    released_horizon(str(tmp_path), plan, range(3))
    (tmp_path / moved).parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(tmp_path / "windows" / "000000", tmp_path / moved)
    assert does_not_hold(tmp_path)
    if moved != "windows/000003":  # of the horizon, but with the number of another window
        with pytest.raises(InputError, match=f"a release in {moved} that horizon.json does not"):
            read_windows(tmp_path)


def test_rejects_blocks_in_a_horizon_of_independent_windows(tmp_path):
    released_horizon(str(tmp_path), leveled(), range(6), range(2))

    def independent(card: Any) -> None:
        for name in ("block", "share"):
            del card["plan"][name]
        card["plan"]["strategy"] = "independent"

    edit(tmp_path / "horizon.json", independent)
    with pytest.raises(InputError, match="levels/3/000000"):
        read_windows(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda card: card.update(more=1),
        lambda card: card["plan"].update(second_scale=1e-6),
        lambda card: card["plan"]["window_loss"].update(rho=1e-9),
        lambda card: card["plan"].update(share=0.02),
        lambda card: card.update(max_records_per_unit=100, max_windows_per_unit=6),
    ],
)
def test_forged_horizon_fails_verification(change, tmp_path):
    released_horizon(str(tmp_path), leveled(delta=0.0), range(6), range(2))
    edit(tmp_path / "horizon.json", change)
    assert does_not_hold(tmp_path)


def test_raised_limit_on_records_per_unit_fails_verification(tmp_path):
    plan = dp.plan_window_databases(dp.MWEM(), WORKLOAD, horizon_of(6), person(1, 6), 1.0, 1e-9)
    released_horizon(str(tmp_path), plan, range(2))

    def hundred(card: Any) -> None:
        card["max_records_per_unit"] = card["guarantee"]["max_records_per_unit"] = 100

    edit(tmp_path / "horizon.json", hundred)
    assert not verify_release(read_windows(tmp_path)).holds
    each_card(tmp_path, lambda card: card["parameters"]["windows"].update(max_records_per_unit=100))
    assert not verify_release(read_windows(tmp_path)).holds


# Wording that may change between versions, and fields that do not concern the noise.
FREE = r"(parameters\.)?(windows\.)?promise|source(\..*)?|replayable"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["levels", "levels pure", "sliding", "database"])
def test_every_changed_field_of_a_horizon_fails_verification(kind, tmp_path):
    plan: Any = leveled(delta=0.0 if kind == "levels pure" else 1e-9)
    if kind == "sliding":
        plan = plan_of(11, person(2, 5, 3), WORKLOAD)
    elif kind == "database":
        plan = dp.plan_window_databases(
            dp.MWEM(), WORKLOAD, horizon_of(6), person(2, 3, 2), 1.0, 1e-9
        )
    blocks = range(2) if kind.startswith("levels") else ()
    released_horizon(str(tmp_path), plan, range(6 if blocks else 2), blocks)
    found = []
    for name in ("horizon.json", "windows/000000/card.json", "levels/3/000000/card.json"):
        if not (tmp_path / name).exists():
            continue
        text = (tmp_path / name).read_text()
        for path, label, card in forged(json.loads(text)):
            place = fields(path)
            if re.fullmatch(FREE, place) or reason(place, label):
                continue
            (tmp_path / name).write_text(json.dumps(card))
            if not does_not_hold(tmp_path):
                found.append(f"{name} {place}: {label}")
        (tmp_path / name).write_text(text)
    assert found == []
