"""Draws of ``NoiseSource``, tested by Tumult Core's tester of samplers."""

from __future__ import annotations

import json
import pathlib
import shutil
import tempfile

import numpy as np

from beam_dp.privacy.noise.source import NoiseSource
from benchmarks.judges.environment import Environment
from benchmarks.recorded import Figure, Row

_SCALES = (0.7, 3.3, 41.5)
_DRAWS, _QUICK_DRAWS = 1_000_000, 200_000
# With this p-value, one of the six true laws is refused by chance once in a million runs.
_LEAST = 1e-6 / 6


def rows(environment: Environment, quick: bool) -> list[Row]:
    """Returns the p-values of each law, and of the same law with a wrong scale."""
    if shutil.which("java") is None:
        return [Row("not run: Tumult Core needs Java", {"laws refused": Figure(0, "number")}, 0)]
    number, noise = _QUICK_DRAWS if quick else _DRAWS, NoiseSource()
    with tempfile.TemporaryDirectory() as name:
        folder, samples = pathlib.Path(name), []
        for law, draw in (("laplace", noise.laplace), ("gaussian", noise.gaussian)):
            for scale in _SCALES:
                file = f"{law}_{scale}.npy"
                np.save(folder / file, draw(np.zeros(number, np.int64), scale))
                what = f"discrete {law.capitalize()}, scale {scale}"
                samples.append({"name": what, "law": law, "scale": scale, "file": file})
        (folder / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
        found = environment.ask(folder)
    return [
        Row(
            what,
            {
                "laws refused": Figure(right < _LEAST, "number"),
                "p-value": Figure(right, "share"),
                "5 % less noise": Figure(less, "small share"),
                "5 % more noise": Figure(more, "small share"),
            },
            runs=number,
            wanted="0",
        )
        for what, (right, less, more) in found.items()
    ]
