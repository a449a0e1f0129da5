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

    Together with earlier releases, if ``plan.discovered`` or ``plan.records_per_unit`` state any,
    it keeps ``plan.promised``, which the card then states.
    """
    release = mechanism.release(plan, summary, noise, progress)
    release = dataclasses.replace(
        release, records_format=plan.records_format, within_bins=plan.within_bins
    )
    if plan.discovered is None and plan.records_per_unit is None:
        return release
    return dataclasses.replace(
        release,
        discovered=plan.discovered,
        records_per_unit=plan.records_per_unit,
        guarantee=plan.promised,
    )
