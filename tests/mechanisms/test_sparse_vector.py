"""Sparse vector mechanisms: exact laws on all tiny neighbours, and the code against these laws.

Statistical checks draw from seeded noise, so that they never fail by chance on unchanged code;
their chance of a false alarm before the seed was fixed is 1e-6 each.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import product

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from sparse_vector_laws import transcript_law
from tiny import ADD, REPLACE, promise

from beam_dp.mechanisms.sparse_vector import mechanisms as module
from beam_dp.mechanisms.sparse_vector.mechanisms import (
    AboveThreshold,
    HaltedError,
    NumericSparse,
    Sparse,
)
from beam_dp.mechanisms.sparse_vector.noise import noise_candidates, sparse_vector_noise
from beam_dp.noise.source import NoiseSource
from beam_dp.testing.audit import audit_law, audit_sampler, largest_log_ratio

EPSILON = 1.0
THRESHOLD = 1


def ask_counts(data, transcript):
    """Three questions, not monotone; the second depends on what was answered to the first."""
    if len(transcript) == 3:
        return None
    ones, twos = data.count("a"), data.count("b")
    if not transcript:
        return ones, ones
    if len(transcript) == 1:
        return (twos, twos) if transcript[0] is False else (2 - twos, twos)
    return abs(ones + twos - 3), ones + twos


def audit(noise, neighboring, delta, most, **named):
    guarantee = promise(neighboring, delta, EPSILON, most)

    def law(data):
        return transcript_law(noise, THRESHOLD, data, ask_counts, low=-1, high=2, **named)

    return audit_law(law, "ab", guarantee, num_others=2)


def calibrations(neighboring, delta, answers, max_above, most=1, is_monotone=False):
    guarantee = promise(neighboring, delta, EPSILON, most)
    found = noise_candidates(
        guarantee,
        max_above,
        answers=answers,
        is_monotone=is_monotone,
        answer_share=1 / 3 if answers else None,
    )
    return list(found)


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("max_above, most", [(1, 1), (2, 1), (2, 2)])
def test_exact_output_distribution_is_private(neighboring, delta, answers, max_above, most):
    for noise in calibrations(neighboring, delta, answers, max_above, most):
        found = audit(noise, neighboring, delta, most)
        assert found.is_private, (noise.method, found)
        assert found.epsilon > 0.02


def worst(noise, shifts, base, thresholds, most=1, **named):
    """The largest log-ratio between two fixed sequences of questions."""

    def ask(data, transcript):
        if len(transcript) == len(data):
            return None
        value = data[len(transcript)] * most
        return value, value

    moved = tuple(one + shift for one, shift in zip(base, shifts, strict=True))
    return max(
        largest_log_ratio(
            transcript_law(noise, threshold, tuple(base), ask, **named),
            transcript_law(noise, threshold, moved, ask, **named),
        )
        for threshold in thresholds
    )


def textbook(max_above=1, epsilon=EPSILON, **named):
    return sparse_vector_noise(
        promise(ADD, 0.0, epsilon), max_above, answers=False, calibration="textbook", **named
    )


def adversarial(noise, length, thresholds=range(-10, 61, 2)):
    """Many questions move up and the last one down, or the reverse: the worst for one answer."""
    shifts = (1,) * (length - 1) + (-1,)
    return max(
        worst(noise, [sign * each for each in shifts], (0,) * length, thresholds)
        for sign in (1, -1)
    )


@pytest.mark.parametrize("length, loss", [(5, 0.925573), (20, 0.99999995), (50, 1.0)])
def test_loss_of_above_threshold_matches_known_values(length, loss):
    found = adversarial(textbook(), length)
    assert found == pytest.approx(loss, rel=1e-6) and found <= 1 + 1e-9


def test_answers_to_every_short_sequence_of_questions_are_private():
    for noise in (textbook(), sparse_vector_noise(promise(), 1, answers=False)):
        for base in product((-3, 0, 2), repeat=2):
            for shifts in product((-1, 0, 1), repeat=2):
                assert worst(noise, shifts, base, (-1, 0, 4)) <= 1 + 1e-9


@pytest.mark.parametrize("length", [5, 20])
def test_tight_split_is_private_and_spends_almost_all_of_epsilon(length):
    noise = sparse_vector_noise(promise(), 1, answers=False)
    found = adversarial(noise, length)
    assert found <= 1 + 1e-9
    if length == 20:
        assert found > 0.99
    both = sparse_vector_noise(promise(), 2, answers=False)
    # Two answers above the threshold, both of which move down while the rest moves up.
    found = worst(both, (1,) * 18 + (-1, -1), (0,) * 20, range(0, 100, 20))
    assert 0.95 < found <= 1 + 1e-9


def test_only_monotone_questions_need_half_the_noise():
    noise = textbook(is_monotone=True)
    assert noise.question_scale == pytest.approx(2.0)
    assert worst(noise, (1,) * 20, (0,) * 20, range(-10, 61, 5)) <= 1 + 1e-9
    assert adversarial(noise, 20) > 1.4


MUTANTS = {
    "question scale 2": ({"question_scale": 2.0}, 1.5),
    "question scale 3": ({"question_scale": 3.0}, 1.166667),
    "threshold scale 1": ({"threshold_scale": 1.0}, 1.5),
    "no threshold noise": ({"threshold_scale": 1e-9}, 5.0),
    "no question noise": ({"question_scale": 0.0}, math.inf),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_detects_known_mutants_of_above_threshold(mutant):
    changed, loss = MUTANTS[mutant]
    found = adversarial(dataclasses.replace(textbook(), **changed), 20)
    assert found == pytest.approx(loss, rel=1e-5) and found > 1 + 1e-9


def test_detects_noise_for_one_answer_with_two_answers():
    """The noise of one answer, with two answers, textbook and tight."""
    for calibration in ("textbook", "tight"):
        noise = sparse_vector_noise(promise(), 1, answers=False, calibration=calibration)
        found = worst(
            dataclasses.replace(noise, max_above=2),
            (1,) * 18 + (-1, -1),
            (0,) * 20,
            range(0, 60, 10),
        )
        assert found > 1.2


def test_detects_noise_for_one_record_with_two_records_per_unit():
    noise = textbook()
    assert worst(noise, (1,) * 19 + (-1,), (0,) * 20, (0, 20), most=2) > 1.9
    right = sparse_vector_noise(
        promise(ADD, 0.0, EPSILON, 2), 1, answers=False, calibration="textbook"
    )
    assert worst(right, (1,) * 19 + (-1,), (0,) * 20, (0, 20, 40), most=2) <= 1 + 1e-9


def test_detects_answers_that_reuse_the_comparison_noise():
    """A low answer says that the threshold is lower still, which what was below it denies."""
    noise = calibrations(ADD, 0.0, True, 1)[1]
    sequence: dict = {"shifts": (1,) * 19 + (-1,), "base": (0,) * 20, "thresholds": (0, 10)}
    reach: dict = {"low": -30, "high": 5}
    assert 0.5 < worst(noise, **sequence, **reach) <= 1 + 1e-9
    assert worst(noise, **sequence, **reach, reuses_comparison_noise=True) > 1.2


# The code, against the law.


def run_counts(make, data, runs, seed):
    """Transcripts of the real code on fresh mechanisms, clipped as the law's are."""
    source = Seeded(seed)
    outcomes = []
    for _ in range(runs):
        mechanism = make(source)
        transcript = ()
        while not mechanism.has_halted:
            asked = ask_counts(data, transcript)
            if asked is None:
                break
            said = mechanism.ask(*asked) if type(mechanism) is NumericSparse else None
            if type(mechanism) is not NumericSparse:
                said = mechanism.ask(asked[0])
            if said is None:
                said = False
            elif said is not True and said is not False:
                said = min(max(said, -1), 2)
            transcript = (*transcript, said)
        outcomes.append(transcript)
    return outcomes


