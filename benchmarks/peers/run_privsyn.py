"""PrivSyn, as the package of its core has it: it takes codes and sizes, and no marginals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from privsyn import PrivSynModel
from task import Task, run


def release(task: Task) -> NDArray[np.int64]:
    """Returns as many records as there are: this system, too, takes their number as public."""
    names = list(task.sizes)
    model = PrivSynModel(epsilon=task.epsilon, delta=task.delta, random_state=task.seed)
    model.fit(pd.DataFrame(task.codes, columns=names), task.sizes)
    return model.sample(len(task.codes))[names].to_numpy(np.int64)


if __name__ == "__main__":
    run(release)
