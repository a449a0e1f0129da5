"""Draws a synthetic database: turns an exact summary into a release."""

from __future__ import annotations

import dataclasses

import numpy as np

from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.mechanisms.checks import Progress
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.noise.source import NoiseSource
from beam_dp.releases.synthetic_database.records import MAX_BIN_VALUES, num_bin_values
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Marginals


def draw_database(
    mechanism: Mechanism,
    plan: MarginalsPlan,
    summary: Marginals,
    noise: NoiseSource,
    progress: Progress | None = None,
) -> SyntheticDatabase:
    """Returns a release that keeps ``plan.guarantee``, with values drawn within their bins."""
    release = mechanism.release(plan, summary, noise, progress)
    release = dataclasses.replace(release, records_format=plan.records_format)
    return with_bin_values(release, noise) if plan.within_bins == "uniform" else release


def with_bin_values(release: SyntheticDatabase, noise: NoiseSource) -> SyntheticDatabase:
    """Returns a release with one value per record and attribute with bins.

    Each value is uniform in its bin and independent of all other values, so the value depends on
    the data only through the bin, which the release states anyway: post-processing, at no privacy
    cost. A release that would have more than 2^25 such values is returned unchanged.
    """
    if _is_too_large(release):
        return release
    values = {}
    for attribute, codes in zip(release.domain, release.codes, strict=True):
        if not isinstance(attribute, BinnedAttribute):
            continue
        of_records = np.repeat(codes, release.counts).astype(np.int64)
        is_in_bin = of_records < attribute.num_levels
        bins = np.where(is_in_bin, of_records, 0)
        drawn = attribute.values_within(bins, noise.uniforms(len(bins)))
        values[attribute.name] = np.where(is_in_bin, drawn, 0)
    return dataclasses.replace(release, bin_values=values)


def middles_warning(release: SyntheticDatabase, within_bins: str) -> str | None:
    """Returns a warning if a committed release has too many values to draw within their bins."""
    if within_bins != "uniform" or not _is_too_large(release):
        return None
    return (
        f"each value with bins is the middle of its bin, as with midpoint: there are more than"
        f" {MAX_BIN_VALUES:,} such values (records times attributes with bins)"
    )


def _is_too_large(release: SyntheticDatabase) -> bool:
    return num_bin_values(release.domain, release.num_records) > MAX_BIN_VALUES
