"""One of each run: no copy, no pickle, no fork, no two threads at once, and one hand-over.

Each race is certain where a lock is missing (``crowds``): no test here depends on time or chance.
"""

import copy
import ctypes
import os
import pickle
import signal
from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.internal import pickler
from crowds import Crowd
from noise_sources import NoNoise
from patience import HANG_SECONDS
from private_mw_laws import cells, run_of, small_run
from sparse_mw_laws import member, simple_plan
from tiny import domain_of, promise

import beam_dp as dp
from beam_dp.mechanisms import sparse_vector as live
from beam_dp.mechanisms.sparse_vector import (
    AboveThreshold,
    HaltedError,
    NumericSparse,
    Sparse,
    SparseState,
    noise_candidates,
    sparse_vector_noise,
)
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.secret.summaries.histogram import Histogram
from beam_dp.secret.summaries.sparse_counts import KeyCounts
from beam_dp.transforms.drawing import answer_queries

HELD = KeyCounts({"a": 80_000})
ABOVE = 20  # a question above the threshold 10


def sparse_vector(noise: NoiseSource | None = None, kind: Any = NumericSparse, c: int = 1) -> Any:
    calibration = sparse_vector_noise(promise(), c, answers=kind is NumericSparse)
    return kind(10, calibration, noise or NoNoise())


def sparse_run(noise: NoiseSource | None = None, max_updates: int = 1) -> dp.SparseMW:
    return dp.SparseMW(simple_plan(max_updates=max_updates), HELD, noise or NoNoise())


LIVE: dict[str, Callable[[], Any]] = {
    "NumericSparse": sparse_vector,
    "Sparse": lambda: sparse_vector(kind=Sparse),
    "AboveThreshold": lambda: sparse_vector(kind=AboveThreshold),
    "SparseState": lambda: SparseState({"num_above": 0, "noisy_threshold": 3}),
    "PrivateMW": lambda: small_run(1),
    "SparseMW": sparse_run,
}
USE: dict[str, Callable[[Any], Any]] = {
    "SparseState": SparseState.take,
    "PrivateMW": lambda run: run.answer(cells(run.plan.domain, 0)),
    "SparseMW": lambda run: run.answer(member("a")),
}


def use(name: str, thing: Any) -> Any:
    return USE.get(name, lambda mechanism: mechanism.ask(ABOVE))(thing)


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "Beam's pickler": pickler.dumps,
    **{f"pickle {n}": lambda it, n=n: pickle.dumps(it, n) for n in range(6)},
}


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("name", LIVE)
def test_live_objects_cannot_be_copied(name, copied):
    thing = LIVE[name]()
    with pytest.raises(dp.InputError) as refused:
        COPIES[copied](thing)
    condition = "must not be copied or pickled: each copy would spend the same budget again"
    assert str(refused.value).startswith(f"object: '{name}' is not valid: {condition}")
    use(name, thing)  # and it goes on


def test_handed_over_state_cannot_be_copied():
    saved = small_run(1).hand_over()
    for copied in (copy.deepcopy, pickle.dumps, pickler.dumps):
        with pytest.raises(dp.InputError, match="must not be copied or pickled"):
            copied(saved)
    # A shallow copy holds the very state, which is of one use.
    assert copy.copy(saved).sparse is saved.sparse
    assert "noisy_threshold" not in repr(saved)


def test_plans_and_queries_can_be_pickled():
    plan = dp.plan_private_mw(domain_of(4), promise(), 1000, num_questions=3)
    query = cells(plan.domain, 3)
    step = answer_queries._AnswerStream(answer_queries._Starter(plan, None))
    for thing in (plan, simple_plan(), query, member("ab"), step.starter):
        assert pickle.loads(pickle.dumps(thing)) == copy.deepcopy(thing) == thing
    assert pickler.loads(pickler.dumps(step)).starter == step.starter


# Forks.


def exit_code_in_a_fork(call: Callable[[], Any], fork: Callable[[], int] = os.fork) -> int:
    """Calls in a child; 0 if it is answered, 3 if it is refused."""
    child = fork()
    if child == 0:
        code = 4
        try:
            signal.alarm(int(HANG_SECONDS))  # a child that waits for a lock for ever must end
            call()
            code = 0
        except HaltedError as error:
            code = 3 if "this is a copy in a forked process" in str(error) else 5
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", LIVE)
def test_forked_child_gets_no_answer(name):
    thing = LIVE[name]()
    assert exit_code_in_a_fork(lambda: use(name, thing)) == 3
    use(name, thing)


def test_forked_child_cannot_hand_over():
    run = small_run(1)
    assert exit_code_in_a_fork(run.hand_over) == 3
    run.hand_over()


def test_forked_child_is_refused_even_if_a_thread_held_the_lock():
    mechanism = sparse_vector()
    with mechanism._lock:
        assert exit_code_in_a_fork(lambda: mechanism.ask(ABOVE)) == 3
    assert mechanism.ask(ABOVE) == ABOVE


