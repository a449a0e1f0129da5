"""Product weights: upper bounds for every multiset, and near the least that there are."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest

from beam_dp.mechanisms.small_db import law as law_module
from beam_dp.mechanisms.small_db.law import TILT_BITS, MultisetLaw, find_tilts

QUERIES = {
    "crossed": np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]]),
    "one query": np.array([[1, 0]]),
    "values": np.array([[0, 1, 2, 3], [3, 3, 0, 1]]),
}


def law_of(name: str, targets: list[int], scale: float) -> MultisetLaw:
    answers = 7 * QUERIES[name]
    members = tuple(np.array([kind]) for kind in range(answers.shape[1]))
    return MultisetLaw(tuple(targets), answers, members, 3, Fraction(scale))


def losses(law: MultisetLaw) -> dict[tuple[int, ...], int]:
    return {
        kinds: max(
            abs(target - int(row[list(kinds)].sum()))
            for target, row in zip(law.targets, law.answers, strict=True)
        )
        for kinds in combinations_with_replacement(range(law.num_types), law.size)
    }


def log_bound(law: MultisetLaw, tilt, kinds: tuple[int, ...], known: int, least: int) -> float:
    product = math.prod(tilt.weights[kind] for kind in kinds)
    logarithm = math.log(product) - TILT_BITS * law.size * math.log(2)
    return logarithm - tilt.rest * float((known - least) / law.scale)


CASES = [
    ("crossed", [9, 3, 0, 12]),
    ("crossed", [0, 0, 0, 0]),
    ("crossed", [21, 21, 21, 21]),
    ("crossed", [2**61, 3, 2**40, 5]),
    ("one query", [4]),
    ("values", [40, 2]),
]


def slack(law: MultisetLaw, least: int) -> float:
    """How far the lowest of all bounds, also those of sets that hold more, is above a weight."""
    found = losses(law)
    return min(
        log_bound(law, tilt, kinds, known, least) + float((loss - least) / law.scale)
        for tilt in find_tilts(law, least)
        for kinds, loss in found.items()
        for known in {least, (least + loss) // 2, loss}
    )


@pytest.mark.parametrize("name, targets", CASES)
@pytest.mark.parametrize("scale", [0.5, 3.0, 1e6])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_weights_never_exceed_their_bounds(name, targets, scale, share):
    law = law_of(name, targets, scale)
    # Nothing less than the least loss of all is known at first; at best, that itself.
    most = int(law.answers.max()) * law.size
    known = max(0, max(targets) - most)
    least = known + int(share * (min(losses(law).values()) - known))
    assert slack(law, least) >= 0


def test_detects_shares_with_too_large_a_sum(monkeypatch):
    original = law_module._best_shares
    monkeypatch.setattr(law_module, "_best_shares", lambda *given: 1.2 * original(*given))
    assert slack(law_of("one query", [4], 3.0), 0) < 0


def test_tilt_lowers_the_bound_if_few_multisets_are_good():
    """All records in one of 64 cells: nearly all multisets are far off."""
    answers = 1000 * np.eye(64, dtype=np.int64)
    members = tuple(np.array([kind]) for kind in range(64))
    targets = (8000, *(0,) * 63)
    law = MultisetLaw(targets, answers, members, 8, Fraction(160))
    logs = []
    for tilt in find_tilts(law, 0):
        weights = np.array([float(Fraction(each, 2**TILT_BITS)) for each in tilt.weights])
        logs.append(law_module._log_sum(np.log(weights), np.ones(64), 8)[0])
    assert logs[0] == pytest.approx(math.log(law.num_multisets))
    assert min(logs) < logs[0] - 8


def test_log_sum_matches_enumeration_of_all_multisets():
    exponents, ways = np.array([0.3, -1.0, 2.0]), np.array([1.0, 2.0, 1.0])
    cells = [0, 1, 1, 2]
    total, numbers = 0.0, np.zeros(3)
    for chosen in combinations_with_replacement(range(4), 3):
        kinds = [cells[each] for each in chosen]
        weight = math.exp(exponents[kinds].sum())
        total += weight
        numbers += weight * np.bincount(kinds, minlength=3)
    log, means = law_module._log_sum(exponents, ways, 3)
    assert log == pytest.approx(math.log(total))
    assert means == pytest.approx(numbers / total)


def test_queries_with_only_zero_answers_need_only_the_plain_tilt():
    law = dataclasses.replace(law_of("one query", [4], 3.0), answers=np.zeros((1, 2), np.int64))
    (plain,) = find_tilts(law, 4)
    assert plain.rest == 1 and set(plain.weights) == {1 << TILT_BITS}
