"""Noisy sums of where numbers lie within their bins, and the means that follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from beam_dp.checks import checked_number, is_integer
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.steps import Step, noise_step
from beam_dp.queries.dense_tables import Vector
from beam_dp.releases.error_bars import DEVIATIONS
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable

GRID = 2**20  # the parts of a bin
_PRIOR_VARIANCE = 1 / 12  # of a mean place before it is measured, as of a uniform number
_DEVIATIONS = DEVIATIONS["discrete_laplace"]


class BinSums(NamedTuple):
    """Noisy sums of places less 1/2, of each bin of each column; and the stated deviation.

    Released values follow the stated one, so ``verify`` charges a forged scale, not the records.
    """

    measured: MeasuredTable
    sums: Vector
    deviation: float

    def to_json(self) -> dict[str, Any]:
        """Returns the entry of a card."""
        steps = np.rint(self.sums * GRID).astype(np.int64)
        return {**self.measured.to_json(), "sums": steps.tolist()}

    @classmethod
    def from_json(cls, parsed: Any, domain: Domain) -> BinSums:
        """Returns the sums that a card states."""
        fields = dict(parsed) if isinstance(parsed, dict) else {}
        sums, columns = fields.pop("sums", None), placed_columns(domain)
        measured = MeasuredTable.from_json(fields, domain, ("bin_sums",))
        if measured.names != tuple(column.name for column in columns) or measured.grid != GRID:
            raise InputError("bin_sums", measured.names, "must be of all numeric columns with bins")
        number = sum(column.num_levels for column in columns)
        are_sums = isinstance(sums, list) and len(sums) == number
        if not (are_sums and all(is_integer(step) and abs(step) < 2**62 for step in sums)):
            raise InputError("bin_sums, sums", type(sums).__name__, f"must be {number} integers")
        deviation = checked_number("bin_sums", parsed["standard_deviation"], above=0)
        return cls(measured, np.array(sums, np.float64) / GRID, deviation)

    def means(
        self, domain: Domain, counts: Mapping[str, Vector], usual: Mapping[str, Vector]
    ) -> dict[str, BinMeans]:
        """Returns the means of each column's bins, shrunk by their noise towards usual places.

        ``counts``: the records of each code. ``usual``: the mean places without a measurement.
        """
        by_column, start = {}, 0
        for column in placed_columns(domain):
            numbers = counts[column.name][: column.num_levels]
            sums, start = self.sums[start:][: column.num_levels], start + column.num_levels
            weights = _PRIOR_VARIANCE * numbers / (_PRIOR_VARIANCE * numbers**2 + self.deviation**2)
            trust, places = weights * numbers, usual[column.name]
            places = np.clip(places + trust * (0.5 - places) + weights * sums, 0.0, 1.0)
            low, high = (ends.astype(np.float64) for ends in column.bin_ends)
            with np.errstate(all="ignore"):  # extreme edges make infinite widths
                widths = high - low
                noise = widths * trust * self.deviation
            centers = low * (1 - places) + high * places
            # A whole number is drawn as a part of its bin.
            shares = (places * widths + 0.5) / (widths + 1) if column.whole else places
            by_column[column.name] = BinMeans(places, shares, centers, widths, trust, noise)
        return by_column


def placed_columns(domain: Domain) -> tuple[NumericAttribute, ...]:
    """Returns the numeric attributes of which sums are measured: some bin has several numbers."""
    return tuple(
        column
        for column in domain
        if isinstance(column, NumericAttribute) and np.less(*column.bin_ends).any()
    )


def sums_step(measured: MeasuredTable, guarantee: Guarantee) -> Step:
    """Returns the step that draws the sums.

    A record moves a sum of each column by half a bin, a replaced record by a whole bin.
    """
    of_record = GRID if guarantee.neighboring is Neighboring.REPLACE_ONE else GRID // 2
    of_unit, columns = guarantee.max_records_per_unit * of_record, len(measured.names)
    norms = columns * of_unit, columns * of_unit**2
    return noise_step("sum places within bins", measured.distribution, *norms, measured.scale)


class BinMeans(NamedTuple):
    """The means of a column's bins; arrays of shape (bins,).

    ``places``: where they lie, from 0 for the smallest number to 1. ``shares``: where drawn values
    lie. ``centers``: the means. ``widths``: of the bins. ``trust``: the weight of the measurement.
    ``noise``: its deviation in a sum of numbers.
    """

    places: Vector
    shares: Vector
    centers: Vector
    widths: Vector
    trust: Vector
    noise: Vector

    @property
    def reach(self) -> Vector:
        """How far a number of a bin may be from the center."""
        return self.widths * np.maximum(self.places, 1 - self.places)

    def margins(self, counts: Vector, everybody: Vector) -> tuple[Vector, Vector]:
        """Returns how far each bin, and all together, may move sums over some records (95 %).

        The mean place of n of a bin's N records differs most from the mean m of all if the n are at
        one end: sums move by at most min(n (1 - m), m (N - n)) widths up, and likewise down.

        ``counts``: n of each question, shape (questions, bins). ``everybody``: N, shape (bins,).
        """
        n, m = np.maximum(counts, 0.0), self.places
        rest = np.maximum(everybody - n, 0.0)
        apart = np.maximum(np.minimum(n * (1 - m), m * rest), np.minimum(n * m, (1 - m) * rest))
        largest = n * self.reach
        sure = np.minimum(self.widths * apart + (1 - self.trust) * largest, largest)
        noise = np.minimum(_DEVIATIONS * self.noise * n / np.maximum(n + rest, 1.0), largest)
        return sure + noise, sure.sum(axis=1) + np.sqrt((noise**2).sum(axis=1))
