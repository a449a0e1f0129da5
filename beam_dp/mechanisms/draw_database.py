"""Draws a synthetic database: turns an exact summary into a release."""

from __future__ import annotations

import dataclasses

from beam_dp.mechanisms.checks import Progress
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.noise.source import NoiseSource
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Marginals


def draw_database(
    mechanism: Mechanism,
    plan: MarginalsPlan,
    summary: Marginals,
    noise: NoiseSource,
    progress: Progress | None = None,
) -> SyntheticDatabase:
    """Returns a release that keeps ``plan.guarantee``, in the plan's format.

    Together with the release of its domain, if ``plan.discovered`` states one, it keeps
    ``plan.promised``, which the card then states.
    """
    release = mechanism.release(plan, summary, noise, progress)
    return dataclasses.replace(
        release,
        records_format=plan.records_format,
        within_bins=plan.within_bins,
        discovered=plan.discovered,
        guarantee=release.guarantee if plan.discovered is None else plan.promised,
    )