def test_child_with_a_reused_process_id_is_refused(monkeypatch):
    monkeypatch.setattr(live.os, "getpid", lambda: 7)
    mechanism = sparse_vector()
    assert exit_code_in_a_fork(lambda: mechanism.ask(ABOVE)) == 3


def test_fork_made_by_c_code_is_refused():
    mechanism = sparse_vector()
    fork = ctypes.PyDLL(None).fork
    assert exit_code_in_a_fork(lambda: mechanism.ask(ABOVE), fork) == 3


def test_forked_child_may_use_its_own_objects():
    def ask_one_of_its_own() -> None:
        assert sparse_vector().ask(ABOVE) == ABOVE

    assert exit_code_in_a_fork(ask_one_of_its_own) == 0


# Threads.


def test_question_after_the_last_paid_answer_raises_or_ends_the_run():
    mechanism = sparse_vector()
    mechanism._num_above = 2
    assert mechanism.has_halted
    with pytest.raises(HaltedError, match="were paid for, and all were given"):
        mechanism.ask(ABOVE)
    run = small_run(1)
    run._sparse._num_above = 2
    assert run.answer(cells(run.plan.domain, 0)).route == "exhausted"


def answer_at_once(patch: pytest.MonkeyPatch, same: bool) -> list[str]:
    crowd = Crowd(patch)
    run = small_run(1, crowd.noise())
    asked = [cells(run.plan.domain, 0 if same else code) for code in range(4)]
    calls = [lambda query=query: run.answer(query).route for query in asked]
    return sorted(crowd.run(*calls))


@pytest.mark.parametrize("same", [False, True])
def test_concurrent_queries_are_measured_no_more_often_than_paid_for(same, monkeypatch):
    routes = answer_at_once(monkeypatch, same)
    assert routes == (["update"] * 4 if same else ["exhausted"] * 3 + ["update"])


def test_answer_during_hand_over_is_in_the_saved_run(monkeypatch):
    crowd = Crowd(monkeypatch)
    run = small_run(1, crowd.noise())
    query = cells(run.plan.domain, 0)
    answered, *handed = crowd.run(lambda: run.answer(query), run.hand_over, run.hand_over)
    assert answered.route == "update"
    (saved,) = [each for each in handed if not isinstance(each, Exception)]
    (refused,) = [each for each in handed if isinstance(each, Exception)]
    assert isinstance(refused, HaltedError) and "the run was saved" in str(refused)
    assert saved.sparse.take()["num_above"] == 1 and len(saved.answers) == 1


# Once.


def test_run_can_be_handed_over_only_once():
    run = small_run(1)
    run.hand_over()
    for again in (run.hand_over, lambda: run.answer(cells(run.plan.domain, 0))):
        with pytest.raises(HaltedError, match=r"^the run was saved: resume it from there$"):
            again()
    # What is public can still be read.
    assert run.updates_left == 1 and run.transcript == ()


def continued(run: dp.PrivateMW, saved: Any) -> dp.PrivateMW:
    return dp.PrivateMW(run.plan, Histogram(run.plan.domain, run._counts), NoNoise(), saved=saved)


def test_handed_over_state_can_be_resumed_only_once():
    run = small_run(1)
    saved = run.hand_over()
    goes_on = continued(run, saved)
    with pytest.raises(HaltedError, match="the state was used before: a run resumes from it once"):
        continued(run, saved)
    goes_on.answer(cells(run.plan.domain, 0))


def test_rejects_handed_over_state_of_other_settings():
    run = small_run(1)
    saved = run.hand_over()
    other = dp.plan_private_mw(run.plan.domain, promise(epsilon=9.0), 80_000, num_questions=4)
    with pytest.raises(
        dp.InputError, match=r"^saved: 'a run' is not valid: must have the settings .*"
    ):
        run_of(other, run._counts, saved=saved)
    continued(run, saved)  # a refusal uses nothing


class Fails(NoNoise):
    """Fails at one draw."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def noisy(self, values: Any) -> Any:
        if len(self.draws) == self._number:
            raise MemoryError
        return super().noisy(values)


@pytest.mark.parametrize("draw", [2, 3, 4])
def test_failed_question_ends_the_run(draw):
    """At the threshold's new noise, for one: the old threshold must not be used again."""
    candidates = noise_candidates(promise(delta=1e-6), 2, answers=True, answer_share=0.4)
    (noise,) = [each for each in candidates if each.method == "zcdp"]
    mechanism = NumericSparse(10, noise, Fails(draw))
    with pytest.raises(MemoryError):
        mechanism.ask(ABOVE)
    for call in (lambda: mechanism.ask(ABOVE), mechanism._hand_over):
        with pytest.raises(HaltedError, match="a question failed: nothing more is answered"):
            call()
