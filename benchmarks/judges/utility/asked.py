"""Scores released records: SDMetrics, SynthEval, and models that are trained on them.

The folder holds ``train.npy`` and ``held_out.npy``, which are true records, ``released.npy``,
which was made of the first, and ``told.json``: the sizes of the columns, and the one to predict.
"""

from __future__ import annotations

import json
import pathlib
import sys
import warnings

import lightgbm
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sdmetrics.reports import DiagnosticReport, QualityReport
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from syntheval import SynthEval

Codes = NDArray[np.int64]


def by_models(train: Codes, held_out: Codes, sizes: list[int], target: int) -> dict[str, float]:
    """Returns areas under the ROC curve on held-out records; 0.5 where there is one class."""
    columns = [column for column in range(len(sizes)) if column != target]
    middle = min(np.median(held_out[:, target]), sizes[target] - 2)  # so that some are above it
    x, y = train[:, columns], train[:, target] > middle
    held_x, held_y = held_out[:, columns], held_out[:, target] > middle
    codes = OneHotEncoder(categories=[range(sizes[column]) for column in columns])
    models = {
        "logistic": make_pipeline(codes, LogisticRegression(max_iter=1000)),
        "forest": RandomForestClassifier(random_state=0),
        "LightGBM": lightgbm.LGBMClassifier(random_state=0, n_jobs=1, verbose=-1),
    }
    found = {}
    for name, model in models.items():
        area = 0.5
        if len(np.unique(y)) == 2:
            area = roc_auc_score(held_y, model.fit(x, y).predict_proba(held_x)[:, 1])
        found[f"AUC, {name}"] = float(area)
    return found


def by_sdmetrics(train: pd.DataFrame, released: pd.DataFrame) -> dict[str, float]:
    """Returns the scores of both reports."""
    told = {"tables": {"records": {"columns": {n: {"sdtype": "categorical"} for n in train}}}}
    given = {"records": train}, {"records": released}, told
    quality, diagnostic = QualityReport(), DiagnosticReport()
    quality.generate(*given, verbose=False)
    diagnostic.generate(*given, verbose=False)
    scores = quality.get_properties().set_index("Property")["Score"]
    return {
        "SDMetrics: columns": scores["Column Shapes"],
        "pairs": scores["Column Pair Trends"],
        "diagnostic": float(diagnostic.get_score()),
    }


def by_syntheval(train: pd.DataFrame, released: pd.DataFrame) -> dict[str, float]:
    """Returns the mean Hellinger distance of columns, and the propensity's mean square error."""
    judge = SynthEval(train, cat_cols=list(train), verbose=False)
    found = judge.evaluate(released, h_dist={}, p_mse={})
    values = found.set_index("metric")["val"]
    return {
        "SynthEval: Hellinger": float(values["avg_h_dist"]),
        "propensity": float(values["avg_pMSE"]),
    }


def main() -> None:
    """Leaves all figures as JSON."""
    warnings.simplefilter("ignore")
    folder = pathlib.Path(sys.argv[1])
    told = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    sizes, target = told["sizes"], told["target"]
    train, held_out, released = (
        np.load(folder / f"{name}.npy") for name in ("train", "held_out", "released")
    )
    frames = [pd.DataFrame(each, columns=list(sizes)) for each in (train, released)]
    found = by_models(released, held_out, list(sizes.values()), list(sizes).index(target))
    found |= by_sdmetrics(*frames) | by_syntheval(*frames)
    (folder / "answer.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
