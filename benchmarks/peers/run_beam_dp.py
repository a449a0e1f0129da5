"""This project: the mechanism that it takes for marginals where none is named."""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np
from numpy.typing import NDArray
from task import Task, run

# Before what is installed, for this working copy is what is measured.
sys.path[:0] = [str(folder) for folder in pathlib.Path(__file__).resolve().parents[1:3]]

import accuracy_tables  # noqa: E402

from beam_dp.domain.files import read_domain  # noqa: E402
from beam_dp.mechanisms.marginals.measure_all import MWEM  # noqa: E402
from beam_dp.privacy.guarantee import Guarantee  # noqa: E402
from beam_dp.privacy.noise.source import NoiseSource  # noqa: E402
from beam_dp.queries.workload import marginals  # noqa: E402


def release(task: Task) -> NDArray[np.int64]:
    """Returns as many records as there are; their noise is the system's, and takes no seed."""
    domain = read_domain(json.dumps(task.sizes))
    workload = marginals(domain, ways=task.options.get("ways", task.ways))
    guarantee = Guarantee(task.epsilon, task.delta, "add_or_remove_one", "record", 1)
    mechanism = MWEM()
    plan = mechanism.plan(domain, workload, guarantee, len(task.codes))
    tables = accuracy_tables.count(domain, list(task.codes.T), plan.summary_tables)
    made = mechanism.release(plan, tables, NoiseSource())
    codes = np.stack([np.asarray(column, np.int64) for column in made.codes], axis=1)
    return np.repeat(codes, made.counts, axis=0)


if __name__ == "__main__":
    run(release)
