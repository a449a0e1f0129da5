"""Composes laws of noise with accountants of other projects; needs nothing of this one.

For every plan in plans.json, and every accountant that it names: bounds on the epsilon at a delta,
from below and from above. A bound that an accountant does not give, or cannot compute, is null.
"""

from __future__ import annotations

import json
import math
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from autodp import mechanism_zoo, transformer_zoo
from dp_accounting.pld import privacy_loss_distribution as pld
from prv_accountant import PRVAccountant, privacy_random_variables as prvs
from scipy import stats

Law = dict[str, Any]
# At delta 0 the numerical accountants are asked for this delta: a bound from below is true for 0.
_SMALL_DELTA = 1e-10
_LARGEST = 400  # the largest discrete noise or change that is composed cell by cell
# Where a choice of range epsilon has its two losses, as shares of epsilon above 0.
_PLACES = (0.5, 0.75, 0.95)


def single(laws: list[Law]) -> Iterator[tuple[str, float, float, int, bool]]:
    """Yields noise on single numbers: law, scale, change, how often, whether all is whole."""
    found: dict[tuple[str, float, float, bool], int] = {}
    for law in laws:
        for change in law.get("change", ()):
            each = law["law"], law["scale"], change, law["is_whole"]
            found[each] = found.get(each, 0) + law["times"]
    for (name, scale, change, is_whole), times in found.items():
        yield name, scale, change, times, is_whole


def choices(laws: list[Law]) -> list[Law]:
    """Returns the laws of which only an epsilon is known."""
    return [law for law in laws if law["law"] in ("range", "pure")]


def slack(laws: list[Law]) -> float:
    """Returns the probability that something of one unit alone passes a threshold."""
    found = 0.0
    for law in laws:
        if law["law"] != "threshold":
            continue
        worst = 0.0
        for weights in law["cases"]:
            distances = np.array([law["threshold"] - weight for weight in weights])
            if law["of"] == "laplace":
                tails = stats.dlaplace.sf(distances - 1, 1 / law["scale"])
            else:  # on a grid of thousands of steps a deviation, and half a step to the right
                tails = stats.norm.sf(distances - 0.5, scale=law["scale"])
            worst = max(worst, -math.expm1(np.log1p(-tails).sum()))
        found += worst
    return found


def two_points(loss: float, range_: float, step: float, is_upper: bool) -> Any:
    """Returns the PLD of two outcomes whose losses are ``loss`` and ``loss - range_``."""
    other = loss - range_
    share = -math.expm1(other) / (math.exp(loss) - math.exp(other))  # of the first, under Q
    upper = {0: math.log(share) + loss, 1: math.log1p(-share) + other}
    lower = {0: math.log(share), 1: math.log1p(-share)}
    return pld.from_two_probability_mass_functions(
        lower, upper, pessimistic_estimate=is_upper, value_discretization_interval=step,
        symmetric=loss == range_ / 2,
    )  # fmt: skip


def composed(laws: list[Law], step: float, is_upper: bool, place: float) -> Any:
    """Returns the PLD of all laws, rounded up or down."""
    kept = {
        "pessimistic_estimate": is_upper,
        "value_discretization_interval": step,
        "use_connect_dots": is_upper,  # there is no other algorithm for bounds from below
    }
    whole = None
    for name, scale, change, times, is_whole in single(laws):
        is_small = is_whole and change == int(change) and max(scale, change) <= _LARGEST
        if name == "laplace" and is_small:
            one = pld.from_discrete_laplace_mechanism(1 / scale, int(change), **kept)
        elif name == "laplace":
            one = pld.from_laplace_mechanism(scale, change, **kept)
        elif is_small:
            one = pld.from_discrete_gaussian_mechanism(scale, int(change), **kept)
        else:
            one = pld.from_gaussian_mechanism(scale, change, **kept)
        one = one.self_compose(times) if times > 1 else one
        whole = one if whole is None else whole.compose(one)
    for law in choices(laws):
        # Of a pure choice, randomised response is the worst law; a range admits either side.
        range_ = law["epsilon"] * (2 if law["law"] == "pure" or is_upper else 1)
        at = range_ / 2 if law["law"] == "pure" or is_upper else place * range_
        one = two_points(at, range_, step, is_upper)
        one = one.self_compose(law["times"]) if law["times"] > 1 else one
        whole = one if whole is None else whole.compose(one)
    return whole


