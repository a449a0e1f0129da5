"""AboveThreshold, Sparse and NumericSparse.

Questions are integers, in units of 1 / ``grid`` records; one record changes a question by at most
``grid``. The caller computes questions from the exact data. Only the results of ``ask`` may be
released. Later questions may depend on these results but not on any other secret.
"""

from __future__ import annotations

import operator
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from threading import Lock
from typing import NoReturn, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError
from beam_dp.mechanisms.sparse_vector.noise import SparseVectorNoise
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import up


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
        integers = [each for each in values if type(each) is int]
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
        >>> from beam_dp.mechanisms.sparse_vector.noise import sparse_vector_noise
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
