"""The registry's online mechanisms: the sparse vector family, and online multiplicative weights.

Their laws are exact, by summing over the threshold's noise (``sparse_vector_laws``). Mutants are
the variants that Lyu, Su and Li (2017) found in print, and what else could go wrong.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from audit_cases import Audit, Mutant, Patch
from audit_end_to_end import skip_limit
from audit_views import Finding, from_black_box
from noise_sources import Seeded
from numpy.typing import NDArray
from private_mw_laws import cells, law_of, probed, tiny_plan, whole_records
from sparse_vector_laws import transcript_law
from tiny import ADD, PURE, REPLACE, domain_of, promise

from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.private_mw import PrivateMW
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.sparse_vector import mechanisms as module
from beam_dp.mechanisms.sparse_vector.mechanisms import AboveThreshold, NumericSparse, Sparse
from beam_dp.mechanisms.sparse_vector.noise import SparseVectorNoise, noise_candidates
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import zcdp_epsilon
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.testing import audit
from beam_dp.transforms.counting.summarise import CountCells
from beam_dp.transforms.drawing import answer_queries as answer_module, one_worker

DELTA = 1e-6
RUNS = 6000


@dataclasses.dataclass(frozen=True)
class SparseCase:
    """One calibration of one mechanism of the family."""

    kind: type[NumericSparse]
    method: str
    guarantee: Guarantee
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


def sparse_cases() -> dict[str, list[SparseCase]]:
    found: dict[str, list[SparseCase]] = {}
    for kind, max_above in ((AboveThreshold, 1), (Sparse, 2), (NumericSparse, 2)):
        for method, delta in (("textbook", PURE), ("pure", PURE), ("zcdp", DELTA)):
            name = f"{kind.__name__} {method}"
            # A record changes a question by at most one under either relation.
            relation = REPLACE if kind is Sparse else ADD
            found[name] = [SparseCase(kind, method, promise(relation, delta, 1.0), max_above)]
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


class Batched(NoiseSource):
    """The production noise, many values at a time: single ones take 100 times as long."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: dict[float, list[int]] = {}

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        drawn = self._drawn.setdefault(scale, [])
        while len(drawn) < values.size:
            drawn += super().laplace(np.zeros(4096, np.int64), scale).tolist()
        return values + np.array([drawn.pop() for _ in range(values.size)], np.int64)


def signs_of(length: int, max_above: int) -> tuple[int, ...]:
    """Questions that move up, and as many as may be above the threshold that move down."""
    return (1,) * (length - max_above) + (-1,) * max_above


def exact_law(case: SparseCase) -> Finding:
    """The exact law of long sequences of questions on two neighbours, for many thresholds."""
    noise = calibrated(case)
    signs = signs_of(10 if case.max_above > 1 else 20, case.max_above)

    def ask(data: int, transcript: tuple[Any, ...]) -> tuple[int, int] | None:
        if len(transcript) == len(signs):
            return None
        value = signs[len(transcript)] * data
        return value, value

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


def sampler(case: SparseCase) -> Finding:
    """Whole runs of the code against their exact law; the noise itself has audits of its own."""
    loud = dataclasses.replace(case, guarantee=dataclasses.replace(case.guarantee, epsilon=6.0))
    noise = calibrated(loud)
    outcomes, source = [], Seeded(5)
    for _ in range(RUNS):
        mechanism, transcript = case.kind(1, noise, source), ()
        while not mechanism.has_halted and (asked := asked_of(1, transcript)) is not None:
            said = mechanism.ask(*asked) if case.answers else mechanism.ask(asked[0])
            if case.answers:
                said = False if said is None else min(max(said, 1), 4)
            transcript = (*transcript, said)
        outcomes.append(transcript)
    law = transcript_law(noise, 1, 1, asked_of, low=1, high=4)
    return Finding(audit.audit_sampler(outcomes, law).passes)


def black_box(case: SparseCase) -> Finding:
    """Whole runs on two neighbours; only what is told with an answer can be seen in so few."""
    guarantee = dataclasses.replace(case.guarantee, epsilon=6.0)
    one = dataclasses.replace(case, guarantee=guarantee, max_above=1)
    noise = calibrated(one)
    signs = (1, 1, 1, -1)

    def ask(data: int, transcript: tuple[Any, ...]) -> tuple[int, int] | None:
        if len(transcript) == len(signs):
            return None
        value = signs[len(transcript)] * data
        return value, value

    def run(data: int) -> Callable[[int], list[Any]]:
        def runs(number: int) -> list[Any]:
            outcomes, source = [], Batched()
            for _ in range(number):
                mechanism, transcript = NumericSparse(1, noise, source), ()
                while not mechanism.has_halted and (asked := ask(data, transcript)) is not None:
                    said = mechanism.ask(*asked)
                    said = False if said is None else min(max(said, -2), 2)
                    transcript = (*transcript, said)
                outcomes.append(transcript)
            return outcomes

        return runs

    laws = tuple(transcript_law(noise, 1, data, ask, low=-2, high=2) for data in (0, 1))
    return from_black_box(
        audit.audit_black_box(
            run(0),
            run(1),
            guarantee.epsilon,
            runs=4000,
            laws=laws,  # type: ignore[arg-type]
            score=lambda transcript: math.log(laws[0][transcript] / laws[1][transcript]),
        )
    )


def calibrate_with(change: Callable[[SparseCase], SparseVectorNoise]) -> Callable[[Patch], None]:
    """The noise of every case is changed; the law and the price see it."""
    return lambda patch: patch.setitem(globals(), "calibrated", change)


_CALIBRATED = calibrated


