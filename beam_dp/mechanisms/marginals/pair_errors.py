"""The errors of pairs of attributes that are measured or not, as public numbers lead to expect.

A score is the noisy L1 distance of a pair's exact table from a table of independent attributes. In
small tables, most of this distance is no dependence: sampling alone moves counts, and the counts of
attributes are noisy. What a score has beyond both, as a share of the largest possible distance, is
shrunk towards the mean share as far as noise explains the difference (empirical Bayes). All errors
are L1, in records; independent errors add up as squares.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.mechanisms.marginals.measurements import residual_norm
from beam_dp.models.basis import Support
from beam_dp.privacy.noise.bound import MEAN_ABSOLUTE
from beam_dp.releases.synthetic_database.measured_tables import sampling_errors

# A fit leaves about this fraction of the noise of a measured table.
REMAINING_NOISE = 0.6


@dataclasses.dataclass(frozen=True)
class NoisyAttribute:
    """The noisy counts of an attribute."""

    counts: NDArray[np.float64]  # estimates, in records
    deviation: float  # of an estimate
    noise: float  # the standard deviation of the noise of a measured count

    @property
    def largest_distance(self) -> float:
        """The L1 distance of the attribute and its copy from independence."""
        total = max(float(self.counts.sum()), 1.0)
        return 2 * (total - float(self.counts @ self.counts) / total)

    def error(self, noise: float = math.inf) -> float:
        """Returns the error of the counts, after a second measurement with this noise."""
        deviation = self.deviation / math.hypot(1, self.noise / noise)
        # A count below its noise may be all wrong, and is then missing elsewhere.
        error = np.minimum(2 * self.counts, MEAN_ABSOLUTE * deviation).sum()
        return min(float(error), self.largest_distance / 2)


def posterior_means(
    noisy: NDArray[np.float64], largest: NDArray[np.float64], variance: float
) -> NDArray[np.float64]:
    """Returns the posterior means of values that have noise of a variance.

    ``largest``: the largest possible values, > 0. The shares of these have a normal prior, whose
    mean and variance are learned from all values. The mean is lowered by its standard error: to
    measure what is only noise costs more than to leave out what is weak.
    """
    squares = max(float(largest @ largest), 1.0)
    mean, of_noise = max(float(largest @ noisy) / squares, 0.0), variance / squares
    # Shares are from 0 to 1, so their mean square is at most 1, and their variance at most 1 / 4.
    of_mean = min(max(mean**2 - of_noise, 0.0), 1.0)
    mean *= of_mean / (of_mean + of_noise)
    away = noisy - mean * largest
    of_shares = max(float(away @ away) / squares - len(away) * of_noise, 0.0)
    signal = min(of_shares, 0.25) * largest**2
    error = math.sqrt(of_mean * of_noise / (of_mean + of_noise))
    return max(mean - error, 0.0) * largest + away * signal / (signal + variance)


@dataclasses.dataclass(frozen=True)
class ExpectedErrors:
    """The expected errors of pairs."""

    answers: Mapping[Support, NDArray[np.float64]]  # the tables for independent attributes
    scores: Mapping[Support, float]  # noisy distances of the exact tables from these
    independent: Mapping[Support, float]  # the scores to expect of independent attributes
    distances: Mapping[Support, float]  # of the exact tables from independence
    attributes: Sequence[NoisyAttribute]

    @classmethod
    def of(
        cls,
        answers: Mapping[Support, NDArray[np.float64]],
        scores: Mapping[Support, float],
        variance: float,  # of the noise of a score
        attributes: Sequence[NoisyAttribute],
    ) -> ExpectedErrors:
        """Returns the errors that noisy scores lead to expect."""
        tables = [answers[axes] for axes in scores]
        # Rows and columns of a pair sum to the counts of its attributes, which leaves less to move.
        free = [math.sqrt(residual_norm(table.shape)) for table in tables]
        sampled = np.array([sampling_errors(table).sum() for table in tables]) * free
        noisy = [math.hypot(*(attributes[axis].error() for axis in axes)) for axes in scores]
        largest = [min(attributes[axis].largest_distance for axis in axes) for axes in scores]
        independent = np.hypot(sampled, noisy)
        beyond = posterior_means(
            np.array([*scores.values()]) - independent, np.maximum(largest, 1.0), variance
        )
        squares = np.maximum(independent + beyond, 0.0) ** 2 - np.square(noisy)
        distances = np.minimum(np.sqrt(np.maximum(squares, 0.0)), largest)
        return cls(
            answers,
            scores,
            dict(zip(scores, independent.tolist(), strict=True)),
            dict(zip(scores, distances.tolist(), strict=True)),
            attributes,
        )

    def worst(self, fitted: Mapping[Support, NDArray[np.float64]], number: int) -> list[Support]:
        """Returns the pairs whose scores lead to expect the largest errors of cells in a fit.

        The distance between the score and the score to expect of the fit is a lower bound of the
        error of the whole table. Of this, the furthest cell of the fit has its share.
        """
        errors = {}
        for axes, table in fitted.items() if number else ():
            away = np.abs(table - self.answers[axes])
            distance = float(away.sum())
            missed = abs(self.scores[axes] - math.hypot(self.independent[axes], distance))
            errors[axes] = missed * float(away.max()) / max(distance, 1e-9)
        return sorted(errors, key=lambda axes: -errors[axes])[:number]

    def left(self, axes: Support, deviation: float) -> float:
        """Returns the error that noise leaves in a pair, without the error of its attributes."""
        answer, noise = self.answers[axes], MEAN_ABSOLUTE * deviation
        # Below the noise, a cell keeps the error of sampling, or all that is expected may be wrong.
        least = np.minimum(np.maximum(answer, sampling_errors(answer)), noise).sum()
        # Noise that is larger than the distances of cells, spread as those of samples, hides them.
        roots = np.sqrt(answer)
        away = roots * (self.distances[axes] / max(float(roots.sum()), 1.0))
        hidden = (away * noise / np.maximum(np.hypot(away, noise), 1e-9)).sum()
        return max(float(least), float(hidden))

    def total(
        self,
        joined: Sequence[Support],
        loose: Sequence[Support],
        deviations: Mapping[Support, float],  # of the noise of the measurements
        weights: Mapping[Support, float],
    ) -> float:
        """Returns the weighted error of all pairs if some of them are measured."""
        errors = dict(self.distances)
        errors |= {axes: self.left(axes, REMAINING_NOISE * deviations[axes]) for axes in joined}
        errors |= {axes: self.left(axes, deviations[axes]) for axes in loose}
        noise = [deviations.get((axis,), math.inf) for axis in range(len(self.attributes))]
        alone = [each.error(of) for each, of in zip(self.attributes, noise, strict=True)]
        return sum(
            weights[axes] * math.hypot(error, *(alone[axis] for axis in axes))
            for axes, error in errors.items()
        )
