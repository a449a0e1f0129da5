"""The registry's sparse online multiplicative weights, under both relations and calibrations.

The law is exact, from the real code (``sparse_mw_laws``); the black box runs whole objects with the
production noise. The sparse vector beneath has audits of its own.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from audit_online import is_post_processing
from auditing import Audit, Finding, audited, replaced
from private_mw_laws import law_of, whole_records
from sparse_mw_laws import interact, member, probed, tiny_plan
from tiny import ADD, REPLACE, promise

from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.sparse_mw import SparseMW
from beam_dp.models.weights import SparseWeights
from beam_dp.testing import audit

DELTA = 1e-6
RUNS = 1500
# Neighbours on which a sum, and the number of keys, differ.
PAIRS = {ADD: ((0, 0, 1), (0, 0)), REPLACE: ((0, 0, 0), (0, 0, 1))}
CASES: dict[str, list[tuple[str, float, str, dict[str, Any]]]] = {
    "SparseMW tight": [
        (REPLACE, 0.0, "tight", {}),
        (ADD, 0.0, "tight", {"max_updates": 1}),
        (ADD, DELTA, "tight", {"max_updates": 1}),
    ],
    "SparseMW textbook": [
        (ADD, 0.0, "textbook", {}),
        (REPLACE, DELTA, "textbook", {}),
    ],
}


def law(*case: Any) -> Finding:
    """The exact law of an analyst who chooses the second query by the first answer."""
    with whole_records():
        plan = tiny_plan(*case[:3], **case[3])
        told = law_of(plan, SparseMW, probed=probed, interact=interact)
        found = audit.audit_law(told, range(3), plan.guarantee, num_others=2)
    return Finding(found.is_private)


def post_processing(relation: str, *_: Any) -> Finding:
    plan = tiny_plan(relation, 0.0, "tight", max_updates=2)

    def seen(data: tuple[int, ...], said: tuple[Any, ...]) -> Any:
        run = probed(SparseMW, plan, data, said, 3)
        queries = [member(keys) for keys in ("a", "b", "ab", "bz")]
        answers = [(run.answer(query), run._hypothesis.mean(query)) for query in queries]
        return answers, run.weights, run.common_weight, run.num_slots

    return is_post_processing(seen)


_START, _LEARN, _ANSWER = SparseMW.__init__, SparseMW._learn, SparseMW.answer


def _slots_for_the_data(self: Any, plan: Any, held: Any, noise: Any) -> None:
    _START(self, plan, held, noise)
    self._hypothesis = SparseWeights(2 + len(held.counts))


def _slots_from_the_data(self: Any, query: Any, mean: float, noisy: int, sign: int) -> Any:
    held = [key for key in query.elements if key in self._counts]
    return _LEARN(self, member(held), mean, noisy, sign)


def _direction_from_the_data(self: Any, query: Any, mean: float, noisy: int, sign: int) -> Any:
    is_more = self._exact(query) / GRID > mean * self.settings.total
    return _LEARN(self, query, mean, noisy, 1 if is_more else -1)


def _tell_the_sum(self: Any, query: Any) -> Any:
    answer = _ANSWER(self, query)
    exact = float(query.count(self._counts))
    return answer if answer.route == "update" else dataclasses.replace(answer, value=exact)


def _many_times_the_sum(self: Any, query: Any) -> int:
    return 64 * int(query.count(self._counts))


def audits() -> list[Audit]:
    told = replaced(SparseMW, "answer", _tell_the_sum)
    scaled = replaced(SparseMW, "_exact", _many_times_the_sum)
    known = {
        "slots for the keys of the data": replaced(SparseMW, "__init__", _slots_for_the_data),
        "slots only for keys of the data": replaced(SparseMW, "_learn", _slots_from_the_data),
        "direction from the data": replaced(SparseMW, "_learn", _direction_from_the_data),
        "sum told without noise": told,
    }
    found = []
    for name, case in ((name, case) for name, cases in CASES.items() for case in cases):
        checks = {"law": law, "post-processing": post_processing}
        bugs = {"post-processing": known}
        if not case[1]:
            bugs["law"] = {"a question of many times the sensitivity": scaled}
        dear = ("law",) if "textbook" in name else ()
        found.append(audited(name, promise(*case[:2]), checks, bugs, *case, dear=dear))
    return found
