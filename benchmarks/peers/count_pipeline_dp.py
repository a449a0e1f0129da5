"""PipelineDP's count of the codes of one column, at most so many rows a unit."""

from __future__ import annotations

import json
import logging
import pathlib
import sys
from typing import Any

logging.disable(logging.WARNING)

import apache_beam as beam  # noqa: E402 - its import already logs
import numpy as np  # noqa: E402
import pipeline_dp  # noqa: E402
from apache_beam.runners.portability.fn_api_runner import FnApiRunner  # noqa: E402


def main() -> None:
    """Counts the rows of the folder that the command line names."""
    folder = pathlib.Path(sys.argv[1])
    limits = json.loads((folder / "limits.json").read_text(encoding="utf-8"))
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | beam.io.ReadFromParquet(
            str(folder / "rows.parquet"), columns=["unit", "c0"]
        )
        accountant = pipeline_dp.NaiveBudgetAccountant(
            total_epsilon=limits["epsilon"], total_delta=limits["delta"]
        )
        engine = pipeline_dp.DPEngine(accountant, pipeline_dp.BeamBackend())
        counts = engine.aggregate(
            rows,
            pipeline_dp.AggregateParams(
                metrics=[pipeline_dp.Metrics.COUNT],
                noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
                max_contributions=limits["rows_of_a_unit"],
            ),
            pipeline_dp.DataExtractors(
                privacy_id_extractor=lambda row: row["unit"],
                partition_extractor=lambda row: row["c0"],
                value_extractor=lambda row: 0,
            ),
            public_partitions=list(range(limits["codes"])),
        )
        accountant.compute_budgets()
        found = counts | beam.combiners.ToList()
        _ = found | beam.Map(_save, str(folder / "counts.npy"), limits["codes"])


def _save(counts: list[tuple[int, Any]], path: str, num_codes: int) -> None:
    by_code = np.zeros(num_codes)
    for code, answer in counts:
        by_code[code] = answer.count
    np.save(path, by_code)


if __name__ == "__main__":
    main()
