"""Cards of every kind, damaged anywhere: refused in one line, or judged, and not too well."""

import io
import json
import math
import pathlib
from functools import cache
from typing import Any

from fuzz.mutations import CARD, Choices, fuzz_folder, mutate_json, raised_by
from horizons import leveled, released_horizon
from rich.console import Console
from verification.forgeries import fields, forged_at, places, reason
from verification.kinds_of_releases import RELEASES

import beam_dp as dp
from beam_dp.checks import is_number
from beam_dp.cli.releases import told
from beam_dp.releases.kinds import read_any, verify_release, write_release

HORIZON, WINDOW = "horizon", "window of a horizon"
NAMES = (*RELEASES, HORIZON, WINDOW)
# Figures of which less is less privacy, and those of which more is.
LESS = {
    "scale", "threshold_scale", "question_scale", "answer_scale", "selection_scale",
    "measurement_scale", "total_scale", "score_scale", "choice_scale", "count_scale", "threshold",
}  # fmt: skip
MORE = {
    "max_records_per_unit", "max_weight", "num_units", "num_rounds", "max_above", "size",
    "num_candidates", "score_grid", "attributes_mu", "pairs_mu", "num_blocks",
}  # fmt: skip
OF_PROMISE = frozenset(("epsilon", "delta"))
FACTORS = (0.5, 0.1, 0.9, 0.999, 1 - 1e-6)


@cache
def _good(name: str) -> tuple[pathlib.Path, str, str, float]:
    """Where a release is, which file is damaged, its text, and the epsilon that follows."""
    place = fuzz_folder() / f"verified {NAMES.index(name)}"
    file = CARD
    if name in (HORIZON, WINDOW):
        released_horizon(str(place), leveled(), (0, 1), (0,))
        file = "horizon.json"
        if name == WINDOW:
            place, file = place / "windows" / "000000", CARD
    else:
        write_release(RELEASES[name](), place)
    return place, file, (place / file).read_text("utf-8"), _verified(place).epsilon


def verify_target(data: bytes) -> None:
    """A real card after any damage; or one that states less noise, or promises more, than is so."""
    choices = Choices(data)
    name = choices.one_of(NAMES)
    place, file, text, epsilon = _good(name)
    card, is_worse = json.loads(text), bool(choices.number(2))
    if name in RELEASES and not choices.number(3):
        _check_forgery(place / file, card, choices)
        return
    if is_worse:
        if choices.number(2):
            _delete_one(card, choices)
        _worsen(card, choices)
        text = json.dumps(card)
    else:
        text = mutate_json(card, choices)
    (place / file).write_text(text, "utf-8")
    raised_by(lambda: _check(_verified(place), epsilon if is_worse else 0.0), dp.InputError)


def _check_forgery(file: pathlib.Path, card: Any, choices: Choices) -> None:
    """A card with one small change does not hold, except where it may."""
    path = choices.one_of(list(places(card)))
    changes = list(forged_at(card, path))
    if not changes:
        return
    label, changed = choices.one_of(changes)
    file.write_text(json.dumps(changed), "utf-8")

    def check() -> None:
        may_hold = reason(fields(path), label) is not None
        assert may_hold or not _verified(file.parent).holds, (path, label)

    raised_by(check, dp.InputError)


def _verified(place: pathlib.Path) -> dp.Verification:
    return verify_release(read_any(place))


def _check(found: dp.Verification, least: float) -> None:
    """What is found can be told, and a card that was made worse is not found to be better."""
    file = io.StringIO()
    Console(file=file, width=80).print(told(found))
    assert max(map(len, file.getvalue().splitlines())) <= 80
    json.dumps(found.to_json(), allow_nan=False)
    if found.holds:
        assert not math.isnan(found.epsilon) and found.epsilon <= found.promise.epsilon
        assert found.epsilon >= least * (1 - 1e-9), (found.epsilon, least)


def _worsen(card: Any, choices: Choices) -> None:
    """Makes one figure such that less privacy follows from it than was so, or more is promised."""
    places = list(_figures(card))
    if not places:
        return
    holder, key = choices.one_of(places)
    factor = choices.one_of(FACTORS)
    changed = holder[key] / factor if key in MORE else holder[key] * factor
    if isinstance(holder[key], int):
        changed = math.ceil(changed) if key in MORE else math.floor(changed)
    holder[key] = changed


def _figures(value: Any, is_promise: bool = False) -> Any:
    """Every holder and key of a figure of the noise, or of the promise."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in items:
        if isinstance(below, dict | list):
            yield from _figures(below, key == "guarantee")
        elif is_number(below) and (key in LESS | MORE or (is_promise and key in OF_PROMISE)):
            yield value, key


def _delete_one(card: Any, choices: Choices) -> None:
    """Deletes one field, as cards of earlier versions lack some.

    Not the counts beside a release with all that is said of them: without these less is released.
    """
    holders = [card, *(each for each in card.values() if isinstance(each, dict) and each)]
    holder = choices.one_of(holders)
    del holder[choices.one_of(sorted(set(holder) - {"left_out"}))]
