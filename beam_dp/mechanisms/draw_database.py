"""The draw of a synthetic database: from an exact summary to a release, wherever it is drawn."""

from __future__ import annotations

import dataclasses

from beam_dp.mechanisms.contract import Mechanism, Progress
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.within_bins import with_bin_values
from beam_dp.noise.source import NoiseSource
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Histogram
from beam_dp.summaries.marginals import Marginals


def draw_database(
    mechanism: Mechanism,
    plan: MarginalsPlan,
    summary: Histogram | Marginals,
    noise: NoiseSource,
    progress: Progress | None = None,
) -> SyntheticDatabase:
    """Returns a release that keeps ``plan.guarantee``, with the values that stand for bins.

    Args:
        mechanism: that made the plan.
        plan: what is drawn.
        summary: exact; of ``choose_accumulator``, so that the tables of the plan follow from it.
        noise: of this draw.
        progress: called with public quantities.
    """
    if not isinstance(summary, Marginals):
        summary = summary.marginals(plan.summary_tables)
    release = mechanism.release(plan, summary, noise, progress)
    release = dataclasses.replace(release, records_format=plan.records_format)
    return with_bin_values(release, noise) if plan.within_bins == "uniform" else release
