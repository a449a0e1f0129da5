"""The registry's early stop of published MWEM: its price, its exact law, and whole runs."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import early_stop_laws as laws
import numpy as np
from auditing import Audit, Finding, around, audited
from early_stop_laws import SIZE, law_of, plan, replay, whole_records
from noise_sources import Draw
from tiny import ADD, PURE, REPLACE, neighbours, promise, units

from beam_dp.mechanisms.marginals import textbook_mwem
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.synthetic_database.strategies import Textbook
from beam_dp.testing import audit

DELTA = 1e-6
# So that so many runs see much of it, and would refute more.
EPSILON, RUNS = 4.0, 6000


def spent(stop: Textbook, first: Sequence[Draw], second: Sequence[Draw]) -> tuple[float, float]:
    """What hides the difference of neighbours: a pure epsilon, and rho."""
    epsilon = rho = moved = 0.0
    for one, other in zip(first, second, strict=True):
        assert (one.kind, one.scale) == (other.kind, other.scale)
        change = np.ravel(one.exact - other.exact).astype(np.float64)
        if one.kind == "compare":
            moved = max(moved, float(np.abs(change).max()))
        elif one.kind == "select":
            cost = float(np.ptp(change)) / one.scale
            epsilon, rho = epsilon + cost, rho + cost**2 / 8
        elif one.kind == "laplace":
            cost = float(np.abs(change).sum()) / one.scale
            epsilon, rho = epsilon + cost, rho + cost**2 / 2
        else:
            epsilon, rho = math.inf, rho + float(change @ change) / (2 * one.scale**2)
    compared = moved / stop.stop_threshold_scale + 2 * moved / stop.stop_question_scale
    return epsilon + compared, rho + compared**2 / 2


def price(guarantee: Guarantee) -> Finding:
    """What all rounds spend where no comparison ends them, over all neighbours."""
    most = 0.0
    with whole_records():
        planned = plan(guarantee, num_rounds=2)
        for base, cells in itertools.product(((), (0, 0, 1)), itertools.product((0, 1), repeat=2)):
            told = tuple(said for cell in cells for said in (cell, False, 2 + cell))
            held = units(SIZE, guarantee.max_records_per_unit)
            draws = {unit: replay(planned, (*base, *unit), told) for unit in held}
            for one, other in neighbours(held, guarantee.neighboring):
                epsilon, rho = spent(planned.parameters, draws[one], draws[other])
                if guarantee.delta:
                    most = max(most, rho / zcdp_rho(guarantee.epsilon, guarantee.delta))
                else:
                    most = max(most, epsilon / guarantee.epsilon)
    return Finding(0.7 < most <= 1)


def exact_law(guarantee: Guarantee) -> Finding:
    """The exact law of everything that is released, over all neighbours."""
    with whole_records():
        planned = plan(guarantee, num_rounds=2)
        law = functools.partial(law_of, planned, reach=3)
        found = audit.audit_law(law, range(SIZE), guarantee, num_others=2)
    return Finding(found.is_private)


# The comparison gets the noise of a share of the budget that nothing else goes without.
all_for_the_rounds = around(
    textbook_mwem,
    "lowered",
    lambda original, value: original(value) / (1 - textbook_mwem._STOP_SHARE),
)


def _monotone(original: Any, *given: Any, **named: Any) -> list[Any]:
    """Half of a question's noise, as if all errors moved the same way."""
    return [
        dataclasses.replace(noise, question_scale=noise.question_scale / 2)
        for noise in original(*given, **named)
    ]


def audits() -> list[Audit]:
    found = []
    for relation, delta in ((ADD, PURE), (REPLACE, PURE), (REPLACE, DELTA)):
        guarantee = promise(relation, delta, 2 * EPSILON if delta else EPSILON)
        checks = {"price": price, "law": exact_law}
        bugs = {"law": {"comparison without noise": laws.free_comparison}}
        if not delta:
            bugs["law"]["a twentieth of the noise of the stop"] = laws.little_noise
        if relation == REPLACE:  # which is priced to the full
            bugs["price"] = {
                "error of twice the sensitivity": laws.doubled_error,
                "comparison that nothing is paid for": all_for_the_rounds,
                "noise of monotone questions": around(textbook_mwem, "noise_candidates", _monotone),
            }
        name = "mwem textbook, early stop" + (", delta" if delta else "")
        found.append(audited(name, guarantee, checks, bugs, guarantee, dear=("law",)))
    return found
