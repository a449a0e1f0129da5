"""Verification of windows and horizons, genuine and forged."""

import functools
import json
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from forgeries import fields, forge, forged, holds, reason
from horizons import DOMAIN, WORKLOAD, leveled, released_horizon
from tiny import domain_of
from window_plans import RECORD, horizon_of, person, plan_of, whole

import beam_dp as dp
from beam_dp.releases.kinds import read_any, verify_release

# Tables of these are not merged: each has its own noise.
ONE_WAY = dp.marginals(domain_of(60, 60, 60), ways=1)


def databases(mechanism: Any, delta: float) -> Any:
    """The plan of synthetic databases of windows."""
    return dp.plan_window_databases(mechanism, WORKLOAD, horizon_of(6), person(2, 3, 2), 1.0, delta)


# What is planned for each delta, and how many windows and blocks are released.
HORIZONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "levels": (leveled, 6, 2),
    "no block yet": (functools.partial(leveled, block=4), 3, 0),
    "sliding": (functools.partial(plan_of, 11, person(2, 5, 3), WORKLOAD), 4, 0),
    "fewer windows": (functools.partial(plan_of, 10, person(2, 5, 3), WORKLOAD), 3, 0),
    "record": (functools.partial(plan_of, 10, RECORD, WORKLOAD), 2, 0),
    "whole": (
        functools.partial(plan_of, 9, person(4, 9, 3), whole(DOMAIN), strategy="levels", block=3),
        *(9, 3),
    ),
    "several tables": (functools.partial(plan_of, 10, person(2, 5), ONE_WAY), 2, 0),
    "none yet": (functools.partial(plan_of, 10, person(2, 5), WORKLOAD), 0, 0),
    "mwem": (functools.partial(databases, dp.MWEM()), 2, 0),
    "laplace": (functools.partial(databases, dp.Laplace()), 2, 0),
    "rounds": (functools.partial(databases, dp.MWEM(num_rounds=2)), 2, 0),
}
OWN_NOISE = ("whole", "several tables")
Copy = Callable[..., pathlib.Path]


@pytest.fixture(scope="module")
def originals(tmp_path_factory) -> Copy:
    @functools.cache
    def written(name: str, delta: float) -> pathlib.Path:
        make, windows, blocks = HORIZONS[name]
        noise = "discrete_gaussian" if delta else "discrete_laplace"
        plan = make(delta=delta, **({"distribution": noise} if name in OWN_NOISE else {}))
        folder = tmp_path_factory.mktemp("horizon") / "out"
        released_horizon(str(folder), plan, range(windows), range(blocks))
        return folder

    return written


@pytest.fixture
def horizon(originals, tmp_path) -> Copy:
    """Returns a copy of a horizon, which is written once."""

    def copy(name: str, delta: float = 1e-9) -> pathlib.Path:
        return pathlib.Path(shutil.copytree(originals(name, delta), tmp_path / "out"))

    return copy


def verdict(folder: pathlib.Path) -> dp.Verification | dp.InputError:
    try:
        return verify_release(read_any(folder))
    except dp.InputError as error:
        return error


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("name", HORIZONS)
def test_genuine_windows_and_horizons_pass_verification(name, delta, originals):
    folder = originals(name, delta)
    first = [folder / "windows" / "000000", folder / "levels" / "3" / "000000"]
    least = 0.9 if name in ("mwem", "laplace", "rounds") else 1 - 1e-9
    for each in (folder, *(place for place in first if place.exists())):
        found = verify_release(read_any(each))
        assert found.faults == () and (least <= found.epsilon <= 1.0 or each != folder)
        assert found.epsilon <= 1.0


