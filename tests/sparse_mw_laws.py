"""Runs of sparse online multiplicative weights on tiny data, and the exact law of the real code."""

from collections import Counter

import numpy as np
from noise_sources import NoNoise, Scripted
from private_mw_laws import Probe
from tiny import REPLACE, promise

import beam_dp as dp
from beam_dp.secret.summaries.sparse_counts import KeyCounts

KEYS = ("a", "b", "c")  # of records 0, 1 and 2; no query asks about c


def records(data) -> KeyCounts:
    return KeyCounts(dict(Counter(KEYS[each] for each in data)))


def member(keys) -> dp.SparseQuery:
    return dp.SparseQuery.of_list(keys)


def interact(run: dp.SparseMW) -> list:
    """An analyst who chooses the second query by the first answer."""
    answers = [run.answer(member("a"))]
    answers.append(run.answer(member("b" if answers[0].value > 1.2 else "ab")))
    return answers


def probed(kind, plan, data, transcript, total) -> dp.SparseMW:
    source = Scripted(answer=lambda _, shape: np.full(shape, total, np.int64))
    run = kind(plan, records(data), source)
    run._sparse = Probe(transcript, run.settings.noise.max_above)
    return run


def tiny_plan(neighboring, delta, calibration, most=1, epsilon=1.0, **named):
    default = 0.45 if calibration == "tight" else 0.99
    named = {"num_records": 3, "max_error": default, "num_questions": 2, "max_sparsity": 2, **named}
    num_records = named.pop("num_records")
    return dp.plan_sparse_mw(
        promise(neighboring, delta, epsilon, most), num_records, calibration=calibration, **named
    )


def run_of(plan, held, noise=None, kind=dp.SparseMW) -> dp.SparseMW:
    return kind(plan, held, noise or NoNoise())


def simple_plan(**named):
    named = {"max_sparsity": 3, "num_questions": 4, "max_updates": 2, **named}
    return dp.plan_sparse_mw(promise(REPLACE, 0.0, 5.0), 80_000, **named)
