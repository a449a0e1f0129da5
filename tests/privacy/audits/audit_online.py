"""The registry's online mechanisms: the sparse vector family, and online multiplicative weights.

Their laws are exact, by summing over the threshold's noise (``sparse_vector_laws``). Mutants are
the variants that Lyu, Su and Li (2017) found in print, and what else could go wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import apache_beam as beam
import pytest
import tiny
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from audit_end_to_end import skip_limit
from auditing import (
    Audit,
    Bug,
    Finding,
    around,
    audited,
    follows,
    replaced,
    scale_draws,
    told_apart,
)
from crowds import Crowd, NoLock
from noise_sources import Batched, NoNoise, Seeded
from private_mw_laws import cells, law_of, probed, run_of, tiny_plan, whole_records
from sparse_mw_laws import interact, member, probed as sparse_probed, tiny_plan as sparse_plan
from sparse_vector_laws import transcript_law
from tiny import ADD, PURE, REPLACE, domain_of, promise

import beam_dp as dp
from beam_dp.mechanisms import sparse_vector as module
from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.sparse_mw import SparseWeights
from beam_dp.mechanisms.sparse_vector import (
    AboveThreshold,
    HaltedError,
    Live,
    NumericSparse,
    Sparse,
    SparseVectorNoise,
    noise_candidates,
    sparse_vector_noise,
)
from beam_dp.privacy.accounting import zcdp_epsilon
from beam_dp.privacy.rounding import up
from beam_dp.testing import audit
from beam_dp.transforms.counting.summarise import CountCells
from beam_dp.transforms.drawing import answer_queries as answer_module, one_worker

DELTA = 1e-6
RUNS = 18_000


@dataclasses.dataclass(frozen=True)
class SparseCase:
    """One calibration of one mechanism of the family."""

    kind: type[NumericSparse]
    method: str
    guarantee: dp.Guarantee
    max_above: int

    @property
    def answers(self) -> bool:
        return self.kind is NumericSparse


def calibrated(case: SparseCase) -> SparseVectorNoise:
    """The noise as shipped, but in some mutants."""
    candidates = noise_candidates(
        case.guarantee,
        case.max_above,
        answers=case.answers,
        calibration="textbook" if case.method == "textbook" else "tight",
        answer_share=None if case.method == "textbook" or not case.answers else 0.4,
    )
    (noise,) = [each for each in candidates if each.method == case.method]
    return noise


def sparse_cases() -> dict[str, SparseCase]:
    found = {}
    for kind, max_above in ((AboveThreshold, 1), (Sparse, 2), (NumericSparse, 2)):
        for method, delta in (("textbook", PURE), ("pure", PURE), ("zcdp", DELTA)):
            name = f"{kind.__name__} {method}"
            # A record changes a question by at most one under either relation.
            relation = REPLACE if kind is Sparse else ADD
            found[name] = SparseCase(kind, method, promise(relation, delta, 1.0), max_above)
    return found


def price(case: SparseCase) -> Finding:
    """What the noise spends, by the proofs of its method, and that it is most of the budget."""
    noise, guarantee = calibrated(case), case.guarantee
    above = noise.max_above
    answer = 0.0 if noise.answer_scale is None else 1 / noise.answer_scale
    if noise.method == "pure":
        epsilon = 1 / noise.threshold_scale + above * (2 / noise.question_scale + answer)
    else:
        each = 1 / noise.threshold_scale + 2 / noise.question_scale
        epsilon = above * (each + answer)
        if guarantee.delta:
            epsilon = zcdp_epsilon(above * (each**2 + answer**2) / 2, guarantee.delta)
    share = epsilon / guarantee.epsilon
    return Finding(0.9 < share <= 1 + 1e-9)


def signs_of(length: int, max_above: int) -> tuple[int, ...]:
    """Questions that move up, and as many as may be above the threshold that move down."""
    return (1,) * (length - max_above) + (-1,) * max_above


def asked_in_turn(signs: tuple[int, ...]) -> Callable[..., tuple[int, int] | None]:
    """Questions that move up or down with the data."""

    def ask(data: int, transcript: tuple[Any, ...]) -> tuple[int, int] | None:
        if len(transcript) == len(signs):
            return None
        value = signs[len(transcript)] * data
        return value, value

    return ask


def draws(case: SparseCase) -> Finding:
    """The code draws noise of the planned scales, in units of the grid."""
    noise, source = calibrated(case), NoNoise()
    mechanism = case.kind(10, noise, source, 64)
    while not mechanism.has_halted:
        mechanism.ask(10**6, 1) if case.answers else mechanism.ask(10**6)
    planned = [noise.threshold_scale, noise.question_scale]
    planned += [noise.answer_scale] if noise.answer_scale is not None else []
    drawn = {draw.scale for draw in tiny.handed_on(source.draws)}
    return Finding(drawn == {up(Fraction(scale) * 64) for scale in planned})


def exact_law(case: SparseCase) -> Finding:
    """The exact law of long sequences of questions on two neighbours, for many thresholds."""
    noise = calibrated(case)
    ask = asked_in_turn(signs_of(10 if case.max_above > 1 else 20, case.max_above))
    # Either way: many move up and the last ones down, or the reverse.
    for threshold, moved in itertools.product((0, 10), (1, -1)):
        # An answer of 0 would equal False.
        laws = [transcript_law(noise, threshold, data, ask, low=1, high=1) for data in (0, moved)]
        for first, second in (laws, laws[::-1]):
            if case.guarantee.delta:
                left = audit.hockey_stick(first, second, case.guarantee.epsilon)
                if left > case.guarantee.delta:
                    return Finding(False)
            elif audit.largest_log_ratio(first, second) > case.guarantee.epsilon * (1 + 1e-9):
                return Finding(False)
    return Finding(True)


def asked_of(data: int, transcript: tuple[Any, ...]) -> tuple[int, int] | None:
    """Questions near the threshold, some of them chosen by what was said before."""
    if len(transcript) == 4:
        return None
    value = (data, 2 - data, data + 1, data)[len(transcript)]
    if transcript and transcript[-1] is not False:
        value -= 1
    return value, value + 1


def told(mechanism: Any, ask: Any, data: int, low: int, high: int) -> tuple[Any, ...]:
    """What one run says; an answer is clipped."""
    transcript: tuple[Any, ...] = ()
    answers = type(mechanism) is NumericSparse
    while not mechanism.has_halted and (asked := ask(data, transcript)) is not None:
        said = mechanism.ask(*asked) if answers else mechanism.ask(asked[0])
        if answers:
            said = False if said is None else min(max(said, low), high)
        transcript = (*transcript, said)
    return transcript


def sampler(case: SparseCase) -> Finding:
    """Whole runs of the code against their exact law; the noise itself has audits of its own."""
    loud = dataclasses.replace(case, guarantee=dataclasses.replace(case.guarantee, epsilon=6.0))
    noise, source = calibrated(loud), Seeded(5)
    outcomes = [told(case.kind(1, noise, source), asked_of, 1, 1, 2) for _ in range(RUNS)]
    law = transcript_law(noise, 1, 1, asked_of, low=1, high=2)
    return follows(outcomes, law)


def calibrate_with(change: Callable[[SparseCase], SparseVectorNoise]) -> Bug:
    """The noise of every case is changed; the law and the price see it."""
    return lambda patch: patch.setitem(globals(), "calibrated", change)


_CALIBRATED = calibrated


def unscaled(case: SparseCase) -> SparseVectorNoise:
    one = _CALIBRATED(dataclasses.replace(case, max_above=1))
    return dataclasses.replace(one, max_above=case.max_above)


def scaled_by(**factors: float) -> Bug:
    def change(case: SparseCase) -> SparseVectorNoise:
        noise = _CALIBRATED(case)
        changed = {name: getattr(noise, name) * factor for name, factor in factors.items()}
        return dataclasses.replace(noise, **changed)

    return calibrate_with(change)


class _NoNoise(module._Supply):
    def next(self) -> int:
        return 0


class _OneNoise(module._Supply):
    def next(self) -> int:
        if not hasattr(self, "_only"):
            self._only = super().next()
        return self._only


def _keep_threshold(self: Any, question: int) -> bool:
    above = question + self._of_questions.next() >= self._noisy_threshold
    self._num_above += above
    return bool(above)


def _never_halt(self: Any, question: int) -> bool:
    above = _keep_threshold(self, question)
    if self.has_halted:
        self._num_above -= 1
    return above


def _reuse_noise(self: Any, question: int, value: int | None = None) -> int | None:
    noisy = question + self._of_questions.next()
    if noisy < self._noisy_threshold:
        return None
    self._num_above += 1
    return noisy


# The code draws half of the noise that its calibration says.
halve_code = around(module, "_on_grid", lambda original, scale, grid: original(scale, grid) / 2)


def sparse_bugs(case: SparseCase) -> dict[str, dict[str, Bug]]:
    price = {
        "no threshold noise": scaled_by(threshold_scale=1e-9),
        "question noise halved": scaled_by(question_scale=0.5),
    }
    runs = {
        "no question noise in the code": replaced(module, "_Supply", _NoNoise),
        "one noise for all questions": replaced(module, "_Supply", _OneNoise),
        "noise halved in the code": halve_code,
        "no cutoff": replaced(NumericSparse, "_is_above", _never_halt),
    }
    found = {"law": {"no question noise": scaled_by(question_scale=1e-9)}, "price": price}
    found["draws"] = {"noise 10 % too small": scale_draws(0.9), "noise halved": halve_code}
    if case.max_above > 1:
        price["noise not scaled with c"] = calibrate_with(unscaled)
        if case.method != "pure":
            runs["threshold not redrawn"] = replaced(NumericSparse, "_is_above", _keep_threshold)
    if case.answers:
        runs["comparison noise reused in the answer"] = replaced(NumericSparse, "ask", _reuse_noise)
    return {**found, "sampler": runs}


# Online multiplicative weights.


def private_mw_law(relation: str, delta: float, calibration: str, named: dict[str, Any]) -> Finding:
    """The exact law of an analyst who chooses the second query by the first answer."""
    with whole_records():
        plan = tiny_plan(relation, delta, calibration, **named)
        found = audit.audit_law(law_of(plan), range(3), plan.guarantee, num_others=2)
    return Finding(found.is_private)


def is_post_processing(seen: Callable[[tuple[int, ...], tuple[Any, ...]], Any]) -> Finding:
    """All else is the same for any data, given what the sparse vector said."""
    transcripts = [(False,) * 4, (False, 40000, False, False), (200000, False, False, False)]
    datasets = [(), (0,), (0, 1, 2), (1, 1, 1), (0, 0, 0, 0, 2)]
    return Finding(
        all(seen(data, said) == seen((), said) for said in transcripts for data in datasets)
    )


def post_processing(relation: str, *_: Any) -> Finding:
    plan = tiny_plan(relation, 0.0, "tight", max_updates=2)
    queries = [cells(plan.domain, *codes) for codes in ((0,), (1,), (0, 1), (1, 2))]

    def seen(data: tuple[int, ...], said: tuple[Any, ...]) -> Any:
        run = probed(dp.PrivateMW, plan, data, said, 3)
        answers = [(run.answer(query), run._hypothesis.mean(query)) for query in queries]
        return answers, run.weights.tolist()

    return is_post_processing(seen)


def _ask_many_times_the_difference(self: Any, query: Any, guess: int) -> Any:
    exact = query.count(self._counts)
    if self.plan.calibration == "tight":
        noisy = self._sparse.ask(4 * abs(exact - guess), 4 * exact)
        return None if noisy is None else (noisy, 1)
    for sign in (1, -1):
        noisy = self._sparse.ask(64 * sign * (exact - guess))
        if noisy is not None:
            return guess + sign * noisy, sign
    return None


_LEARN, _ANSWER = dp.PrivateMW._learn, dp.PrivateMW.answer


def _learn_from_the_data(self: Any, query: Any, mean: float, noisy: int, sign: int) -> Any:
    exact = query.count(self._counts)
    return _LEARN(self, query, mean, noisy, 1 if exact > mean * self.settings.total else -1)


def _tell_the_sum(self: Any, query: Any) -> Any:
    answer = _ANSWER(self, query)
    exact = query.count(self._counts) / GRID
    return answer if answer.route == "update" else dataclasses.replace(answer, value=exact)


# The whole pipeline: one person holds 60 records, of which two count, or none.

PIPELINE = promise(ADD, 0.0, 2.0, 2)
_SEEN: list[Any] = []


def _collect(batch: Any) -> None:
    (row,) = batch.answers
    _SEEN.append((row["route"], min(max(round(row["value"]), 0), 12)))


def whole_pipeline() -> Finding:
    """Records to answers on Beam; the step that answers is run on many public elements."""
    plan = dp.plan_private_mw(
        domain_of(2), PIPELINE, 10, num_questions=1, max_updates=1, max_error=0.3
    )
    others = [{"a0": code, "person": f"other {code}"} for code in (0, 1, 1)]
    own = [{"a0": 0, "person": "own"}] * 60

    def side(records: list[dict[str, Any]]) -> Callable[[int], list[Any]]:
        def runs(number: int) -> list[Any]:
            _SEEN.clear()
            with beam.Pipeline(runner=FnApiRunner()) as p:
                shards = (
                    p
                    | "Records" >> beam.Create(records)
                    | CountCells(plan.domain, PIPELINE, unit_costs=None)
                )
                lines = p | "Queries" >> beam.Create(['{"conjunction": {"a0": 0}}'])
                starter = answer_module._Starter(plan, None)
                step = one_worker.Draw(functools.partial(answer_module._answer_all, starter, None))
                _ = (
                    p
                    | "Often" >> beam.Create([None] * number)
                    | beam.ParDo(step, beam.pvalue.AsIter(lines), beam.pvalue.AsIter(shards))
                    | beam.Map(_collect)
                )
            return list(_SEEN)

        return runs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_worker, "NoiseSource", Batched)
        return told_apart((side(others + own), side(others)), PIPELINE, runs=1500)


PRIVATE_MW: dict[str, list[tuple[str, float, str, dict[str, Any]]]] = {
    "PrivateMW tight": [
        (REPLACE, 0.0, "tight", {}),
        (ADD, 0.0, "tight", {"max_updates": 1}),
        (ADD, DELTA, "tight", {"max_updates": 1}),
    ],
    "PrivateMW tight, two records": [(ADD, DELTA, "tight", {"most": 2})],
    "PrivateMW tight, noisy number": [(ADD, 0.0, "tight", {"num_records": "noisy"})],
    "PrivateMW textbook": [
        (ADD, 0.0, "textbook", {"max_error": 0.99}),
        (REPLACE, DELTA, "textbook", {"max_error": 0.99}),
    ],
}


def audits() -> list[Audit]:
    found = []
    for name, case in sparse_cases().items():
        checks = {"price": price, "draws": draws, "law": exact_law, "sampler": sampler}
        found.append(audited(name, case.guarantee, checks, sparse_bugs(case), case))
    tell_the_sum = {"sum told without noise": replaced(dp.PrivateMW, "answer", _tell_the_sum)}
    learn = {"direction from the data": replaced(dp.PrivateMW, "_learn", _learn_from_the_data)}
    scaled = replaced(dp.PrivateMW, "_ask", _ask_many_times_the_difference)
    for name, plans in PRIVATE_MW.items():
        for plan in plans:
            checks = {"law": private_mw_law, "post-processing": post_processing}
            bugs = {"post-processing": {**learn, **tell_the_sum}}
            if not plan[1]:
                bugs["law"] = {"a question of many times the sensitivity": scaled}
            dear = () if name.endswith("tight") else ("law",)
            found.append(audited(name, promise(*plan[:2]), checks, bugs, *plan, dear=dear))
    bugs = {"black box": {"bounding missing": skip_limit, **tell_the_sum}}
    checks = {"black box": whole_pipeline}
    return [*found, audited("whole pipeline, PrivateMW", PIPELINE, checks, bugs)]


# Sparse online multiplicative weights, from the real code (``sparse_mw_laws``).

SPARSE_MW: dict[str, list[tuple[str, float, str, dict[str, Any]]]] = {
    "SparseMW tight": [
        (REPLACE, 0.0, "tight", {}),
        (ADD, 0.0, "tight", {"max_updates": 1}),
        (ADD, DELTA, "tight", {"max_updates": 1}),
    ],
    "SparseMW tight, two records": [(ADD, DELTA, "tight", {"most": 2})],
    "SparseMW tight, noisy number": [(ADD, 0.0, "tight", {"num_records": "noisy"})],
    "SparseMW textbook": [
        (ADD, 0.0, "textbook", {}),
        (REPLACE, DELTA, "textbook", {}),
    ],
}


def sparse_mw_law(*case: Any) -> Finding:
    """The exact sparse_mw_law of an analyst who chooses the second query by the first answer."""
    with whole_records():
        plan = sparse_plan(*case[:3], **case[3])
        told = law_of(plan, dp.SparseMW, probed=sparse_probed, interact=interact)
        found = audit.audit_law(told, range(3), plan.guarantee, num_others=2)
    return Finding(found.is_private)


def sparse_post_processing(relation: str, *_: Any) -> Finding:
    plan = sparse_plan(relation, 0.0, "tight", max_updates=2)

    def seen(data: tuple[int, ...], said: tuple[Any, ...]) -> Any:
        run = sparse_probed(dp.SparseMW, plan, data, said, 3)
        queries = [member(keys) for keys in ("a", "b", "ab", "bz")]
        answers = [(run.answer(query), run._hypothesis.mean(query)) for query in queries]
        return answers, run.weights, run.common_weight, run.num_slots

    return is_post_processing(seen)


_START, _LEARN_KEYS, _ANSWER_KEYS = dp.SparseMW.__init__, dp.SparseMW._learn, dp.SparseMW.answer


def _slots_for_the_data(self: Any, plan: Any, held: Any, noise: Any) -> None:
    _START(self, plan, held, noise)
    self._hypothesis = SparseWeights(2 + len(held.counts))


def _slots_from_the_data(self: Any, query: Any, mean: float, noisy: int, sign: int) -> Any:
    held = [key for key in query.elements if key in self._counts]
    return _LEARN_KEYS(self, member(held), mean, noisy, sign)


def _direction_from_the_data(self: Any, query: Any, mean: float, noisy: int, sign: int) -> Any:
    is_more = self._exact(query) / GRID > mean * self.settings.total
    return _LEARN_KEYS(self, query, mean, noisy, 1 if is_more else -1)


def _tell_the_keys(self: Any, query: Any) -> Any:
    answer = _ANSWER_KEYS(self, query)
    exact = float(query.count(self._counts))
    return answer if answer.route == "update" else dataclasses.replace(answer, value=exact)


def _many_times_the_sum(self: Any, query: Any) -> int:
    return 64 * int(query.count(self._counts))


def audits_of_keys() -> list[Audit]:
    told = replaced(dp.SparseMW, "answer", _tell_the_keys)
    scaled = replaced(dp.SparseMW, "_exact", _many_times_the_sum)
    known = {
        "slots for the keys of the data": replaced(dp.SparseMW, "__init__", _slots_for_the_data),
        "slots only for keys of the data": replaced(dp.SparseMW, "_learn", _slots_from_the_data),
        "direction from the data": replaced(dp.SparseMW, "_learn", _direction_from_the_data),
        "sum told without noise": told,
    }
    found = []
    for name, case in ((name, case) for name, cases in SPARSE_MW.items() for case in cases):
        checks = {"law": sparse_mw_law, "post-processing": sparse_post_processing}
        bugs = {"post-processing": known}
        if not case[1]:
            bugs["law"] = {"a question of many times the sensitivity": scaled}
        dear = () if name.endswith("tight") else ("law",)
        found.append(audited(name, promise(*case[:2]), checks, bugs, *case, dear=dear))
    return found


# What goes on from call to call. Nothing here is left to chance: the races are certain where a
# lock is missing (``crowds``), and what an analyst learns is judged by an exact law.

GUARANTEE = promise(REPLACE, 0.0, 1.0)
TOTAL = 80_000
# Questions that move up, and one that moves down: what each run that goes on is asked.
ASKED = (1, 1, 1, 1, 1, 1, -1)


def threads(kind: type[NumericSparse], max_above: int) -> Finding:
    """Four threads ask at once; no more is answered than was paid for, and then nothing."""
    with pytest.MonkeyPatch.context() as patch:
        crowd = Crowd(patch)
        noise = sparse_vector_noise(GUARANTEE, max_above, answers=kind is NumericSparse)
        mechanism = kind(10, noise, crowd.noise())
        found = crowd.run(*[lambda: mechanism.ask(20)] * 4)
    num_answered = sum(not isinstance(each, HaltedError) for each in found)
    return Finding(num_answered == max_above and mechanism.has_halted)


def loss_of(noise: SparseVectorNoise, num_runs: int) -> float:
    """The largest log-ratio of what several runs say that go on from one noisy threshold."""

    def ask(data: int, transcript: tuple[Any, ...]) -> tuple[int, int] | None:
        place = run = 0
        for said in transcript:
            place += 1
            if said is not False or place == len(ASKED):
                place, run = 0, run + 1
        value = ASKED[place] * data
        return None if run == num_runs else (value, value)

    shared = dataclasses.replace(noise, max_above=num_runs)
    laws = [transcript_law(shared, 0, data, ask, low=1, high=4) for data in (0, 1)]
    return max(audit.largest_log_ratio(*laws), audit.largest_log_ratio(*laws[::-1]))


def private_run(saved: Any = None) -> dp.PrivateMW:
    plan = dp.plan_private_mw(domain_of(2), GUARANTEE, TOTAL, num_questions=4, max_updates=1)
    return run_of(plan, [TOTAL, 0], saved=saved)


def hand_over() -> Finding:
    """An analyst hands a run over as often as it lets him, and asks all that go on, and the run."""
    run, query = private_run(), cells(domain_of(2), 0)
    handed, going_on = [], [run]
    for _ in range(2):
        with contextlib.suppress(HaltedError):
            handed.append(run.hand_over())
    for saved in handed * 2:
        with contextlib.suppress(HaltedError):
            going_on.append(private_run(saved))
    measured = 0
    for each in going_on:
        with contextlib.suppress(HaltedError):
            measured += each.answer(query).route == "update"
    noise = run.settings.noise
    assert noise.max_above == 1 and loss_of(noise, 1) > 0.9 * GUARANTEE.epsilon
    # More than two spend no less than two.
    return Finding(measured > 0 and loss_of(noise, min(measured, 2)) <= GUARANTEE.epsilon)


def audits_of_live_runs() -> list[Audit]:
    found = []
    for case in ((AboveThreshold, 1), (Sparse, 2), (NumericSparse, 2)):
        name = f"{case[0].__name__} of several threads"
        bugs = {"threads": {"unlocked sparse vector": replaced(module, "Lock", NoLock)}}
        found.append(audited(name, GUARANTEE, {"threads": threads}, bugs, *case))
    second = replaced(Live, "_end", lambda self, reason: None)
    bugs, checks = {"hand-over": {"second hand-over": second}}, {"hand-over": hand_over}
    return [*found, audited("PrivateMW handed over", GUARANTEE, checks, bugs)]
