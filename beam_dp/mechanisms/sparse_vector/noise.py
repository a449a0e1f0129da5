"""Noise scales of the sparse vector mechanisms, chosen from public numbers.

A run compares questions with a threshold and halts after c questions above the threshold. Three
calibrations keep a guarantee; the one with the least noise depends on c, epsilon and delta.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Literal

from beam_dp.checks import checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import check_calibration, check_failure_probability, check_noise
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import Distribution
from beam_dp.privacy.rounding import lowered, raised

Method = Literal["textbook", "pure", "zcdp"]

MAX_ABOVE = 2**31
_OPERATIONS = 64  # larger than the number of rounded operations on a budget


@dataclasses.dataclass(frozen=True)
class SparseVectorNoise:
    """The noise of one run, in records; ``answer_noise`` is None if answers are not numeric."""

    method: Method
    guarantee: Guarantee
    max_above: int
    threshold_scale: float
    question_scale: float
    redraws_threshold: bool
    answer_noise: Distribution | None
    answer_scale: float | None
    loss: Loss

    @property
    def scales(self) -> tuple[float, float, float]:
        """The scales for thresholds, questions and answers; 0 without answers."""
        return self.threshold_scale, self.question_scale, self.answer_scale or 0.0

    @property
    def answer_deviation(self) -> float:
        """The standard deviation of a numeric answer, in records, up to one step of the grid."""
        assert self.answer_scale is not None
        laplace = self.answer_noise == "discrete_laplace"
        return self.answer_scale * (math.sqrt(2) if laplace else 1.0)

    def margin(self, num_questions: int, failure_probability: float, grid: int = 1) -> float:
        """Returns alpha: how far a misjudged question may be from the threshold, in records.

        ``num_questions``: the largest number of questions; privacy does not depend on it.
        ``failure_probability``: beta, in (0, 1); ``answer_bound`` uses a third of the same beta.
        ``grid``: the number of units of a question per record.

        Accuracy: with probability at least 1 - beta / 3 for the thresholds, and the same for the
        questions, every question reported above is truly above (threshold - alpha), and every
        question reported below is truly below (threshold + alpha). Proof: P(|DLap(s)| > ceil(t)) <=
        exp(-t / s), and a union bound over the drawn thresholds and over the questions.
        """
        thresholds = self.max_above if self.redraws_threshold else 1
        share = failure_probability / 3
        if num_questions <= MAX_ABOVE:
            log_questions = math.log(num_questions / share)
        else:  # the number may be too large for a double
            log_questions = math.log(num_questions) - math.log(share)
        return (
            math.ceil(self.threshold_scale * grid * math.log(thresholds / share))
            + math.ceil(self.question_scale * grid * log_questions)
        ) / grid

    def answer_bound(self, failure_probability: float, grid: int = 1) -> float:
        """Returns a bound on the errors of answers, in records, with probability 1 - beta / 3."""
        assert self.answer_scale is not None
        log_term = math.log(3 * self.max_above / failure_probability)
        scale = self.answer_scale * grid
        if self.answer_noise == "discrete_laplace":
            return math.ceil(scale * log_term) / grid
        return scale * math.sqrt(2 * (log_term + math.log(2))) / grid

    def to_json(self) -> dict[str, Any]:
        """Returns the calibration as JSON values, without the guarantee."""
        fields = dataclasses.asdict(self)
        del fields["guarantee"]
        return {**fields, "loss": self.loss.to_json()}


def sparse_vector_noise(
    guarantee: Guarantee,
    max_above: int,
    *,
    answers: bool,
    num_questions: int = 1000,
    failure_probability: float = 0.05,
    is_monotone: bool = False,
    calibration: Literal["tight", "textbook"] = "tight",
    answer_share: float | None = None,
) -> SparseVectorNoise:
    """Returns the noise of AboveThreshold, Sparse or NumericSparse.

    ``num_questions``: the number of questions for the stated accuracy, irrelevant for privacy.
    ``failure_probability``: the probability that the stated accuracy fails, in (0, 1).
    ``is_monotone``: whether one record moves all questions in the same direction, such as counts
    minus public constants under add_or_remove_one; questions then need half the noise.
    ``answer_share``: the share of the budget for answers, in (0, 1); by default the best share.

    Privacy: the guarantee, for any number of adaptively chosen questions, each of which a record
    changes by at most one (times the records of a unit, under either relation).

    * ``textbook``: Dwork and Roth's Algorithms 1 to 3. The threshold's scale is 2c/eps without
      delta, sqrt(32 c ln(1/delta))/eps with delta; questions get twice this scale. With answers,
      the published shares are 8/9 and 2/9 of epsilon, or sqrt(512) and 2 of sqrt(512) + 1.
    * ``pure``: Lyu, Su and Li (2017), Algorithm 7. The scales are 1/e1 for the run's threshold,
      2c/e2 for questions, c/e3 for answers; e1 + e2 + e3 = eps, e1 : e2 = 1 : (2c)^(2/3).
    * ``zcdp``: c runs of epsilon eps0 with one answer above the threshold, each split as ``pure``
      with c = 1 and followed by a discrete Gaussian answer: rho = c eps0^2/2 + c/(2 sigma^2).

    ``tight`` uses the calibration with the smallest margin or, with answers, with the smallest
    value of max(margin, answer bound). The choice depends on public numbers only.

    Example:
        >>> promise = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
        >>> noise = sparse_vector_noise(promise, 10, answers=False)
        >>> noise.method, round(noise.threshold_scale, 5), round(noise.question_scale, 4)
        ('pure', 8.36806, 22.7144)
    """
    check_accuracy(max_above, num_questions, failure_probability)
    candidates = list(
        noise_candidates(
            guarantee,
            max_above,
            answers=answers,
            is_monotone=is_monotone,
            calibration=calibration,
            answer_share=answer_share,
        )
    )

    def error(noise: SparseVectorNoise) -> float:
        margin = noise.margin(num_questions, failure_probability)
        return max(margin, noise.answer_bound(failure_probability)) if answers else margin

    return min(candidates, key=error)


def noise_candidates(
    guarantee: Guarantee,
    max_above: int,
    *,
    answers: bool,
    is_monotone: bool = False,
    calibration: Literal["tight", "textbook"] = "tight",
    answer_share: float | None = None,
) -> Iterator[SparseVectorNoise]:
    """Yields the calibrations that keep a guarantee; see ``sparse_vector_noise``."""
    check_calibration(calibration)
    if is_monotone and guarantee.neighboring is Neighboring.REPLACE_ONE:
        raise InputError("is_monotone", is_monotone, "must be False under replace_one")
    if answer_share is not None:
        checked_number("answer_share", answer_share, above=0, below=1)
    shares = [answer_share] if answer_share else [number / 32 for number in range(1, 25)]
    if not answers:
        shares = [0.0]
    textbook = _textbook(guarantee, max_above, answers, is_monotone)
    found = [] if textbook is None else [textbook]
    if calibration == "tight":
        found += [_pure(guarantee, max_above, share, is_monotone) for share in shares]
        if guarantee.delta > 0:
            rho = zcdp_rho(guarantee.epsilon, guarantee.delta)
            found += [_zcdp(guarantee, max_above, rho, share, is_monotone) for share in shares]
    elif textbook is None:
        condition = "is too large for the textbook's composition: use the tight calibration"
        raise InputError("epsilon", guarantee.epsilon, condition)
    found = [_of_units(noise) for noise in found]
    for noise in found:
        check_noise(guarantee, noise.scales)
    yield from found


def check_accuracy(max_above: int, num_questions: int, failure_probability: float) -> None:
    """Refuses parameters for which no error bound can be stated."""
    checked_integer("max_above", max_above, 1, MAX_ABOVE)
    checked_integer("num_questions", num_questions, 1, MAX_ABOVE)
    check_failure_probability(failure_probability)


def published_accuracy(
    guarantee: Guarantee,
    max_above: int,
    num_questions: int,
    failure_probability: float,
    *,
    answers: bool,
) -> float:
    """Returns alpha of Sparse or NumericSparse as published, in records, for real-valued noise.

    Accuracy: if at most c questions are above the threshold or within alpha of the threshold, then
    with probability 1 - beta all questions are judged correctly up to alpha, and answers are within
    alpha. With delta, the claim about answers requires ln k + ln(4c/beta) >= sqrt(8) ln(2c/beta), a
    condition that is not published. alpha is 8c(ln k + ln(2c/beta))/eps, with delta sqrt(512 c
    ln(1/delta)) in place of 8c; with answers 9c(ln k + ln(4c/beta))/eps, with delta (sqrt(512) + 1)
    sqrt(c ln(2/delta)) in place of 9c.

    Reference: Dwork and Roth (2014), Theorems 3.26 and 3.28.
    """
    log_term = math.log(num_questions) + math.log(
        (4 if answers else 2) * max_above / failure_probability
    )
    delta = guarantee.delta
    if delta == 0:
        factor = (9.0 if answers else 8.0) * max_above
    elif answers:
        factor = (math.sqrt(512) + 1) * math.sqrt(max_above * math.log(2 / delta))
    else:
        factor = math.sqrt(512 * max_above * math.log(1 / delta))
    return guarantee.max_records_per_unit * factor * log_term / guarantee.epsilon


def _textbook(
    guarantee: Guarantee, max_above: int, answers: bool, is_monotone: bool
) -> SparseVectorNoise | None:
    """Returns the published noise; None if the published theorem does not apply."""
    epsilon, delta = lowered(guarantee.epsilon, _OPERATIONS), guarantee.delta
    if delta == 0:
        comparing, answering = (8 * epsilon / 9, epsilon / 9) if answers else (epsilon, 0.0)
        step, answer_step = comparing / max_above, answering / max_above
        loss = Loss.pure(guarantee.epsilon)
    else:
        share = delta / 2 if answers else delta
        parts = math.sqrt(512) + 1
        comparing = epsilon * math.sqrt(512) / parts if answers else epsilon
        answering = epsilon / parts if answers else 0.0
        shrink = math.sqrt(8 * max_above * math.log(1 / share))
        step, answer_step = comparing / shrink, answering / shrink
        if not (
            _composed(step, max_above, share) <= comparing
            and (not answers or _composed(answer_step, max_above, share) <= answering)
        ):
            return None
        loss = Loss.zcdp(raised(max_above * (step**2 + answer_step**2) / 2, _OPERATIONS))
    return SparseVectorNoise(
        method="textbook",
        guarantee=guarantee,
        max_above=max_above,
        threshold_scale=2 / step,
        question_scale=(2 if is_monotone else 4) / step,
        redraws_threshold=True,
        answer_noise="discrete_laplace" if answers else None,
        answer_scale=1 / answer_step if answers else None,
        loss=loss,
    )


def _composed(step: float, times: int, delta: float) -> float:
    """Returns the epsilon, at delta, of several pure mechanisms, by advanced composition."""
    # Reference: Dwork and Roth (2014), Theorem 3.20.
    if step > 700:  # the exponential would overflow
        return math.inf
    return math.sqrt(2 * times * math.log(1 / delta)) * step + times * step * math.expm1(step)


def _pure(
    guarantee: Guarantee, max_above: int, share: float, is_monotone: bool
) -> SparseVectorNoise:
    epsilon = lowered(guarantee.epsilon, _OPERATIONS)
    threshold, question = _split(epsilon * (1 - share), max_above, is_monotone)
    return SparseVectorNoise(
        method="pure",
        guarantee=guarantee,
        max_above=max_above,
        threshold_scale=threshold,
        question_scale=question,
        redraws_threshold=False,
        answer_noise="discrete_laplace" if share else None,
        answer_scale=max_above / (epsilon * share) if share else None,
        loss=Loss.pure(guarantee.epsilon),
    )


def _zcdp(
    guarantee: Guarantee, max_above: int, rho: float, share: float, is_monotone: bool
) -> SparseVectorNoise:
    rho_used = lowered(rho, _OPERATIONS)
    step = math.sqrt(2 * rho_used * (1 - share) / max_above)
    threshold, question = _split(step, 1, is_monotone)
    return SparseVectorNoise(
        method="zcdp",
        guarantee=guarantee,
        max_above=max_above,
        threshold_scale=threshold,
        question_scale=question,
        redraws_threshold=True,
        answer_noise="discrete_gaussian" if share else None,
        answer_scale=math.sqrt(max_above / (2 * rho_used * share)) if share else None,
        loss=Loss.zcdp(rho),
    )


def _of_units(noise: SparseVectorNoise) -> SparseVectorNoise:
    """Converts the noise for one record into the noise for a privacy unit."""
    records = noise.guarantee.max_records_per_unit
    return dataclasses.replace(
        noise,
        threshold_scale=noise.threshold_scale * records,
        question_scale=noise.question_scale * records,
        answer_scale=None if noise.answer_scale is None else noise.answer_scale * records,
    )


def _split(epsilon: float, max_above: int, is_monotone: bool) -> tuple[float, float]:
    """Returns the threshold and question scales that minimise the variance of a comparison."""
    moves = max_above if is_monotone else 2 * max_above
    part = epsilon / (1 + moves ** (2 / 3))
    return 1 / part, moves / (epsilon - part)