# Each line: a horizon, the files that are changed, and the changes.
FORGERIES = """
levels, windows/*/card.json: parameters.strategy = null
levels, windows/*/card.json: parameters.strategy = "independent"
levels, windows/*/card.json: parameters.strategy = "x"
levels, levels/*/*/card.json: parameters.strategy = null
levels, levels/*/*/card.json: parameters.strategy = "independent"
levels, levels/*/*/card.json: noise.0.scale * 0.5
levels, horizon.json: more = 1
levels, horizon.json: plan.second_scale = 1e-6
levels, horizon.json: plan.window_loss.rho = 1e-9
levels, horizon.json: plan.share = 0.02
levels, horizon.json: max_records_per_unit = 100; max_windows_per_unit = 6
levels, horizon.json: worst_case.periods = 2
levels, horizon.json: plan.block -; plan.share -; plan.strategy = "independent"
no block yet, horizon.json: plan.block -
no block yet, horizon.json: plan.block = null
no block yet, horizon.json: plan.share = 0
no block yet, horizon.json: plan.strategy -
no block yet, horizon.json: plan.strategy = "independent"
mwem, windows/*/card.json: parameters.windows.max_records_per_unit = 100
mwem, horizon.json: max_records_per_unit = 100; guarantee.max_records_per_unit = 100
rounds, windows/*/card.json: parameters.num_units = 5
fewer windows, windows/*/card.json: parameters.max_windows_per_unit = 3
fewer windows, windows/*/card.json: parameters.max_records_per_unit = 4
fewer windows, windows/*/card.json: parameters.worst_case.periods = 1
fewer windows, windows/*/card.json: parameters.window_loss.rho = 1e-3
fewer windows, windows/*/card.json: parameters.protected_windows = 3
fewer windows, windows/*/card.json: guarantee.epsilon = 0.9
fewer windows, windows/*/card.json: noise.0 -
fewer windows, windows/*/card.json: parameters.second_scale = 1e-6
fewer windows, windows/*/card.json: parameters.window_loss.mu = 1e-3
fewer windows, windows/*/card.json: parameters.window_loss.more = 1
fewer windows, windows/*/card.json: parameters.worst_case.more = 1
fewer windows, windows/*/card.json: parameters.horizon.num_windows = 100
fewer windows, windows/*/card.json: parameters.horizon.start = 0
fewer windows, windows/*/card.json: parameters.max_records_per_unit = 1; parameters.max_windows_per_unit = 6
fewer windows, windows/*/card.json: noise.0.standard_deviation = 1.0
fewer windows, windows/*/card.json: more_noise = []
fewer windows, windows/*/card.json: guarantee.privacy_unit = "visit_id"
"""  # noqa: E501


def forgeries() -> Iterator[tuple[str, str, str]]:
    for line in FORGERIES.strip().splitlines():
        place, _, changes = line.partition(": ")
        name, _, files = place.partition(", ")
        yield name, files, changes


def forge_files(folder: pathlib.Path, files: str, changes: str) -> list[pathlib.Path]:
    """Changes the cards that match; returns where they are."""
    changed = sorted(folder.glob(files))
    for path in changed:
        card = json.loads(path.read_text())
        forge(card, changes)
        path.write_text(json.dumps(card))
    assert changed
    return [path.parent for path in changed]


@pytest.mark.parametrize(("name", "files", "changes"), [*forgeries()])
def test_forged_windows_and_horizons_fail_verification(name, files, changes, horizon):
    folder = horizon(name)
    (first, *_) = forge_files(folder, files, changes)
    assert not holds(verdict(folder))
    if "noise.0.scale" not in changes and name not in ("mwem", "rounds"):
        assert not holds(verdict(first))


def test_forged_limit_of_a_horizon_and_its_windows_fails_verification(horizon):
    folder = horizon("mwem")
    forge_files(folder, "horizon.json", "max_records_per_unit = 100")
    forge_files(folder, "horizon.json", "guarantee.max_records_per_unit = 100")
    forge_files(folder, "windows/*/card.json", "parameters.windows.max_records_per_unit = 100")
    assert not holds(verdict(folder))


def test_blocks_of_independent_windows_are_rejected(horizon):
    folder = horizon("levels")
    independent = 'plan.block -; plan.share -; plan.strategy = "independent"'
    forge_files(folder, "horizon.json", independent)
    with pytest.raises(dp.InputError, match="levels/3/000000"):
        dp.read_windows(folder)


@pytest.mark.parametrize("moved", ["windows/000010", "windows/000003", "levels/3/000000"])
def test_rejects_releases_outside_the_horizon(moved, horizon):
    folder = horizon("fewer windows")
    shutil.copytree(folder / "windows" / "000000", folder / moved)
    assert not holds(verdict(folder))
    if moved != "windows/000003":  # of the horizon, but with the number of another window
        with pytest.raises(dp.InputError, match=f"a release in {moved} that horizon.json does not"):
            dp.read_windows(folder)


# Wording that may change between versions, and fields that do not concern the noise.
FREE = r"(parameters\.)?(windows\.)?promise|source(\..*)?|replayable"


@pytest.mark.parametrize(
    ("name", "delta", "every"),
    [
        pytest.param(*each, every, marks=marks)
        for each in (("levels", 1e-9), ("levels", 0.0), ("sliding", 1e-9), ("mwem", 1e-9))
        for every, marks in ((40, ()), (1, pytest.mark.part))
    ],
)
def test_changed_fields_of_a_horizon_fail_verification(name, delta, every, horizon):
    folder, held = horizon(name, delta), []
    for file in ("horizon.json", "windows/000000/card.json", "levels/3/000000/card.json"):
        if not (folder / file).exists():
            continue
        text = (folder / file).read_text()
        for number, (path, label, card) in enumerate(forged(json.loads(text))):
            place = fields(path)
            if number % every or re.fullmatch(FREE, place) or reason(place, label):
                continue
            (folder / file).write_text(json.dumps(card))
            if holds(verdict(folder)):
                held.append(f"{file} {place}: {label}")
        (folder / file).write_text(text)
    assert held == []