def unscaled(case: SparseCase) -> SparseVectorNoise:
    one = _CALIBRATED(dataclasses.replace(case, max_above=1))
    return dataclasses.replace(one, max_above=case.max_above)


def scaled_by(**factors: float) -> Callable[[Patch], None]:
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


def halve_code(patch: Patch) -> None:
    """The code draws half of the noise that its calibration says."""
    original = module._on_grid
    patch.setattr(module, "_on_grid", lambda scale, grid: original(scale, grid) / 2)


def replaced(owner: Any, name: str, by: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(owner, name, by)


def sparse_mutants(case: SparseCase) -> dict[str, Mutant]:
    found = {
        "no question noise": Mutant(scaled_by(question_scale=1e-9), "law"),
        "no threshold noise": Mutant(scaled_by(threshold_scale=1e-9), "price"),
        "question noise halved": Mutant(scaled_by(question_scale=0.5), "price"),
        "no question noise in the code": Mutant(replaced(module, "_Supply", _NoNoise), "sampler"),
        "one noise for all questions": Mutant(replaced(module, "_Supply", _OneNoise), "sampler"),
        "noise halved in the code": Mutant(halve_code, "sampler"),
        "no cutoff": Mutant(replaced(NumericSparse, "_is_above", _never_halt), "sampler"),
    }
    if case.max_above > 1:
        found["noise not scaled with c"] = Mutant(calibrate_with(unscaled), "price")
        if case.method != "pure":
            keep = replaced(NumericSparse, "_is_above", _keep_threshold)
            found["threshold not redrawn"] = Mutant(keep, "sampler")
    if case.answers:
        reuse = replaced(NumericSparse, "ask", _reuse_noise)
        found["comparison noise reused in the answer"] = Mutant(reuse, "sampler")
    if case.answers and case.method == "pure":
        found["noise halved in the code, seen from outside"] = Mutant(halve_code, "black box")
    return found


# Online multiplicative weights.


def private_mw_law(relation: str, delta: float, calibration: str, named: dict[str, Any]) -> Finding:
    """The exact law of an analyst who chooses the second query by the first answer."""
    with whole_records():
        plan = tiny_plan(relation, delta, calibration, **named)
        found = audit.audit_law(law_of(plan), range(3), plan.guarantee, num_others=2)
    return Finding(found.is_private)


def post_processing(relation: str) -> Finding:
    """All else is the same for any data, given what the sparse vector said."""
    plan = tiny_plan(relation, 0.0, "tight", max_updates=2)
    queries = [cells(plan.domain, *codes) for codes in ((0,), (1,), (0, 1), (1, 2))]

    def seen(data: tuple[int, ...], said: tuple[Any, ...]) -> Any:
        run = probed(PrivateMW, plan, data, said, 3)
        return [
            (run.answer(query), run._hypothesis.mean(query)) for query in queries
        ], run.weights.tolist()

    transcripts = [(False,) * 4, (False, 40000, False, False), (200000, False, False, False)]
    datasets = [(), (0,), (0, 1, 2), (1, 1, 1), (0, 0, 0, 0, 2)]
    return Finding(
        all(seen(data, said) == seen((), said) for said in transcripts for data in datasets)
    )


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


_LEARN, _ANSWER = PrivateMW._learn, PrivateMW.answer


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
    plan = plan_private_mw(
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
        found = audit.audit_black_box(side(others + own), side(others), PIPELINE.epsilon, runs=1500)
    return from_black_box(found)


PRIVATE_MW: dict[str, list[tuple[str, float, str, dict[str, Any]]]] = {
    "PrivateMW tight": [
        (REPLACE, 0.0, "tight", {}),
        (ADD, 0.0, "tight", {"max_updates": 1}),
        (ADD, DELTA, "tight", {"max_updates": 1}),
    ],
    "PrivateMW textbook": [
        (ADD, 0.0, "textbook", {"max_error": 0.99}),
        (REPLACE, DELTA, "textbook", {"max_error": 0.99}),
    ],
}


def online_audits() -> list[Audit]:
    found = []
    for name, cases in sparse_cases().items():
        for case in cases:
            checks = {"price": price, "law": exact_law, "sampler": sampler}
            if case.answers and case.method == "pure":
                checks["black box"] = black_box
            held = {check: functools.partial(run, case) for check, run in checks.items()}
            found.append(Audit(name, case.guarantee, held, sparse_mutants(case)))  # type: ignore
    for name, plans in PRIVATE_MW.items():
        for plan in plans:
            relation, delta = plan[:2]
            checks = {
                "law": functools.partial(private_mw_law, *plan),
                "post-processing": functools.partial(post_processing, relation),
            }
            mutants = {
                "direction from the data": (_LEARN.__name__, _learn_from_the_data),
                "sum told without noise": (_ANSWER.__name__, _tell_the_sum),
            }
            caught = {
                bug: Mutant(replaced(PrivateMW, method, by), "post-processing")
                for bug, (method, by) in mutants.items()
            }
            if not delta:
                scaled = replaced(PrivateMW, "_ask", _ask_many_times_the_difference)
                caught["a question of many times the sensitivity"] = Mutant(scaled, "law")
            found.append(Audit(name, promise(relation, delta), checks, caught))  # type: ignore
    mutants = {
        "bounding missing": Mutant(skip_limit, "black box"),
        "sum told without noise": Mutant(replaced(PrivateMW, "answer", _tell_the_sum), "black box"),
    }
    found.append(
        Audit("whole pipeline, PrivateMW", PIPELINE, {"black box": whole_pipeline}, mutants)
    )
    return found
