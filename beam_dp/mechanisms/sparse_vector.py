"""AboveThreshold, Sparse and NumericSparse, and their noise.

Questions are integers, in units of 1 / ``grid`` records; one record changes a question by at most
``grid``. The caller computes questions from the exact data. Only the results of ``ask`` may be
released. Later questions may depend on these results but not on any other secret.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from threading import Lock
from typing import Any, Literal, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import (
    Calibration,
    check_calibration,
    check_failure_probability,
    check_noise,
)
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import Distribution
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import lowered, raised, up

# Noise scales of the sparse vector mechanisms, chosen from public numbers.
#
# A run compares questions with a threshold and halts after c questions above the threshold. Three
# calibrations keep a guarantee; the one with the least noise depends on c, epsilon and delta.


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
    calibration: Calibration = "tight",
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
    calibration: Calibration = "tight",
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
    kinds = [] if textbook is None else [textbook]
    if calibration == "tight":
        for is_zcdp in (False, True) if guarantee.delta > 0 else (False,):
            kinds += [_tight(guarantee, max_above, is_zcdp, part, is_monotone) for part in shares]
    elif textbook is None:
        condition = "is too large for the textbook's composition: use the tight calibration"
        raise InputError("epsilon", guarantee.epsilon, condition)
    kinds = [_of_units(noise) for noise in kinds]
    for noise in kinds:
        check_noise(guarantee, noise.scales)
    yield from kinds


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


def _tight(
    guarantee: Guarantee, max_above: int, is_zcdp: bool, share: float, is_monotone: bool
) -> SparseVectorNoise:
    """Returns the noise of ``pure`` or ``zcdp`` with a share of the budget for answers."""
    answer_scale = None
    if is_zcdp:
        rho = zcdp_rho(guarantee.epsilon, guarantee.delta)
        used, loss = lowered(rho, _OPERATIONS), Loss.zcdp(rho)
        step = math.sqrt(2 * used * (1 - share) / max_above)
        threshold, question = _split(step, 1, is_monotone)
        if share:
            answer_scale = math.sqrt(max_above / (2 * used * share))
    else:
        used, loss = lowered(guarantee.epsilon, _OPERATIONS), Loss.pure(guarantee.epsilon)
        threshold, question = _split(used * (1 - share), max_above, is_monotone)
        if share:
            answer_scale = max_above / (used * share)
    kind: Distribution = "discrete_gaussian" if is_zcdp else "discrete_laplace"
    return SparseVectorNoise(
        method="zcdp" if is_zcdp else "pure",
        guarantee=guarantee,
        max_above=max_above,
        threshold_scale=threshold,
        question_scale=question,
        redraws_threshold=is_zcdp,
        answer_noise=kind if share else None,
        answer_scale=answer_scale,
        loss=loss,
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


class HaltedError(RuntimeError):
    """Raised when the budget does not pay for another question. The message is public."""


class Live:
    """A secret state that must exist only once.

    Calls from several threads take turns (``_turn``). The object refuses to be copied or pickled,
    and refuses calls in a forked child process, which has a copy of the state.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._made_in = _this_process()
        self._ended: str | None = None  # the reason why the object ended, if it has ended

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuses ``copy``, ``deepcopy`` and ``pickle``."""
        condition = "must not be copied or pickled: each copy would spend the same budget again"
        raise InputError("object", type(self).__name__, condition)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Allows one call at a time, from any thread."""
        # This check comes before locking: at the fork, a thread that does not exist in the child
        # may have held the lock.
        if self._made_in != _this_process():
            raise HaltedError("this is a copy in a forked process: use the original")
        with self._lock:
            if self._ended is not None:
                raise HaltedError(self._ended)
            yield

    def _end(self, reason: str) -> None:
        self._ended = reason


# A process is identified by an object and the process id. The id alone is not enough, since a later
# child may get the id of its dead parent. The object alone is not enough either: a fork by C code
# does not run ``_renew``.
_process = object()


def _this_process() -> tuple[object, int]:
    return _process, os.getpid()


def _renew() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


