"""The file of a horizon that is damaged anywhere: refused in one line, or read and usable."""

from __future__ import annotations

import json
from functools import cache

from fuzz.choices import Choices
from fuzz.damaged_releases import fuzz_folder
from fuzz.mutations import mutate_bytes, mutate_json, raised_by
from horizons import DOMAIN, FIRST, card_of, leveled, released_horizon

from beam_dp.queries.workload import Workload
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.leftovers import finish_writing
from beam_dp.releases.windows.describe import describe_horizon
from beam_dp.releases.windows.horizon_files import read_windows
from beam_dp.releases.windows.release import HorizonRelease

HORIZON = "horizon.json"


@cache
def _good() -> str:
    return card_of(leveled()).text(FIRST)


@cache
def _folder() -> str:
    """A horizon with some windows, the same for all inputs."""
    folder = f"{fuzz_folder()}/horizon"
    released_horizon(folder, leveled(), (0, 1, 2), (0,))
    return folder


def read_horizon_target(data: bytes) -> None:
    """A valid ``horizon.json``, damaged, above windows that are whole."""
    choices = Choices(data)
    card = _good().encode()
    if choices.number(3) == 0:
        card = mutate_bytes(card, choices)
    else:
        card = mutate_json(json.loads(card), choices).encode()
    with open(f"{_folder()}/{HORIZON}", "wb") as file:
        file.write(card)
    raised_by(lambda: _use(read_windows(_folder())), ReleaseError)
    raised_by(lambda: finish_writing(_folder()), ReleaseError)


def _use(release: HorizonRelease) -> None:
    """What was read is a horizon: it can be described, and asked where its windows are its own."""
    repr(release)
    describe_horizon(release)
    if release.released[:3] == (0, 1, 2):
        (answer,) = release.answer(Workload(DOMAIN, (("a1",),)), slice(0, 3))
        assert answer.standard_error is not None
