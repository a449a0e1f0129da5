"""Sparse vector mechanisms: printed numbers, and budgets that add up."""

import math

import pytest
from noise_sources import NoNoise
from tiny import ADD, promise

import beam_dp as dp
from beam_dp.mechanisms.sparse_vector.mechanisms import (
    AboveThreshold,
    HaltedError,
    NumericSparse,
)
from beam_dp.mechanisms.sparse_vector.noise import (
    noise_candidates,
    published_accuracy,
    sparse_vector_noise,
)
from beam_dp.noise.source import NoiseSource


def textbook(max_above=1, epsilon=1.0, **named):
    return sparse_vector_noise(
        promise(ADD, 0.0, epsilon), max_above, answers=False, calibration="textbook", **named
    )


def test_mechanism_halts_after_its_last_answer():
    noise = sparse_vector_noise(promise(), 2, answers=True)
    mechanism = NumericSparse(10, noise, NoNoise())
    assert [mechanism.ask(each) for each in (3, 10, 9)] == [None, 10, None]
    assert mechanism.num_left == 1 and not mechanism.has_halted
    assert mechanism.ask(20, value=7) == 7
    assert mechanism.has_halted
    with pytest.raises(HaltedError, match="were paid for, and all were given"):
        mechanism.ask(0)


def test_questions_beyond_64_bits_are_compared():
    noise = sparse_vector_noise(promise(), 1, answers=False)
    assert not AboveThreshold(0, noise, NoiseSource()).ask(-(10**30))
    assert AboveThreshold(0, noise, NoiseSource()).ask(10**30)


def by_method(guarantee, max_above, **named):
    return {each.method: each for each in noise_candidates(guarantee, max_above, **named)}


@pytest.mark.parametrize(
    "max_above, delta, scale, numeric",
    [
        (10, 0, 20, (22.5, 45, 90)),
        (100, 0, 200, (225, 450, 900)),
        (10, 1e-9, 81.4337, (86.4430, 172.886, 977.990)),
        (100, 1e-9, 257.516, (273.357, 546.713, 3092.68)),
    ],
)
def test_textbook_noise_matches_known_values(max_above, delta, scale, numeric):
    guarantee = promise(ADD, delta)
    plain = sparse_vector_noise(guarantee, max_above, answers=False, calibration="textbook")
    assert plain.threshold_scale == pytest.approx(scale, rel=1e-5)
    assert plain.question_scale == pytest.approx(2 * scale, rel=1e-5)
    assert plain.redraws_threshold and plain.answer_scale is None
    noise = sparse_vector_noise(guarantee, max_above, answers=True, calibration="textbook")
    scales = (noise.threshold_scale, noise.question_scale, noise.answer_scale)
    assert scales == pytest.approx(numeric, rel=1e-5)


@pytest.mark.parametrize("epsilon, accuracy", [(1.0, 84.7731), (0.5, 169.546)])
def test_above_threshold_noise_matches_known_values(epsilon, accuracy):
    guarantee = promise(ADD, 0.0, epsilon)
    noise = sparse_vector_noise(guarantee, 1, answers=False, calibration="textbook")
    assert noise.threshold_scale == pytest.approx(2 / epsilon, rel=1e-9)
    assert noise.question_scale == pytest.approx(4 / epsilon, rel=1e-9)
    published = published_accuracy(guarantee, 1, 1000, 0.05, answers=False)
    assert published == pytest.approx(accuracy, rel=1e-5)


@pytest.mark.parametrize(
    "max_above, is_monotone, share, threshold, question",
    [
        (1, False, 0.386488, 2.58740, 3.25992),
        (10, False, 0.119502, 8.36806, 22.7144),
        (100, False, 0.0284095, 35.1995, 205.848),
        (100, True, 1 / 22.5443, 22.5443, 104.642),
    ],
)
def test_pure_split_matches_known_values(max_above, is_monotone, share, threshold, question):
    noise = by_method(promise(), max_above, answers=False, is_monotone=is_monotone)["pure"]
    assert noise.threshold_scale == pytest.approx(threshold, rel=1e-5)
    assert 1 / noise.threshold_scale == pytest.approx(share, rel=1e-5)
    assert noise.question_scale == pytest.approx(question, rel=1e-5)
    assert not noise.redraws_threshold


