"""Selects from a public list by noisy integer scores, for example by the exponential mechanism.

Scores must be integers, in public units. When one privacy unit changes under the relation, a score
moves by at most ``sensitivity``. The privacy proofs are valid for both relations; only the
sensitivity differs: a count of records moves by 1 under add-or-remove-one, and a difference of two
counts moves by 2 under replace-one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, check_is, checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import check_failure_probability, check_noise
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import choice_margin
from beam_dp.privacy.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.rounding import lowered, up
from beam_dp.releases.synthetic_database.measured_tables import MAX_SCORE


def selection_scale(sensitivity: int, epsilon: float, monotone: bool = False) -> float:
    """Returns the scale 2D / epsilon for a sensitivity D (D / epsilon if monotone), rounded up."""
    checked_integer("sensitivity", sensitivity, 1)
    checked_number("epsilon", epsilon, above=0)
    exact = Fraction(sensitivity * (1 if monotone else 2)) / Fraction(epsilon)
    if exact >= MAX_SCALE:
        condition = f"gives noise of scale 2^50 or more for the sensitivity {sensitivity}"
        raise InputError("epsilon", epsilon, condition)
    return up(exact)


def checked_scores(scores: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the scores, or raises InputError for another shape or type."""
    if scores.dtype != np.int64 or scores.ndim != 1 or not scores.size:
        shape = f"{scores.dtype} {scores.shape}"
        raise InputError("scores", shape, "must be one or more int64 values in one dimension")
    return scores


Method = Literal["geometric", "exponential", "permute_and_flip"]
METHODS: tuple[Method, ...] = ("geometric", "exponential", "permute_and_flip")

_OPERATIONS = 16  # larger than the number of rounded operations on a budget


@dataclasses.dataclass(frozen=True)
class TopChoice:
    """The method and the noise for choosing the largest scores; public."""

    method: Method
    number: int  # c, the number of scores that are chosen
    width: int  # W, the largest change of the difference of two scores, in their units
    scale: float  # the scale of the noise, in units of the scores
    spends_rho: bool = False

    @property
    def loss(self) -> Loss:
        """The loss of all choices together; see ``top_choice``."""
        epsilon = Fraction(self.width) / Fraction(self.scale)
        if self.method == "exponential":
            return Loss.range_bounded(epsilon).repeated(self.number)
        return Loss.pure(self.number * epsilon)

    def margin(self, num_candidates: int, failure_probability: float) -> float:
        """Returns a bound on how far the t-th chosen score is below the t-th largest, for every t.

        Accuracy: with probability 1 - beta. For R candidates and scale s, the bound is the integer
        just below s ln(R / beta) for one shot, and s ln(R c / beta) for c rounds. See
        ``choice_margin``.
        """
        checked_integer("num_candidates", num_candidates, self.number)
        check_failure_probability(failure_probability)
        one_shot = self.method == "geometric"
        return choice_margin(one_shot, self.scale, self.number, num_candidates, failure_probability)


