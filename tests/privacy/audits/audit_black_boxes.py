"""Every mechanism as the contract's table runs it: what its releases tell of two neighbours.

Least squares on pilot runs find the direction in which the numbers of a release differ most; other
runs are judged by their place on it. One record is on one side only, or in another cell. Instead of
the last fit of a synthetic database, post-processing, stand the noisy tables, released, too.
"""

import dataclasses
import itertools
import re
from collections import Counter
from typing import Any

import auditing
import numpy as np
import pandas as pd
import pytest
from auditing import Audit, Finding, both, plan_with, scale_noise, shrink_noise_of
from mechanism_cases import CASES, COUNTS, KEYS, Counts, away
from tiny import ADD, REPLACE

from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource

# The share of the promise that the bound reaches, what divides the noise of the mutant, the runs on
# either side, behind pilots of a third as many, and epsilon. A share is so low that hits on both
# sides are off by seven deviations below it: a chance below 1e-9. Where many draws share the
# promise, one direction shows little of it; only the mutant proves then that the audit sees.
USUAL = 0.3, 2, 3000, 2.0
SHARED = re.compile(" to |textbook|windows|sketch|_proj|hybrid|that|rounds|annealed|a tree|db")
TRIALS: dict[str, tuple[float, int, int, float]] = {
    **{name: (0.05, 2, 3000, 2.0) for name in CASES if "gaussian" in name},
    **{name: (0.0, 8, 1000, 2.0) for name in CASES if SHARED.search(name)},
    **dict.fromkeys(("mwem textbook", "mwem that stops"), (0.0, 32, 3000, 3.0)),
    "top_queries": (0.0, 8, 1000, 3.0),
    "sparse_mw": (0.0, 64, 1500, 1.0),
    **dict.fromkeys(("discovery", "types"), (0.0, 32, 1000, 5.0)),
    "records per unit": (0.3, 2, 3000, 100.0),
    "mwem with public records": (0.0, 32, 400, 1.0),  # whose fits take long
}
ELSEWHERE = {  # by the name of the audit
    "private_mw": "whole pipeline, PrivateMW",
    "bin sums": "bin sums, pure, k = 1",
}
CHEAP = "mwem", "laplace", "left out", "intervals histogram discrete_laplace"


def audits() -> list[Audit]:
    found = []
    for name, relation in itertools.product(CASES, (ADD, REPLACE)):
        if name in ELSEWHERE or (relation == REPLACE and name not in CHEAP):
            continue
        least, divisor, runs, epsilon = TRIALS.get(name, USUAL)
        delta = 0.1 if CASES[name].deltas[0] else 0.0  # large, so that few runs see most of it
        guarantee = Guarantee(epsilon, delta, relation, "record", 1, allow_large_delta=True)
        selects = (shrink_noise_of(each, divisor) for each in ("select", "permute_and_flip"))
        bugs = {"noise too small in the sampler": both(scale_noise(1 / divisor), *selects)}
        if name == "small_db":  # draws by coins of its own
            bugs = {"epsilon too large": plan_with(epsilon=lambda epsilon: 8 * epsilon)}
        if name in CHEAP:
            bugs["sensitivity halved"] = auditing.SENSITIVITY_HALVED
        case = {"black box": black_box}, {"black box": bugs}, name, guarantee, least, runs
        dear = ("black box",) * (name != CHEAP[0])
        found.append(auditing.audited(f"whole runs, {name}", guarantee, *case, dear=dear))
    return found


def black_box(name: str, guarantee: Guarantee, least: float, runs: int) -> Finding:
    case, pilot, moved = CASES[name], runs // 3, np.eye(6, dtype=np.int64)
    neighbours = COUNTS + moved[0], COUNTS + moved[4] * (guarantee.neighboring == REPLACE)
    with case.around(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("beam_dp.privacy.guarantee.MAX_DELTA", 1.0)
        for module in ("measure_all", "rounds", "selection"):
            patch.setattr(f"beam_dp.mechanisms.marginals.{module}.synthesise", tables_alone)
        promised = case.priced(case.plan(guarantee)).guarantee if case.priced else guarantee
        plan = case.plan(auditing.planned_for(guarantee))
        tables = [runs_of(name, plan, counts, runs + pilot) for counts in neighbours]
    usual = pd.concat([each[:pilot] for each in tables]).median()
    held = pd.concat(tables, keys=(0, 1)).fillna(usual).fillna(0.0).to_numpy()
    held = held.reshape(2, runs + pilot, -1)
    # Laplace noise tells nothing more beyond the two exact values.
    ends = np.sort(np.median(held[:, :pilot], axis=1), axis=0)
    features = np.concatenate([held, np.clip(held, *ends), np.ones_like(held[..., :1])], axis=2)
    first = features[:, :pilot].reshape(2 * pilot, -1)
    weights = np.linalg.lstsq(first, np.repeat([1.0, -1.0], pilot), rcond=1e-6)[0]
    # In thirds of a standard deviation: with few thresholds no lucky one is chosen.
    scores = np.rint(features @ weights * 3 / (first @ weights).std())
    drawn = [iter(side) for side in scores.tolist()]
    sides = [lambda number, side=side: list(itertools.islice(side, number)) for side in drawn]
    found = auditing.told_apart(sides, promised, score=float, runs=runs, pilot_runs=pilot)
    sees = bool(found.lower_bound >= least * promised.epsilon)
    return dataclasses.replace(found, passes=found.passes and sees, is_blind=not sees)


def runs_of(name: str, plan: Any, counts: Counts, runs: int) -> pd.DataFrame:
    """What runs release; a unit counts in two windows, which are two runs."""
    source, run, times = NoiseSource(), CASES[name].run, 2 if name.startswith("windows") else 1
    shown = [[numbers(name, run(plan, counts, source)) for _ in range(runs)] for _ in range(times)]
    return pd.concat(map(pd.DataFrame, shown), axis=1, keys=range(times)).astype(float)


def numbers(name: str, release: Any) -> dict[Any, float]:
    """The numbers that a run releases, by what they count."""
    kind = getattr(release, "KIND", "")
    if isinstance(release, Tables):
        return release.numbers
    if kind == "answers":
        return {each["query"]: each["value"] for each in release.rows}
    if kind == "domain":
        return dict(zip(release.found[0].values, release.found[0].counts, strict=True))
    if isinstance(release, tuple):  # of an online run: with its answers
        found = release[1]
    elif kind == "intervals":
        found = np.diff(release.prefixes())
    elif name.startswith("mwem"):  # the textbook's
        found = np.concatenate([table.ravel() for _, table in release.potentials])
    elif name == "sparse_project":
        found = release.estimates(KEYS)
    else:
        found = np.ravel((CASES[name].errors or away)(release, COUNTS))
    return dict(enumerate(found))


# Stands in for a synthetic database; a table that is measured again has numbers of its own.
Tables = dataclasses.make_dataclass("Tables", ("numbers", "plan"))


def tables_alone(_: Any, measured: Any, tables: Any, *others: Any, **named: Any) -> Any:
    found, times = {}, Counter[Any]()
    for each, table in zip(measured, tables, strict=True):
        what = each.names, each.kind
        times[what] += 1
        found |= {(what, times[what], cell): x for cell, x in enumerate(np.ravel(table))}
    return Tables(found, {})