def dp_accounting(laws: list[Law], delta: float, promised: float) -> tuple[float, float | None]:
    """Returns bounds by dp-accounting's privacy loss distributions."""
    number = sum(each[3] for each in single(laws)) + sum(law["times"] for law in choices(laws))
    step = max(promised * 4e-3 / max(number, 4), promised * 2e-6)
    left = (delta or _SMALL_DELTA) - slack(laws)
    if left <= 0:
        return 0.0, None
    has_range = any(law["law"] == "range" for law in laws)
    low = max(
        composed(laws, step, False, place).get_epsilon_for_delta(left)
        for place in (_PLACES if has_range else _PLACES[:1])
    )
    high = None
    if delta and not has_range:
        high = composed(laws, step, True, 0.5).get_epsilon_for_delta(left)
    return float(low), high


def prv(laws: list[Law], delta: float, promised: float) -> tuple[float, float | None]:
    """Returns bounds by prv-accountant, which knows continuous noise only."""
    left = (delta or _SMALL_DELTA) - slack(laws)
    if left <= 0:
        return 0.0, None
    made: list[tuple[Any, int]] = []
    for name, scale, change, times, _ in single(laws):
        law = prvs.GaussianMechanism(scale / change)
        if name == "laplace":
            law = prvs.LaplaceMechanism(change / scale)
        made.append((law, times))
    for law in choices(laws):
        half = 2 if law["law"] == "range" else 1
        made.append((prvs.PureDPMechanism(law["epsilon"] / half), law["times"]))
    times = [each for _, each in made]
    accountant = PRVAccountant(
        [each for each, _ in made],
        eps_error=promised * 0.01,
        delta_error=left / 1000,
        max_self_compositions=times,
    )
    low, _, high = accountant.compute_epsilon(left, times)
    has_range = any(law["law"] == "range" for law in laws)
    return float(low), None if has_range or not delta else float(high)


def autodp(laws: list[Law], delta: float, _: float) -> tuple[None, float | None]:
    """Returns a bound from above by autodp: exact for Gaussian noise alone, else by Renyi order."""
    left = delta - slack(laws)
    made: list[Any] = []
    times = []
    for name, scale, change, number, _whole in single(laws):
        if name == "gaussian":
            made.append(mechanism_zoo.ExactGaussianMechanism(scale / change))
        else:
            made.append(mechanism_zoo.LaplaceMechanism(scale / change))
            made[-1].eps_pureDP = change / scale
        times.append(number)
    for law in choices(laws):
        is_range = law["law"] == "range"
        zoo = mechanism_zoo.ExponentialMechanism if is_range else mechanism_zoo.PureDP_Mechanism
        made.append(zoo(law["epsilon"]))
        made[-1].eps_pureDP = law["epsilon"]
        times.append(law["times"])
    if not delta:
        return None, float(transformer_zoo.Composition()(made, times).eps_pureDP)
    exact = all(isinstance(each, mechanism_zoo.ExactGaussianMechanism) for each in made)
    compose = transformer_zoo.ComposeGaussian() if exact else transformer_zoo.Composition()
    return None, float(compose(made, times).get_approxDP(left))


def checked(bounds: tuple[float | None, float | None]) -> list[float | None]:
    """Returns finite bounds, and null for others."""
    return [each if each is not None and math.isfinite(each) else None for each in bounds]


ACCOUNTANTS: dict[str, Callable[[list[Law], float, float], Any]] = {
    "dp-accounting": dp_accounting,
    "prv-accountant": prv,
    "autodp": autodp,
}


def main() -> None:
    """Answers all plans of a folder."""
    warnings.simplefilter("ignore")
    folder = pathlib.Path(sys.argv[1])
    answers = []
    for plan in json.loads((folder / "plans.json").read_text("utf-8")):
        found: dict[str, Any] = {}
        for name in plan["accountants"]:
            try:
                bounds = ACCOUNTANTS[name](plan["laws"], plan["delta"], plan["promised"])
                found[name] = checked(bounds)
            except (ArithmeticError, AssertionError, RuntimeError, ValueError) as error:
                found[name] = [None, None]
                found[f"{name} says"] = f"{type(error).__name__}: {error}"[:200]
        answers.append(found)
    (folder / "answer.json").write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