def top_choice(
    guarantee: Guarantee,
    number: int,
    sensitivity: int,
    *,
    monotone: bool = False,
    method: Method | Literal["auto"] = "auto",
    num_candidates: int = 1000,
    failure_probability: float = 0.05,
) -> TopChoice:
    """Returns the method and noise that choose the c largest scores under a guarantee.

    Privacy: the guarantee, for scores that move by at most D between neighbours. The difference of
    two scores then moves by at most W: 2D, or D if ``monotone``.

    * ``geometric``: one shot. All scores get one-sided geometric noise of scale s, and the indices
      of the c largest sums are returned in order. Pure, epsilon = c W / s. Proof: take noise with
      which the scores u give i_1 ... i_c. Let u' be the neighbour's scores, and add D + u - u' to
      the noise of each of i_1 ... i_c. Their sums all rise by D, and no other sum rises by more, so
      u' gives i_1 ... i_c too, ties included, as all are integers. No noise value decreased, and
      each increased by at most 2D, so its probability fell by a factor of at most exp(2D / s). For
      monotone scores D + u - u' may be replaced by u - u' if u' is below u.
    * ``exponential``: c rounds of the exponential mechanism among the remaining candidates, which
      is exactly one shot of Gumbel noise. Each round has range W / s: epsilon = c W / s, rho =
      c (W / s)^2 / 8.
    * ``permute_and_flip``: c rounds of permute-and-flip. Pure, epsilon = c W / s; the range is not
      bounded. In a round the expected shortfall of the score is at most that of the exponential
      mechanism, and at best half of it.

    With delta > 0, the exponential mechanism spends rho; the other methods spend epsilon. ``auto``
    compares the first two methods by public numbers and takes the method with the smaller margin.

    Args:
        guarantee: the guarantee of all choices together.
        number: c, >= 1.
        sensitivity: D, the largest change of a score, an integer >= 1. For queries with values from
            0 to 1, D is the number of records per privacy unit times the score units per record.
        monotone: whether adding a unit moves all scores the same way; False under replace_one.
        method: see above.
        num_candidates: R, for the stated accuracy; privacy does not depend on R.
        failure_probability: the probability that the stated accuracy fails, in (0, 1).

    Raises:
        InputError: if an argument is out of range, or noise would not fit 64 bits.

    Reference: McSherry and Talwar (2007); Dwork and Roth (2014), Claim 3.9, Theorems 3.10 and 3.11;
    Durfee and Rogers (2019), Lemma 4.2; Dong, Durfee and Rogers (2020); McKenna and Sheldon (2020),
    Theorems 1, 2 and 5; for one shot of Laplace noise with delta, whose scale grows with the root
    of ln(R), Qiao, Su and Zhang (2021).

    Example:
        >>> promise = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
        >>> few, many = (top_choice(promise, c, 1, monotone=True) for c in (2, 100))
        >>> few.method, round(few.scale, 6), many.method, round(many.scale, 4)
        ('geometric', 2.0, 'exponential', 28.8935)
    """
    check_is("guarantee", guarantee, Guarantee)
    check_choice("method", method, ("auto", *METHODS))
    checked_integer("number", number, 1)
    checked_integer("sensitivity", sensitivity, 1)
    if monotone and guarantee.neighboring is Neighboring.REPLACE_ONE:
        raise InputError("monotone", monotone, "must be False under replace_one")
    width = sensitivity if monotone else 2 * sensitivity
    best = min(
        top_choices(guarantee, number, width, method),
        key=lambda choice: choice.margin(num_candidates, failure_probability),
    )
    check_noise(guarantee, [best.scale])
    return best


def top_choices(
    guarantee: Guarantee,
    number: int,
    width: int,
    method: Method | Literal["auto"],
    share: Fraction = Fraction(1),
) -> Iterator[TopChoice]:
    """Yields methods and noises that spend a share of a guarantee; see ``top_choice``."""
    methods: tuple[Method, ...] = METHODS[:2] if method == "auto" else (method,)
    for candidate in methods:
        if candidate == "exponential" and guarantee.delta > 0:
            # For a small c, the pure guarantee (yielded next) may need less noise.
            rho = zcdp_rho(guarantee.epsilon, guarantee.delta)
            step = lowered(math.sqrt(8 * rho * float(share) / number), _OPERATIONS)
            yield TopChoice(candidate, number, width, up(Fraction(width) / Fraction(step)), True)
        scale = up(number * width / (Fraction(guarantee.epsilon) * share))
        yield TopChoice(candidate, number, width, scale)


def choose_top(scores: NDArray[np.int64], choice: TopChoice, noise: NoiseSource) -> list[int]:
    """Returns the indices of the c largest scores, largest first, up to the noise.

    Privacy: ``choice.loss``, if neighbours change the difference of any two scores by at most
    ``choice.width``. Only the indices may be released; answers to the queries need their own noise.

    Accuracy: ``choice.margin``. If the exponential mechanism chooses one of R scores and k scores
    tie for the largest, R / k replaces R. If the scale is only a few units, one shot of geometric
    noise gives ties, which the lower index wins: finer units avoid ties.

    Args:
        scores: shape (num_candidates,), int64, at least c; secret. ``geometric`` clips scores to
            -2^61..2^61, which doesn't increase the sensitivity.
        choice: the result of ``top_choice``.
        noise: the noise source of this draw.

    Raises:
        InputError: if there are fewer than c scores, or if the scores have another type.

    Cost: ``geometric`` 2e-5 s per candidate; ``exponential`` c times 1e-6 s per candidate;
    ``permute_and_flip`` up to c times 1e-5 s per candidate, depending on the scores.
    """
    check_is("choice", choice, TopChoice)
    checked_scores(scores)
    if len(scores) < choice.number:
        condition = f"must be at least {choice.number}, the number to choose"
        raise InputError("number of scores", len(scores), condition)
    if choice.method == "geometric":
        clipped = np.clip(scores, -MAX_SCORE, MAX_SCORE)
        noisy = clipped + noise.geometric(len(scores), choice.scale)
        # If two sums are equal, the sum with the lower index comes first.
        order = np.argsort(-noisy, kind="stable")
        return [int(index) for index in order[: choice.number]]
    pick = noise.select if choice.method == "exponential" else noise.permute_and_flip
    left = np.arange(len(scores))
    chosen: list[int] = []
    for _ in range(choice.number):
        place = pick(scores[left], choice.scale)
        chosen.append(int(left[place]))
        left = np.delete(left, place)
    return chosen