def small_noise(answers: bool, redraws: bool):
    """A calibration with so little noise that every branch is taken often."""
    guarantee = promise(ADD, 1e-6 if redraws else 0.0, 6.0)
    candidates = noise_candidates(guarantee, 2, answers=answers, answer_share=0.4)
    (noise,) = [each for each in candidates if each.method == ("zcdp" if redraws else "pure")]
    return noise


def check(answers: bool, redraws: bool, runs: int = 6000, **named):
    noise = small_noise(answers, redraws)
    kind = NumericSparse if answers else Sparse
    data = ("a", "b", "b")
    outcomes = run_counts(lambda source: kind(THRESHOLD, noise, source), data, runs, 5)
    law = transcript_law(noise, THRESHOLD, data, ask_counts, low=-1, high=2)
    return audit_sampler(outcomes, law)


@pytest.mark.part
@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("redraws", [False, True])
def test_draws_follow_the_exact_distribution(answers, redraws):
    assert check(answers, redraws).passes


class WithoutQuestionNoise(module._Supply):
    def next(self) -> int:
        return 0


class OneQuestionNoise(module._Supply):
    """Draws once and uses it for ever."""

    def next(self) -> int:
        if not hasattr(self, "_only"):
            self._only = super().next()
        return self._only


def keep_threshold(self, question):
    above = question + self._of_questions.next() >= self._noisy_threshold
    self._num_above += above
    return above


