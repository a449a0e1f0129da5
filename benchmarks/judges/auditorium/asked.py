"""Tests samples of mechanisms on two neighbours with a classifier of Google's DP-Auditorium.

The folder holds ``one_K.npy`` and ``other_K.npy``, outputs of shape (n, d) of a neighbour, and
``told.json``: for each K the epsilon, the delta, and how likely a bound may be wrong.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import types
from typing import Any

import numpy as np

sys.path.append(os.environ["DP_AUDITORIUM"])
# What finds neighbours is not needed, and would need a package whose versions do not fit.
sys.modules["dp_auditorium.generators"] = types.ModuleType("generators")

import tensorflow as tf  # noqa: E402
from dp_auditorium.configs import privacy_property, property_tester_config  # noqa: E402
from dp_auditorium.testers import hockey_stick_tester as hockey_stick  # noqa: E402

_EPOCHS = 10  # its default, two, is for many more samples


def tester(told: dict[str, float]) -> Any:
    """Returns what bounds delta at an epsilon from below."""
    training = hockey_stick.make_default_hs_training_config()
    training.training_epochs = _EPOCHS
    promise = privacy_property.ApproximateDp(told["epsilon"], told["delta"])
    config = property_tester_config.HockeyStickPropertyTesterConfig(training, promise)
    return hockey_stick.HockeyStickPropertyTester(config, hockey_stick.make_default_hs_base_model())


def standardised(one: np.ndarray, other: np.ndarray) -> list[np.ndarray]:
    """Returns outputs moved and scaled by those that a classifier learns from: the first half."""
    first = np.concatenate([each[: len(each) // 2] for each in (one, other)])
    mean, spread = first.mean(axis=0), first.std(axis=0) + 1e-6
    return [(each - mean) / spread for each in (one, other)]


def main() -> None:
    """Leaves the larger bound of both directions for each K, as JSON."""
    folder, found = pathlib.Path(sys.argv[1]), []
    for place, told in enumerate(json.loads((folder / "told.json").read_text(encoding="utf-8"))):
        raw = (np.load(folder / f"{name}_{place}.npy") for name in ("one", "other"))
        sides = standardised(*raw)
        tf.keras.utils.set_random_seed(place)
        bounds = (
            tester(told).estimate_lower_bound(*pair, told["failure"])
            for pair in (sides, sides[::-1])
        )
        found.append(float(max(bounds)))
    (folder / "answer.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
