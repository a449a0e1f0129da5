"""Attacks on released records: anonymeter, SynthEval, and an attack on scikit-learn's estimator.

``asked.py FOLDER anonymeter`` reads ``train.npy`` and ``control.npy``, ``released-*.npy`` and
``told.json``. ``asked.py FOLDER membership`` reads ``runs.npz``: ``targets-N`` and ``others-N``
are true records of run N, ``members-N`` says which targets the table held, and ``released-N-*``
are what was released of it.
"""

from __future__ import annotations

import functools
import itertools
import json
import pathlib
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator
from anonymeter.stats.confidence import EvaluationResults, residual_success
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.naive_bayes import CategoricalNB
from syntheval import SynthEval

Codes = NDArray[np.int64]
Measured = tuple[float, ...]  # a value, and half of its interval at 95 % if there is one

_SEED = 20261127
# Columns that an attacker knows of; few records differ from all others in fewer coded columns.
_COLUMNS, _MOST_QUERIES = 6, 10_000
_NEIGHBOURS = 10
_RESAMPLED = 200
# What the attack adds to a count: a pair of codes that was not released is weak evidence.
_ADDED = 0.1


def by_anonymeter(folder: pathlib.Path) -> dict[str, dict[str, dict[str, Measured]]]:
    """Returns the risk and the rates of each attack on each release."""
    told = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    secret, number = told["secret"], told["attacks"]

    def frame(name: str) -> pd.DataFrame:
        columns = np.load(folder / f"{name}.npy").T
        named = zip(told["columns"], columns, strict=True)
        # Text is a category to anonymeter, and a number has an order.
        return pd.DataFrame(
            {name: each if name in told["ordered"] else each.astype(str) for name, each in named}
        )

    train, control = frame("train"), frame("control")
    columns = list(train)
    known = [name for name in columns if name != secret]
    halves = columns[: len(columns) // 2], columns[len(columns) // 2 :]
    found = {}
    for path in folder.glob("released-*.npy"):
        true, released = {"ori": train, "control": control}, frame(path.stem)
        more = {**true, "syn": released, "n_attacks": number}
        single = {**more, "n_cols": _COLUMNS, "max_attempts": _MOST_QUERIES, "seed": _SEED}
        attacks = {
            "singling out, one column": SinglingOutEvaluator(**single).evaluate("univariate"),
            f"singling out, {_COLUMNS} columns": SinglingOutEvaluator(**single).evaluate(),
            "linkability": LinkabilityEvaluator(
                **more, aux_cols=halves, n_neighbors=_NEIGHBOURS
            ).evaluate(n_jobs=1),
            f"inference of {secret}": InferenceEvaluator(
                **more, aux_cols=known, secret=secret
            ).evaluate(n_jobs=1),
        }
        results = {name: _rates(each.results()) for name, each in attacks.items()}
        found[path.stem.removeprefix("released-")] = results
    return found


def _rates(results: EvaluationResults) -> dict[str, Measured]:
    """Returns its risk before it is cut to 0 to 1, and what it is made of."""
    attack, control = results.attack_rate, results.control_rate
    rates = {"risk": residual_success(attack, control), "attack": attack, "control": control}
    return {name: (float(each.value), float(each.error)) for name, each in rates.items()}


def membership(folder: pathlib.Path) -> dict[str, dict[str, Measured]]:
    """Returns how well members are told from others by each release."""
    runs = np.load(folder / "runs.npz")
    number = sum(name.startswith("members-") for name in runs)
    kinds = sorted({name.split("-", 2)[2] for name in runs if name.startswith("released-")})
    found = {}
    for kind in kinds:
        scored, guessed = [], []
        for run in range(number):
            targets, members, others = (
                runs[f"{name}-{run}"] for name in ("targets", "members", "others")
            )
            released = runs[f"released-{run}-{kind}"]
            scored.append((members, _scores(targets, released, others)))
            guessed.append(_by_syntheval(targets[members], targets[~members], released))
        found[kind] = {
            "area under the curve": _interval(scored, _area),
            "members found at 1 % false": _interval(scored, functools.partial(_found, 0.01)),
            "members found at 10 % false": _interval(scored, functools.partial(_found, 0.1)),
            "SynthEval's precision": _interval(guessed, functools.partial(_mean, 0)),
            "SynthEval's recall": _interval(guessed, functools.partial(_mean, 1)),
        }
    return found


def _scores(targets: Codes, released: Codes, others: Codes) -> NDArray[np.float64]:
    """Returns how much likelier pairs of codes are in the release than in other true records.

    The naive Bayes estimate takes all pairs of columns as independent, and so compares counts of
    pairs, which are what releases of all pairs were fitted to.
    """
    asked, ours, true = _pairs(targets, released, others)
    sizes = 1 + np.max([table.max(axis=0) for table in (asked, ours, true)], axis=0)
    model = CategoricalNB(alpha=_ADDED, fit_prior=False, min_categories=sizes)
    model.fit(np.concatenate([ours, true]), np.repeat([1, 0], [len(ours), len(true)]))
    chances = model.predict_joint_log_proba(asked)
    scores: NDArray[np.float64] = chances[:, 1] - chances[:, 0]
    return scores


def _pairs(*tables: Codes) -> list[Codes]:
    """Returns tables with a column for each pair of columns, whose codes count from 0."""
    joined = np.concatenate(tables)
    pairs = itertools.combinations(range(joined.shape[1]), 2)
    columns = [
        np.unique(joined[:, pair], axis=0, return_inverse=True)[1].reshape(-1) for pair in pairs
    ]
    ends = np.cumsum([len(table) for table in tables])
    return np.split(np.stack(columns, axis=1), ends[:-1])


def _by_syntheval(members: Codes, others: Codes, released: Codes) -> Measured:
    """Returns precision and recall of its classifier, which guesses among as many of each."""
    if len(released) < len(others):  # which it does not take
        released = np.random.default_rng(_SEED).choice(released, len(others))
    true, held_out, drawn = (
        pd.DataFrame(each).add_prefix("c") for each in (members, others, released)
    )
    judge = SynthEval(true, held_out, cat_cols=list(true), verbose=False)
    judge.evaluate(drawn, mia={"num_eval_iter": 1})
    raw = judge._raw_results["mia"]
    return raw["MIA precision"], raw["MIA recall"]


def _pooled(runs: Sequence[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    members, scores = zip(*runs, strict=True)
    return np.concatenate(members), np.concatenate(scores)


def _area(runs: Sequence[Any]) -> float:
    """Returns the area under the ROC curve."""
    return float(roc_auc_score(*_pooled(runs)))


def _found(share: float, runs: Sequence[Any]) -> float:
    """Returns the share of members above the threshold that a share of others is above."""
    false, true, _ = roc_curve(*_pooled(runs))
    return float(np.interp(share, false, true))


def _mean(place: int, runs: Sequence[Measured]) -> float:
    return float(np.mean([each[place] for each in runs]))


def _interval(runs: Sequence[Any], measure: Callable[[Sequence[Any]], float]) -> Measured:
    """Returns what is measured, and half of its bootstrap interval: several runs are redrawn."""
    if len(runs) == 1:
        return (measure(runs),)
    generator = np.random.default_rng(_SEED)
    drawn = generator.integers(len(runs), size=(_RESAMPLED, len(runs)))
    low, high = np.quantile([measure([runs[i] for i in each]) for each in drawn], [0.025, 0.975])
    return measure(runs), float(high - low) / 2


def main() -> None:
    """Leaves what was found as JSON."""
    warnings.simplefilter("ignore")
    np.random.seed(_SEED)  # noqa: NPY002 - the libraries draw from it
    folder, attack = pathlib.Path(sys.argv[1]), sys.argv[2]
    found = {"anonymeter": by_anonymeter, "membership": membership}[attack](folder)
    (folder / "answer.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
