"""The registry's audits of what goes on from call to call: threads, and runs that are handed over.

Nothing here is left to chance: the races are certain where a lock is missing (``crowds``), and what
an analyst learns is judged by an exact law. So the chance of a false alarm is 0, and so is that of
a mutant that is missed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from auditing import Audit, Finding, audited, replaced
from crowds import Crowd, NoLock
from private_mw_laws import cells, run_of
from sparse_vector_laws import transcript_law
from tiny import REPLACE, domain_of, promise

from beam_dp.mechanisms.online.private_mw import PrivateMW
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.sparse_vector import mechanisms as live
from beam_dp.mechanisms.sparse_vector.mechanisms import (
    AboveThreshold,
    HaltedError,
    Live,
    NumericSparse,
    Sparse,
)
from beam_dp.mechanisms.sparse_vector.noise import SparseVectorNoise, sparse_vector_noise
from beam_dp.testing import audit

GUARANTEE = promise(REPLACE, 0.0, 1.0)
TOTAL = 80_000
# Questions that move up, and one that moves down: what each run that goes on is asked.
SIGNS = (1, 1, 1, 1, 1, 1, -1)


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
            if said is not False or place == len(SIGNS):
                place, run = 0, run + 1
        value = SIGNS[place] * data
        return None if run == num_runs else (value, value)

    shared = dataclasses.replace(noise, max_above=num_runs)
    laws = [transcript_law(shared, 0, data, ask, low=1, high=4) for data in (0, 1)]
    return max(audit.largest_log_ratio(*laws), audit.largest_log_ratio(*laws[::-1]))


def private_run(saved: Any = None) -> PrivateMW:
    plan = plan_private_mw(domain_of(2), GUARANTEE, TOTAL, num_questions=4, max_updates=1)
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


def audits() -> list[Audit]:
    found = []
    for case in ((AboveThreshold, 1), (Sparse, 2), (NumericSparse, 2)):
        name = f"{case[0].__name__} of several threads"
        bugs = {"threads": {"unlocked sparse vector": replaced(live, "Lock", NoLock)}}
        found.append(audited(name, GUARANTEE, {"threads": threads}, bugs, *case))
    second = replaced(Live, "_end", lambda self, reason: None)
    bugs, checks = {"hand-over": {"second hand-over": second}}, {"hand-over": hand_over}
    return [*found, audited("PrivateMW handed over", GUARANTEE, checks, bugs)]