MAX_GRID = 2**20
_MAX_VALUE = 2**62
_MAX_DRAWN = 4096

Draw = Callable[[NDArray[np.int64], float], NDArray[np.int64]]


class SparseState(Live):
    """The state of a sparse vector after it was handed over, to one object or one file.

    ``values``: the public ``num_above``, the number of questions above the threshold, and the
    secret ``noisy_threshold``.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__()
        self._values = dict(values)

    def take(self) -> dict[str, int]:
        """Returns the values and ends the object."""
        with self._turn():
            self._end("the state was used before: a run resumes from it once")
            return self._values


class NumericSparse(Live):
    """Reports which questions are above a threshold, answers these questions with noise, and halts.

    ``threshold``: the public threshold, in units of the grid.
    ``grid``: the number of units per record, from 1 to 2^20.

    Privacy: ``calibration.guarantee``, for any number of questions below the threshold, asked
    adaptively. Condition: one record changes each question, and each value to answer, by at most
    ``grid``. Every question and every answer gets fresh noise; the threshold gets fresh noise after
    each answer if the calibration requires this. Questions from several threads are answered one
    after another. The object can't be copied or pickled, and answers nothing in a forked child.
    After a failure inside a question, the object answers nothing more.

    Accuracy: ``calibration.margin`` and ``calibration.answer_bound``.

    Reference: Dwork and Roth (2014), Algorithm 3; Lyu, Su and Li (2017), Algorithm 7.
    """

    _gives_answers = True

    def __init__(
        self, threshold: int, calibration: SparseVectorNoise, noise: NoiseSource, grid: int = 1
    ) -> None:
        super().__init__()
        checked_integer("threshold", threshold, -_MAX_VALUE, _MAX_VALUE)
        checked_integer("grid", grid, 1, MAX_GRID)
        answers = self._gives_answers
        if (calibration.answer_noise is not None) != answers:
            condition = "must be given" if answers else "must not be given: nothing is answered"
            raise InputError("calibration", calibration.answer_noise, condition)
        self._calibration = calibration
        self._threshold = threshold
        self._noise = noise
        self._grid = grid
        self._num_above = 0
        self._of_questions = _Supply(noise.laplace, _on_grid(calibration.question_scale, grid))
        self._noisy_threshold = self._draw_threshold()

    @property
    def num_left(self) -> int:
        """The number of questions that may still be above the threshold; public."""
        return self._calibration.max_above - self._num_above

    @property
    def has_halted(self) -> bool:
        """Whether all paid answers were given, so no more questions can be asked; public."""
        return self.num_left <= 0

    def ask(self, question: int, value: int | None = None) -> int | None:
        """Returns None if the question is below the threshold, else a noisy value."""
        asked = _clipped(question)
        answered = asked if value is None else _clipped(value, "value")
        with self._question():
            return self._answer(answered) if self._is_above(asked) else None

    def _answer(self, value: int) -> int:
        calibration = self._calibration
        assert calibration.answer_scale is not None
        scale = _on_grid(calibration.answer_scale, self._grid)
        is_laplace = calibration.answer_noise == "discrete_laplace"
        draw: Draw = self._noise.laplace if is_laplace else self._noise.gaussian
        return int(draw(np.array([value], np.int64), scale)[0])

    @contextmanager
    def _question(self) -> Iterator[None]:
        with self._turn():
            if self.has_halted:
                paid = f"{self._calibration.max_above} answers above the threshold"
                raise HaltedError(f"{paid} were paid for, and all were given")
            try:
                yield
            except BaseException:
                # The failure may reveal whether the question is above the threshold.
                self._end("a question failed: nothing more is answered")
                raise

    def _is_above(self, question: int) -> bool:
        is_above = question + self._of_questions.next() >= self._noisy_threshold
        if is_above:
            self._num_above += 1
            if self._calibration.redraws_threshold and not self.has_halted:
                self._noisy_threshold = self._draw_threshold()
        return is_above

    def _draw_threshold(self) -> int:
        scale = _on_grid(self._calibration.threshold_scale, self._grid)
        return self._threshold + int(self._noise.laplace(np.zeros(1, np.int64), scale)[0])

    def _hand_over(self) -> SparseState:
        """Ends this object and returns the state for exactly one other object."""
        with self._turn():
            self._end("the sparse vector was handed over: use what it returned")
            return SparseState(self._values())

    def _checkpoint(self) -> dict[str, int]:
        """Returns the values of a ``SparseState`` without ending this object.

        Two objects that continue from one state spend the budget twice. So the state must only be
        kept in a transaction, together with the answers that led to the state.
        """
        with self._turn():
            return self._values()

    def _values(self) -> dict[str, int]:
        return {"num_above": self._num_above, "noisy_threshold": self._noisy_threshold}

    def _resume(self, state: SparseState) -> None:
        """Continues from the state of another object."""
        taken = state.take()
        values = [taken.get(name) for name in ("num_above", "noisy_threshold")]
        integers = [value for value in values if type(value) is int]
        if len(integers) < 2 or not 0 <= integers[0] <= self._calibration.max_above:
            raise InputError("state", "of a sparse vector", "must come from this mechanism")
        self._num_above, self._noisy_threshold = integers


class Sparse(NumericSparse):
    """Reports which questions are above a threshold, and halts after c such questions.

    Privacy, accuracy and arguments: see ``NumericSparse``; the calibration is without answers.

    Reference: Dwork and Roth (2014), Algorithm 2.
    """

    _gives_answers = False

    def ask(self, question: int, value: int | None = None) -> bool:
        """Returns whether the question is above the threshold, up to the noise."""
        if value is not None:
            raise InputError("value", "given", "must not be given: nothing is answered")
        asked = _clipped(question)
        with self._question():
            return self._is_above(asked)


class AboveThreshold(Sparse):
    """Finds the first question that is above a threshold.

    Privacy, accuracy and arguments: see ``Sparse``; the calibration is for c = 1.
    The textbook scales are 2/eps for the threshold and 4/eps for questions. With k questions and
    probability 1 - beta, no question is misjudged by more than 8(ln k + ln(2/beta))/eps.

    Reference: Dwork and Roth (2014), Algorithm 1 and Theorem 3.24.

    Example:
        >>> from beam_dp.mechanisms.sparse_vector import sparse_vector_noise
        >>> from beam_dp.privacy.guarantee import Guarantee
        >>> promise = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
        >>> noise = sparse_vector_noise(promise, 1, answers=False)
        >>> mechanism = AboveThreshold(1000, noise, NoiseSource())
        >>> [mechanism.ask(count) for count in (10, 20, 5000)], mechanism.has_halted
        ([False, False, True], True)
    """

    def __init__(
        self, threshold: int, calibration: SparseVectorNoise, noise: NoiseSource, grid: int = 1
    ) -> None:
        if calibration.max_above != 1:
            raise InputError("max_above", calibration.max_above, "must be 1 for AboveThreshold")
        super().__init__(threshold, calibration, noise, grid)


class _Supply:
    """Noise that is drawn in advance: drawing a vector is faster than drawing single values.

    Each value is used once. The vector size depends only on the public number of questions.
    """

    def __init__(self, draw: Draw, scale: float) -> None:
        self._draw = draw
        self._scale = scale
        self._size = 1
        self._drawn: deque[int] = deque()

    def next(self) -> int:
        if not self._drawn:
            zeros = np.zeros(self._size, np.int64)
            self._drawn.extend(self._draw(zeros, self._scale).tolist())
            self._size = min(2 * self._size, _MAX_DRAWN)
        return self._drawn.popleft()


def _on_grid(scale: float, grid: int) -> float:
    return up(Fraction(scale) * grid)


def _clipped(value: int, name: str = "question") -> int:
    """Returns a clipped integer; unlike rounding, clipping never raises the sensitivity."""
    try:
        integer = operator.index(value)
    except TypeError:
        raise InputError(name, f"of type {type(value).__name__}", "must be an integer") from None
    return max(-_MAX_VALUE, min(_MAX_VALUE, integer))
