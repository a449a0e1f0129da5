"""Attacks by others' tools on releases, and on what they must succeed at.

Each attack is also made on a copy of the records, and on a release whose noise is switched off: an
attack that fails there as well proves nothing.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.workload import marginals
from benchmarks import accuracy_tables, error_parts
from benchmarks.judges.environment import Environment
from benchmarks.recorded import Figure, Row

Codes = NDArray[np.int64]

_SEED = 20261127
_DELTA = 1e-9


class NoNoise(error_parts.NoNoise):
    """Adds no Gaussian noise, and selects what scores best."""

    def select(self, scores: NDArray[np.int64], scale: float) -> int:
        """Returns the place of the largest score."""
        return int(np.argmax(scores))


@dataclasses.dataclass(frozen=True)
class _Kind:
    """What is attacked: a release for all pairs of columns; a copy without an epsilon."""

    epsilon: float = math.inf
    noise: type[NoiseSource] = NoiseSource

    def release(self, domain: Domain, records: Codes) -> Codes:
        """Returns records that stand for those given."""
        if self.epsilon == math.inf:
            return np.random.default_rng(_SEED).permutation(records)
        guarantee = Guarantee(self.epsilon, _DELTA, "add_or_remove_one", "record", 1)
        mechanism = MWEM()
        plan = mechanism.plan(domain, marginals(domain, ways=2), guarantee, "noisy")
        tables = accuracy_tables.count(domain, list(records.T), plan.summary_tables)
        made = mechanism.release(plan, tables, self.noise())
        codes = np.stack([np.asarray(column, np.int64) for column in made.codes], axis=1)
        return np.repeat(codes, made.counts, axis=0)

    def most_found(self, false: float) -> float:
        """Returns the largest share of members that can be found at a share of false ones."""
        if self.noise is NoNoise or self.epsilon == math.inf:
            return 1.0
        return min(1.0, math.exp(self.epsilon) * false + _DELTA)


# A plan for a small epsilon expects noise, and so its fit follows tables only roughly. Noise is
# therefore switched off in a plan that expects little.
_COPY = "a copy"
_KINDS = {
    _COPY: _Kind(),
    "no noise": _Kind(100.0, NoNoise),
    "epsilon 10": _Kind(10.0),
    "epsilon 1": _Kind(1.0),
    "epsilon 0.1": _Kind(0.1),
}
# Columns whose codes are in order, and the one that is inferred.
_TABLES = {
    "nist": (("AGEP", "EDU", "PINCP_DECILE"), "PINCP_DECILE"),
    "adult": (
        ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
        "income>50K",
    ),
}
_ATTACKS = 500
# At the smallest epsilon, a release of much fewer records may be nearly empty.
_QUICK_TABLE, _QUICK_RECORDS, _QUICK_ATTACKS = "nist", 4000, 100
# Small tables hold about half of the targets: each is in it if a fair coin says so.
_TARGETS, _OTHERS, _RUNS, _QUICK_RUNS = 1000, 5000, 12, 1
_MEMBERSHIP_TABLE = "nist"
_FALSE = (0.01, 0.1)
# What a copy must give.
_WANTED = {
    "risk": "> 0",
    "area under the curve": "> 50 %",
    "members found at 1 % false": "> 1 %",
    "members found at 10 % false": "> 10 %",
    "SynthEval's precision": "> 50 %",
}


def rows(environment: Environment, quick: bool) -> list[Row]:
    """Returns rows for each attack, with a figure for each thing that is attacked."""
    if quick:
        codes = _codes(_QUICK_TABLE)[: 2 * _QUICK_RECORDS]
        found = _anonymeter(environment, _QUICK_TABLE, codes, _QUICK_ATTACKS)
        return [*found, *_membership(environment, _QUICK_RUNS)]
    found = []
    for table in _TABLES:
        found += _anonymeter(environment, table, _codes(table), _ATTACKS)
    return [*found, *_membership(environment, _RUNS)]


def _codes(table: str) -> Codes:
    """Returns the records of a table in random order."""
    _, columns = accuracy_tables.load(table)
    return np.random.default_rng(_SEED).permutation(np.stack(columns, axis=1))


def _anonymeter(environment: Environment, table: str, codes: Codes, attacks: int) -> list[Row]:
    """Attacks half of the records by what is released of them; the others are the control."""
    domain, _ = accuracy_tables.load(table)
    train, control = np.array_split(codes, 2)
    ordered, secret = _TABLES[table]
    told = {"columns": domain.names, "ordered": ordered, "secret": secret, "attacks": attacks}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
        np.save(folder / "train.npy", train)
        np.save(folder / "control.npy", control)
        for kind, each in _KINDS.items():
            np.save(folder / f"released-{kind}.npy", each.release(domain, train))
        answer = environment.ask(folder, "anonymeter")
    return [
        _row(
            f"{table}, {attack}",
            rate,
            {kind: answer[kind][attack][rate] for kind in _KINDS},
            attacks,
        )
        for attack, rates in answer[_COPY].items()
        for rate in rates
    ]


def _membership(environment: Environment, runs: int) -> list[Row]:
    """Releases small tables, and has those who are in them told from others."""
    domain, _ = accuracy_tables.load(_MEMBERSHIP_TABLE)
    codes, generator = _codes(_MEMBERSHIP_TABLE), np.random.default_rng(_SEED)
    arrays: dict[str, Any] = {}
    for run in range(runs):
        drawn = generator.permutation(codes)
        targets, members = drawn[:_TARGETS], generator.random(_TARGETS) < 0.5
        arrays[f"targets-{run}"], arrays[f"members-{run}"] = targets, members
        arrays[f"others-{run}"] = drawn[_TARGETS:][:_OTHERS]
        for kind, each in _KINDS.items():
            arrays[f"released-{run}-{kind}"] = each.release(domain, targets[members])
    with tempfile.TemporaryDirectory() as name:
        np.savez(pathlib.Path(name, "runs.npz"), **arrays)
        answer = environment.ask(pathlib.Path(name), "membership")
    what = f"{_MEMBERSHIP_TABLE}, membership"
    measures = {name: {kind: answer[kind][name] for kind in _KINDS} for name in answer[_COPY]}
    for false in _FALSE:
        most = {kind: (each.most_found(false),) for kind, each in _KINDS.items()}
        measures[f"limit of epsilon at {false:.0%} false".replace("%", " %")] = most
    return [_row(what, name, by_kind, runs) for name, by_kind in measures.items()]


def _row(what: str, measure: str, by_kind: dict[str, Sequence[float]], runs: int) -> Row:
    """Returns the row of shares, some with half of their interval."""
    figures = {}
    for kind, shares in by_kind.items():
        value, *error = (100 * share for share in shares)
        figures[kind] = Figure(value, "percent", *error)
    return Row(f"{what}: {measure}", figures, runs=runs, wanted=_WANTED.get(measure, ""))
