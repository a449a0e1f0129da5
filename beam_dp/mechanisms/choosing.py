"""Selection from a public list by the exponential mechanism with integer scores.

Scores must be integers in public units, and move by at most ``sensitivity`` when one privacy unit
changes as the relation says. That bound holds for both relations alike; what differs is its value:
a count of records moves by 1 under add-or-remove-one, a difference of two by 2 under replace-one.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.rounding import up
from beam_dp.releases.synthetic_database.noisy_measurements import MAX_SCORE


def exponential_mechanism(
    scores: NDArray[np.int64],
    sensitivity: int,
    epsilon: float,
    noise: NoiseSource,
    *,
    monotone: bool = False,
) -> int:
    """Returns a candidate r with probability proportional to exp(epsilon score(r) / (2D)).

    Privacy: epsilon, pure, for the relation and unit that the sensitivity D was computed for;
    epsilon^2 / 8 zero-concentrated. With ``monotone`` the 2 is left out.

    Accuracy: the score is at least the largest less (2D / epsilon) (ln R + ln(1 / beta)) with
    probability 1 - beta, for R candidates; where k of them are best, R / k takes the place of R.

    Args:
        scores: shape (num_candidates,), int64, at least one; secret.
        sensitivity: D, how much any score may move, an integer >= 1.
        epsilon: > 0.
        noise: of this draw.
        monotone: one more record moves all scores the same way, and the relation is
            add-or-remove-one. Errors of hypotheses are not monotone.

    Raises:
        InputError: if a public parameter is out of range.

    Reference: McSherry and Talwar (2007); Dwork and Roth (2014), Theorems 3.10 and 3.11; Dong,
    Durfee and Rogers (2020) for the concentrated privacy.
    """
    return noise.select(checked_scores(scores), selection_scale(sensitivity, epsilon, monotone))


def permute_and_flip(
    scores: NDArray[np.int64],
    sensitivity: int,
    epsilon: float,
    noise: NoiseSource,
    *,
    monotone: bool = False,
) -> int:
    """Visits the candidates in random order and takes r with probability exp(-gap(r) / scale).

    The gap is to the largest score, the scale 2D / epsilon.

    Privacy: epsilon, pure, for the relation and unit of the sensitivity D. No bounded range, so
    no better than epsilon^2 / 2 zero-concentrated: among many rounds prefer the exponential
    mechanism.

    Accuracy: the expected shortfall of the score is never more than the exponential mechanism's
    and at best half of it; its bound holds here too.

    Args:
        scores: as in ``exponential_mechanism``.
        sensitivity: as there.
        epsilon: as there.
        noise: of this draw.
        monotone: as there; the 2 is then left out.

    Raises:
        InputError: if a public parameter is out of range.

    Cost: up to 1e-5 s a candidate; the number of visits depends on the scores.
    Reference: McKenna and Sheldon (2020), Theorems 1, 2 and 5. The coins are tossed exactly.
    """
    return noise.permute_and_flip(
        checked_scores(scores), selection_scale(sensitivity, epsilon, monotone)
    )


def geometric_noisy_max(
    scores: NDArray[np.int64],
    sensitivity: int,
    epsilon: float,
    noise: NoiseSource,
    *,
    monotone: bool = False,
) -> int:
    """Returns the candidate with the largest score plus one-sided geometric noise.

    The noise G has P(G = z) proportional to exp(-z epsilon / (2D)) for z >= 0; among equal sums
    the first candidate wins. Noise and maximum can be spread over workers: a maximum of (sum,
    lowest index) is all that they need to exchange.

    Privacy: epsilon, pure, ties included, for the relation and unit of the sensitivity D: relative
    to the largest of its competitors a candidate moves by an integer of at most 2D, or D for
    ``monotone`` scores, which changes the tail of the geometric law by a factor of at most
    exp(epsilon). No bounded range, as for ``permute_and_flip``.

    Accuracy: the score is at least the largest less (2D / epsilon) (ln R + ln(1 / beta)), rounded
    up to an integer, with probability 1 - beta, for R candidates: no noise exceeds that.

    Args:
        scores: as in ``exponential_mechanism``; clipped to 2^61 on either side, which moves none
            of them more.
        sensitivity: as there.
        epsilon: as there.
        noise: of this draw.
        monotone: as there.

    Raises:
        InputError: if a public parameter is out of range.

    Cost: about 2e-5 s a candidate, whatever the scores.
    Reference: Dwork and Roth (2014), Claim 3.9 and Section 3.3, with noise on integers.
    """
    scale = selection_scale(sensitivity, epsilon, monotone)
    clipped = np.clip(checked_scores(scores), -MAX_SCORE, MAX_SCORE)
    return int(np.argmax(clipped + noise.geometric(len(clipped), scale)))


def selection_scale(sensitivity: int, epsilon: float, monotone: bool = False) -> float:
    """Returns 2D / epsilon, or D / epsilon for monotone scores, rounded up.

    Raises:
        InputError: if a parameter is out of range, or noise of this scale would not fit 64 bits.

    Example:
        >>> 2 <= selection_scale(1, 1.0) < 2 + 1e-9
        True
    """
    checked_integer("sensitivity", sensitivity, 1)
    checked_number("epsilon", epsilon, above=0)
    exact = Fraction(sensitivity * (1 if monotone else 2)) / Fraction(epsilon)
    if exact >= MAX_SCALE:
        condition = f"makes noise of a scale of 2^50 and more for the sensitivity {sensitivity}"
        raise InputError("epsilon", epsilon, condition)
    return up(exact)


def checked_scores(scores: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns scores.

    Raises:
        InputError: unless they are one or more int64 values in one dimension.
    """
    if scores.dtype != np.int64 or scores.ndim != 1 or not scores.size:
        shape = f"{scores.dtype} {scores.shape}"
        raise InputError("scores", shape, "must be one or more int64 values in one dimension")
    return scores