def redraw_always(self, question):
    self._noisy_threshold = self._draw_threshold()
    return keep_threshold(self, question)


def never_halts(self, question):
    above = keep_threshold(self, question)
    if self.has_halted:
        self._num_above -= 1
    return above


def reuse_comparison_noise(self, question, value=None):
    noisy = question + self._of_questions.next()
    if noisy < self._noisy_threshold:
        return None
    self._num_above += 1
    return noisy


BUGS = {
    "no question noise": (module, "_Supply", WithoutQuestionNoise, {}),
    "one noise for all questions": (module, "_Supply", OneQuestionNoise, {}),
    "threshold not redrawn": (NumericSparse, "_is_above", keep_threshold, {"redraws": True}),
    "threshold redrawn each time": (NumericSparse, "_is_above", redraw_always, {}),
    "never halts": (NumericSparse, "_is_above", never_halts, {}),
    "answer reuses comparison noise": (
        NumericSparse,
        "ask",
        reuse_comparison_noise,
        {"answers": True},
    ),
}


@pytest.mark.part
@pytest.mark.parametrize("bug", BUGS)
def test_detects_code_that_breaks_the_exact_distribution(bug, monkeypatch):
    owner, name, replacement, named = BUGS[bug]
    monkeypatch.setattr(owner, name, replacement)
    arguments = {"answers": False, "redraws": False, **named}
    assert not check(**arguments).passes


def test_mechanism_halts_after_its_last_answer():
    noise = sparse_vector_noise(promise(), 2, answers=True)
    mechanism = NumericSparse(10, noise, NoNoise())
    assert [mechanism.ask(each) for each in (3, 10, 9)] == [None, 10, None]
    assert mechanism.num_left == 1 and not mechanism.has_halted
    assert mechanism.ask(20, value=7) == 7
    assert mechanism.has_halted
    with pytest.raises(HaltedError, match="were paid for, and all were given"):
        mechanism.ask(0)


def test_drawn_noise_has_the_planned_scales():
    noise = sparse_vector_noise(promise(), 2, answers=True)
    source = NoNoise()
    mechanism = NumericSparse(10, noise, source, grid=4)
    mechanism.ask(40)
    drawn = [(draw.kind, draw.scale) for draw in source.draws]
    expected = [4 * noise.threshold_scale, 4 * noise.question_scale, 4 * noise.answer_scale]
    assert [scale for _, scale in drawn] == pytest.approx(expected)
    scales = [scale for _, scale in drawn]
    assert all(one >= other for one, other in zip(scales, expected, strict=True))
    assert [kind for kind, _ in drawn] == ["laplace"] * 3


def test_questions_beyond_64_bits_are_compared():
    noise = sparse_vector_noise(promise(), 1, answers=False)
    assert not AboveThreshold(0, noise, NoiseSource()).ask(-(10**30))
    assert AboveThreshold(0, noise, NoiseSource()).ask(10**30)


def test_each_drawn_noise_value_is_used_once():
    supply = module._Supply(lambda zeros, _: zeros + np.arange(len(zeros)) + 1, 1.0)
    assert [supply.next() for _ in range(7)] == [1, 1, 2, 1, 2, 3, 4]
