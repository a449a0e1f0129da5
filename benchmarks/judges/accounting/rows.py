"""Random plans, whose epsilon other projects' accountants recompute from the noise."""

from __future__ import annotations

import copy
import json
import math
import pathlib
import random
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks.judges.accounting.draws import KINDS, Drawn, Law, draw
from benchmarks.judges.environment import Environment
from benchmarks.recorded import Figure, Row

_SEED = 20261127
_PLANS, _QUICK_PLANS = 1012, 92  # the same number of each kind
_ACCOUNTANTS = ("dp-accounting", "prv-accountant", "autodp")
# What floating point and noise on a fine grid may add to a figure that agrees.
_AGREEMENT = 1e-6

# Gaussian noise on integers, and ledgers, are accounted for by zero-concentrated privacy.
_INEXACT = ("Gaussian tables (textbook)", "ledgers of several releases")

Bounds = tuple[float | None, float | None]


def rows(environment: Environment, quick: bool) -> list[Row]:
    """Returns a row for each kind of plan and for each accountant, and for what is tight."""
    rng = random.Random(_SEED)
    kinds = list(KINDS)
    number = _QUICK_PLANS if quick else _PLANS
    plans = [draw(kinds[place % len(kinds)], rng) for place in range(number)]
    asked = [_asked(each, each.laws, _ACCOUNTANTS) for each in plans]
    asked += [_asked(each, _halved(each.laws), _ACCOUNTANTS[:1]) for each in plans]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "plans.json").write_text(json.dumps(asked), encoding="utf-8")
        answers = environment.ask(folder)
    found, halved = answers[:number], answers[number:]
    _print_violations(plans, found)
    triples = list(zip(plans, found, halved, strict=True))
    by_kind = [[each for each in triples if each[0].mechanism == kind] for kind in kinds]
    return [
        *(_kind(kind, some) for kind, some in zip(kinds, by_kind, strict=True)),
        _kind("all", triples),
        *(_accountant(name, plans, found) for name in _ACCOUNTANTS),
        _tight(plans, found),
    ]


def _asked(plan: Drawn, laws: Sequence[Law], accountants: Sequence[str]) -> dict[str, Any]:
    return {
        "laws": laws,
        "delta": plan.promise.delta,
        "promised": plan.promise.epsilon,
        "accountants": accountants,
    }


def _halved(laws: Sequence[Law]) -> list[Law]:
    """Returns laws with half of the noise in the one that costs most: the control."""
    changed = copy.deepcopy(list(laws))
    most = max((each for each in changed if each["law"] != "threshold"), key=_cost)
    if "epsilon" in most:
        most["epsilon"] *= 2
    else:
        most["scale"] /= 2
    return changed


def _cost(law: Law) -> float:
    """Returns about what a law adds to a mu^2."""
    loss = law["epsilon"] if "epsilon" in law else math.hypot(*law["change"]) / law["scale"]
    return float(law["times"] * loss**2)


def _lowest(answer: dict[str, Bounds]) -> float:
    """Returns the largest bound from below."""
    return max(answer[name][0] or 0.0 for name in _ACCOUNTANTS if name in answer)


def _is_broken(plan: Drawn, bound: float) -> bool:
    return bound > plan.epsilon * (1 + _AGREEMENT)


def _print_violations(plans: Sequence[Drawn], found: Sequence[dict[str, Any]]) -> None:
    for plan, answer in zip(plans, found, strict=True):
        if _is_broken(plan, _lowest(answer)):
            print(
                f"{plan.mechanism}: epsilon {plan.epsilon}, {plan.promise}, {answer}, {plan.laws}"
            )


def _kind(what: str, triples: Sequence[tuple[Drawn, dict[str, Any], dict[str, Any]]]) -> Row:
    """Returns the row of a kind of plan."""
    broken = sum(_is_broken(plan, _lowest(answer)) for plan, answer, _ in triples)
    caught = sum(_lowest(halved) > plan.promise.epsilon for plan, _, halved in triples)
    # Without a delta, bounds from below are those at a small delta: no ratio.
    below = [
        plan.epsilon / _lowest(answer)
        for plan, answer, _ in triples
        if plan.promise.delta and _lowest(answer)
    ]
    above = []
    for plan, answer, _ in triples:
        bounds = [answer[name][1] for name in _ACCOUNTANTS if answer[name][1]]
        if bounds:
            above.append(plan.epsilon / min(bounds))
    figures = {"promises broken": Figure(broken, "number")}
    for name, ratios in (("largest bound from below", below), ("least bound from above", above)):
        if ratios:
            figures[f"ours / {name}"] = Figure(math.fsum(ratios) / len(ratios), "share")
            figures[f"at most, {name.split()[-1]}"] = Figure(max(ratios), "share")
    figures["half the noise is found"] = Figure(caught / len(triples), "parts of all")
    return Row(what, figures, runs=len(triples), wanted="0")


def _accountant(name: str, plans: Sequence[Drawn], found: Sequence[dict[str, Any]]) -> Row:
    """Returns the row of an accountant: only its own bounds, and how often it has one."""
    below = [(plan, low) for plan, each in zip(plans, found, strict=True) if (low := each[name][0])]
    above = [
        (plan, high) for plan, each in zip(plans, found, strict=True) if (high := each[name][1])
    ]
    broken = sum(_is_broken(plan, low) for plan, low in below)
    ratios = [plan.epsilon / high for plan, high in above]
    for words in sorted({each[says] for each in found if (says := f"{name} says") in each}):
        print(f"{name} refuses: {words}")
    figures = {
        "promises broken": Figure(broken, "number"),
        "ours / least bound from above": Figure(math.fsum(ratios) / len(ratios), "share"),
        "at most, above": Figure(max(ratios), "share"),
        "bounds": Figure(len(below) + len(above), "number"),
    }
    return Row(name, figures, runs=len(plans), wanted="0")


def _tight(plans: Sequence[Drawn], found: Sequence[dict[str, Any]]) -> Row:
    """Returns the row of plans that have Gaussian noise alone, whose epsilon should be exact."""
    far, ratios = 0, []
    for plan, answer in zip(plans, found, strict=True):
        low, high = answer["dp-accounting"]
        is_gaussian = all(law["law"] == "gaussian" for law in plan.laws)
        is_exact = is_gaussian and plan.mechanism not in _INEXACT
        if low and high and is_exact:
            ratios.append(plan.epsilon / high)
            far += plan.epsilon > (high + (high - low)) * (1 + _AGREEMENT)
    figures = {
        "promises broken": Figure(0, "number"),
        "ours / least bound from above": Figure(math.fsum(ratios) / len(ratios), "share"),
        "at most, above": Figure(max(ratios), "share"),
        "farther above than the stated error": Figure(far, "number"),
    }
    return Row("Gaussian noise alone, tight", figures, runs=len(ratios), wanted="0")
