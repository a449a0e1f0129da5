"""Fits SDV's synthesizer and this project's, and has SDMetrics score what all systems released.

The folder holds ``train.npy``, which are true records, ``told.json``: the columns, and those whose
codes have an order; and ``released-NAME.npy`` of other systems, to which two files are added.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sdmetrics.reports import QualityReport
from sdv.metadata import Metadata
from sdv.single_table import GaussianCopulaSynthesizer

sys.path[:0] = [
    str(pathlib.Path(__file__).resolve().parents[3]),
    str(pathlib.Path(__file__).parent),
]

from adapter import PrivateSynthesizer  # noqa: E402

SYNTHESIZERS = {"SDV": GaussianCopulaSynthesizer, "SDV's methods": PrivateSynthesizer}


def main() -> None:
    """Leaves processor seconds and scores as JSON, by system."""
    warnings.simplefilter("ignore")
    folder = pathlib.Path(sys.argv[1])
    told = json.loads((folder / "told.json").read_text(encoding="utf-8"))

    def frame(name: str) -> pd.DataFrame:
        columns = zip(told["columns"], np.load(folder / f"{name}.npy").T, strict=True)
        return pd.DataFrame(
            {name: each if name in told["ordered"] else each.astype(str) for name, each in columns}
        )

    train = frame("train")
    kinds = {name: "numerical" if name in told["ordered"] else "categorical" for name in train}
    columns = {name: {"sdtype": kind} for name, kind in kinds.items()}
    described = {"tables": {"records": {"columns": columns}}}
    found: dict[str, dict[str, Any]] = {}
    for name, kind in SYNTHESIZERS.items():
        start = time.process_time()
        synthesizer = kind(Metadata.load_from_dict(described))
        synthesizer.fit({"records": train})
        made = synthesizer.sample(len(train))["records"]
        found[name] = {"seconds": time.process_time() - start}
        # A category that no column declares is the code -1.
        codes = made.apply(pd.to_numeric, errors="coerce").fillna(-1)
        np.save(folder / f"released-{name}.npy", codes.to_numpy().round().astype(np.int64))
    for path in folder.glob("released-*.npy"):
        report = QualityReport()
        report.generate({"records": train}, {"records": frame(path.stem)}, described, verbose=False)
        scores = report.get_properties().set_index("Property")["Score"]
        figures = found.setdefault(path.stem.removeprefix("released-"), {})
        figures |= {"columns": scores["Column Shapes"], "pairs": scores["Column Pair Trends"]}
    (folder / "answer.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