@pytest.mark.parametrize("max_above, pure, sigma", [(346, (1051, 1038), 186), (35, (111, 105), 59)])
def test_numeric_answers_with_a_third_of_the_budget_have_known_scales(max_above, pure, sigma):
    found = by_method(promise(ADD, 1e-9), max_above, answers=True, answer_share=1 / 3)
    scales = (found["pure"].question_scale, found["pure"].answer_scale)
    assert scales == pytest.approx(pure, rel=5e-3)
    assert found["zcdp"].answer_scale == pytest.approx(sigma, rel=5e-3)


def test_calibration_with_smallest_margin_is_used():
    few = sparse_vector_noise(promise(ADD, 1e-9), 10, answers=True)
    many = sparse_vector_noise(promise(ADD, 1e-9), 346, answers=True)
    assert (few.method, many.method) == ("pure", "zcdp")
    textbook = sparse_vector_noise(promise(ADD, 1e-9), 346, answers=True, calibration="textbook")
    assert many.margin(1000, 0.05) < textbook.margin(1000, 0.05) / 2
    assert many.answer_scale < textbook.answer_scale / 9
    # The pure one does without the composition that the textbook states for small epsilon.
    assert sparse_vector_noise(promise(ADD, 1e-9, 60.0), 1, answers=False).method == "pure"


def test_published_approximate_noise_beats_pure_noise_from_166_answers():
    """MECHANISMS of the book: with many answers only is its (epsilon, delta) version better."""

    def scale(max_above: int, delta: float) -> float:
        guarantee = promise(ADD, delta)
        noise = sparse_vector_noise(guarantee, max_above, answers=False, calibration="textbook")
        return noise.threshold_scale

    assert scale(165, 1e-9) > scale(165, 0.0)
    assert scale(166, 1e-9) < scale(166, 0.0)
    assert scale(110, 1e-6) > scale(110, 0.0)
    assert scale(111, 1e-6) < scale(111, 0.0)


@pytest.mark.parametrize(
    "times, delta, epsilon", [(1, 1e-9, 25.8), (10, 1e-9, 45), (1, 1e-3, 11.5)]
)
def test_epsilon_too_large_for_published_composition_is_refused(times, delta, epsilon):
    """It is stated for epsilon < 1, and holds up to these."""

    def plan(scale: float) -> None:
        guarantee = dp.Guarantee(epsilon * scale, delta, ADD, "record", 1, allow_large_delta=True)
        sparse_vector_noise(guarantee, times, answers=False, calibration="textbook")

    plan(1.0)
    with pytest.raises(dp.InputError, match="textbook's composition"):
        plan(1.01)


def test_published_approximate_bound_beats_pure_bound_from_148_answers():
    def accuracy(max_above: int, delta: float) -> float:
        return published_accuracy(promise(ADD, delta), max_above, 1000, 0.05, answers=True)

    assert accuracy(147, 1e-9) > accuracy(147, 0.0)
    assert accuracy(148, 1e-9) < accuracy(148, 0.0)


def test_margin_covers_whole_grid_units():
    noise = sparse_vector_noise(promise(), 1, answers=False, calibration="textbook")
    exact = 2 * math.log(60) + 4 * math.log(60_000)
    assert exact <= noise.margin(1000, 0.05) < exact + 2
    assert exact <= noise.margin(1000, 0.05, grid=1000) < exact + 0.002
    assert noise.margin(1000, 0.05) == math.ceil(2 * math.log(60)) + math.ceil(4 * math.log(60_000))
