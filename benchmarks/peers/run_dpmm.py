"""AIM and MST of dpmm. Codes are given, so its step that cuts numbers into bins is left out."""

from __future__ import annotations

import numpy as np
import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline
from numpy.typing import NDArray
from task import Task, run


def release(task: Task) -> NDArray[np.int64]:
    """Returns as many records as there are: this system, too, takes their number as public."""
    settings = dict(task.options)
    kind = {"AIM": AIMPipeline, "MST": MSTPipeline}[settings.pop("mechanism")]
    if kind is AIMPipeline:  # MST measures pairs, whatever is asked
        settings["degree"] = task.ways
    pipeline = kind(
        epsilon=task.epsilon,
        delta=task.delta,
        max_model_size=settings.pop("max_model_size", None),
        n_jobs=1,
        gen_kwargs=settings,
        disable_processing=True,
    )
    records = pd.DataFrame(task.codes, columns=list(task.sizes))
    pipeline.fit(records, domain=task.sizes, random_state=task.seed)
    drawn = pipeline.generate(n_records=len(records), random_state=task.seed)
    return drawn[list(task.sizes)].to_numpy(np.int64)


if __name__ == "__main__":
    run(release)
