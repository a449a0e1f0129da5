"""Tests draws of noise against their law with Tumult Core's own tester of samplers."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np
from tmlt.core.measurements.aggregations import NoiseMechanism
from tmlt.core.utils import testing

_LAWS = {
    "laplace": NoiseMechanism.GEOMETRIC,
    "gaussian": NoiseMechanism.DISCRETE_GAUSSIAN,
}
_FUDGE = 0.05  # the control: laws of a scale that is 5 % smaller and 5 % larger


def main() -> None:
    """Writes, for each sample, the p-value of its law and of the two wrong ones."""
    folder = pathlib.Path(sys.argv[1])
    found: dict[str, Any] = {}
    for each in json.loads((folder / "samples.json").read_text("utf-8")):
        mechanism = _LAWS[each["law"]]
        functions = testing.get_prob_functions(mechanism, {"x": 0})
        is_gaussian = each["law"] == "gaussian"  # its law there has the square as its parameter
        scale = each["scale"] ** 2 if is_gaussian else each["scale"]
        found[each["name"]] = testing._run_chi_squared_tests(
            np.load(folder / each["file"]),
            loc=0,
            conjectured_scale=scale,
            cmf=functions["cmfs"]["x"],
            pmf=functions["pmfs"]["x"],
            fudge_factor=_FUDGE * (2 if is_gaussian else 1),
        )
    (folder / "answer.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
