"""What to count for a workload: one histogram, or the tables themselves."""

from __future__ import annotations

from collections.abc import Iterable

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.summaries.marginals import MarginalsAccumulator

# Beyond this many merged tables a record is counted faster in one histogram of the domain,
# whose tables are then summed up once; up to 2^26 cells (512 MiB) of it.
_FEW_TABLES = 4
_HISTOGRAM_CELLS = 2**26


def choose_accumulator(
    domain: Domain, tables: Iterable[tuple[str, ...]]
) -> HistogramAccumulator | MarginalsAccumulator:
    """Returns what to count so that all tables follow from it, by public sizes alone.

    Raises:
        InputError: if neither the domain nor the tables fit.
    """
    try:
        marginals = MarginalsAccumulator(domain, tables)
    except InputError:
        if domain.num_cells > _HISTOGRAM_CELLS:
            raise
        return HistogramAccumulator(domain)
    if domain.num_cells <= _HISTOGRAM_CELLS and (
        marginals.num_merged_tables > _FEW_TABLES or marginals.num_cells >= domain.num_cells
    ):
        return HistogramAccumulator(domain)
    return marginals
