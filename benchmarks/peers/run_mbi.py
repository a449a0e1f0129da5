"""AIM of mbi's repository, whose package holds the models and not the mechanisms.

``MBI_MECHANISMS`` names the folder ``mechanisms`` of a copy of that repository.
"""

from __future__ import annotations

import itertools
import os
import sys
import types
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from task import Task, run

sys.path.append(os.environ["MBI_MECHANISMS"])
jax.config.update("jax_enable_x64", True)  # as mbi asks for

import aim  # noqa: E402
from mbi import Dataset, Domain, estimation  # noqa: E402


class _Descent(estimation.MirrorDescent):
    """The estimator by its interface before 2.0.0, which the mechanism still uses."""

    def estimate(self, *given: Any, potentials: Any = None, **named: Any) -> Any:
        return super().estimate(*given, warm_start=potentials, **named)


class _AIM(aim.AIM):  # type: ignore[misc]
    """Marginals that are looked at once are not compiled, which took most of the time."""

    def worst_approximated(self, *given: Any) -> Any:
        with jax.disable_jit():
            return super().worst_approximated(*given)


def release(task: Task) -> NDArray[np.int64]:
    """Returns as many records as there are; by itself it would draw as many as it estimates."""
    aim.estimation = types.SimpleNamespace(MirrorDescent=_Descent)
    names = list(task.sizes)
    records = Dataset(dict(zip(names, task.codes.T, strict=True)), Domain.fromdict(task.sizes))
    workload = [(each, 1.0) for each in itertools.combinations(names, task.ways)]
    generator = np.random.default_rng(task.seed)
    mechanism = _AIM(task.epsilon, task.delta, prng=generator, **task.options)
    _, made = mechanism.run(records, workload, num_synth_rows=len(task.codes))
    columns = made.to_dict()
    return np.stack([np.asarray(columns[name], np.int64) for name in names], axis=1)


if __name__ == "__main__":
    run(release)
