"""Runs of online multiplicative weights on tiny domains, and the exact law of the real code.

Its sparse vector is replaced by a probe that plays back a transcript and catches the next question.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from noise_sources import NoNoise
from sparse_vector_laws import transcript_law
from tiny import REPLACE, domain_of, promise

import beam_dp as dp
from beam_dp.mechanisms.online import (
    plan as plan_module,
    private_mw as module,
    sparse_mw as sparse_mw_module,
)
from beam_dp.mechanisms.online.private_mw import PrivateMW, SavedRun
from beam_dp.mechanisms.sparse_vector import SparseState
from beam_dp.queries import linear as linear_module, sparse as sparse_module
from beam_dp.queries.linear import Product
from beam_dp.secret.summaries.histogram import Histogram
from beam_dp.testing.audit import discrete_laplace


def cells(domain: dp.Domain, *codes: int) -> Product:
    name = domain.names[0]
    return dp.LinearQueries(domain).conjunction({name: list(codes)})


class Caught(Exception):  # noqa: N818
    """The next question, and the value to answer."""


class Probe:
    """Plays back what a sparse vector said, then catches the next question."""

    def __init__(self, transcript, max_above: int) -> None:
        self._said = list(transcript)
        self._max_above = max_above
        self._num_above = 0

    @property
    def num_left(self) -> int:
        return self._max_above - self._num_above

    @property
    def has_halted(self) -> bool:
        return self.num_left == 0

    def ask(self, question, value=None):
        if not self._said:
            raise Caught(question, question if value is None else value)
        said = self._said.pop(0)
        if said is False:
            return None
        self._num_above += 1
        return said


@contextmanager
def whole_records() -> Iterator[None]:
    """A grid of whole records, so that the noise takes few values. Predicates only."""
    plan_module._settle.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        for each in (linear_module, sparse_mw_module):
            patch.setattr(each, "VALUE_BITS", 0)
        patch.setattr(sparse_module, "_ONE", 1)
        for each in (module, plan_module):
            patch.setattr(each, "GRID", 1)
        yield
    plan_module._settle.cache_clear()


def interact(run: PrivateMW) -> list:
    """An analyst who chooses the second query by the first answer."""
    domain = run.plan.domain
    answers = [run.answer(cells(domain, 0))]
    second = (1,) if answers[0].value > 1.2 else (0, 1)
    answers.append(run.answer(cells(domain, *second)))
    return answers


def probed(kind, plan, data, transcript, total):
    counts = np.bincount(np.array(data, np.int64), minlength=plan.domain.num_cells)
    empty = SavedRun(
        plan.settle(total).to_json(),
        total,
        (),
        SparseState({"num_above": 0, "noisy_threshold": 0}),
        payment=None,
        log_weights=np.zeros(plan.domain.num_cells),
    )
    run = kind(plan, Histogram(plan.domain, counts.astype(np.int64)), NoNoise(), saved=empty)
    run._sparse = Probe(transcript, run.settings.noise.max_above)
    return run


def law_of(plan, kind=PrivateMW, probed=probed, interact=interact, low=-1, high=3):
    """The law of a run, by its data."""

    def ask_with(total):
        def ask(data, transcript):
            try:
                interact(probed(kind, plan, data, transcript, total))
            except Caught as caught:
                return caught.args
            return None

        return ask

    def given_total(data, total):
        settings = plan.settle(total)
        noise, ask = settings.noise, ask_with(total)
        law = transcript_law(noise, settings.threshold, data, ask, low=low, high=high)
        return {(total, *transcript): p for transcript, p in law.items()}

    def law(data):
        if plan.count_scale is None:
            return given_total(data, plan.num_records)
        totals = discrete_laplace(plan.count_scale, len(data), 1, 3)
        return {
            outcome: share * p
            for total, share in totals.items()
            for outcome, p in given_total(data, total).items()
        }

    return law


def tiny_plan(neighboring, delta, calibration, most=1, **named):
    named = {"num_records": 3, "max_error": 0.45, "num_questions": 2, **named}
    num_records = named.pop("num_records")
    return dp.plan_private_mw(
        domain_of(3),
        promise(neighboring, delta, 1.0, most),
        num_records,
        calibration=calibration,
        **named,
    )


def run_of(plan, counts, noise=None, **named) -> PrivateMW:
    return PrivateMW(
        plan, Histogram(plan.domain, np.asarray(counts, np.int64)), noise or NoNoise(), **named
    )


def small_run(max_updates=2, noise=None, **named):
    plan = dp.plan_private_mw(
        domain_of(8), promise(REPLACE, 0.0, 5.0), 80_000, num_questions=4, max_updates=max_updates
    )
    return run_of(plan, [80_000, 0, 0, 0, 0, 0, 0, 0], noise, **named)


def hard_queries(run, counts, rounds):
    """The worst of many random half-spaces each time, as an adversary would ask."""
    generator = np.random.default_rng(1)
    for _ in range(rounds):
        tables = generator.integers(0, 2, (200, len(counts))).astype(float)
        errors = np.abs(tables @ (counts / counts.sum() - run.weights))
        yield dp.LinearQueries(run.plan.domain).explicit(tables[int(errors.argmax())])
