"""What is published of multiplicative weights for sparse queries, over slots instead of cells."""

from __future__ import annotations

import functools
import math

import numpy as np
from claim_rows.adversaries import CALIBRATIONS, FALL, Calibration, Slots, Taught, rate, teach
from claim_rows.claim import Agreement, Claim, Failures, Slack, failures

from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.private_mw import DenseWeights
from beam_dp.mechanisms.online.sparse_mw import SparseMW, SparseWeights, num_slots, plan_sparse_mw
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear import Explicit
from beam_dp.queries.sparse import SparseQuery
from beam_dp.secret.summaries.sparse_counts import KeyCounts

BETA, DELTA = 0.05, 1e-6

# m, alpha, and the keys that data are on, with their mass.
SPARSE = ((1, 0.5, 1, 1.0), (4, 0.25, 3, 0.7), (10, 0.1, 40, 0.9))


def _slots(trials: int) -> list[Agreement]:
    """Random updates of slots and of an array of s cells, of which m are a query's."""
    rng, worst, cases = np.random.default_rng(2), 0.0, 0
    for _ in range(max(1, trials)):
        slots, sparsity = 200, int(rng.integers(1, 6))
        sparse, dense = SparseWeights(slots), DenseWeights(np.zeros(slots))
        for _ in range(150 // sparsity):
            keys = rng.choice(slots - 1, sparsity, replace=False)
            values = rng.integers(1, 2**16 + 1, sparsity) / 2**16
            table = np.zeros(slots)
            table[keys] = values
            query = SparseQuery(dict(zip(keys.tolist(), values.tolist(), strict=True)))
            asked = Explicit.of((slots,), table)
            worst = max(worst, abs(sparse.mean(query) - dense.mean(asked)))
            step, cases = float(rng.normal()), cases + 1
            sparse.update(query, step)
            dense.update(asked, step)
    return [Agreement(worst, cases, "an array of all slots", 1e-9)]


@functools.cache
def _sparse_taught(calibration: Calibration, trials: int) -> list[list[Taught]]:
    found = []
    for sparsity, gap, held, mass in SPARSE:
        slots = num_slots(sparsity, gap, calibration)
        data = np.zeros(held + 12)
        data[:held] = mass / held
        runs = []
        for seed in range(max(1, trials)):
            learner, rng = Slots(data, slots), np.random.default_rng(seed)
            runs.append(teach(rng, learner, gap, rate(calibration, gap), sparsity))
        found.append(runs)
    return found


def _slot_updates(trials: int) -> list[Slack]:
    found = []
    for calibration in CALIBRATIONS:
        per_setting = zip(SPARSE, _sparse_taught(calibration, trials), strict=True)
        for (sparsity, gap, *_), runs in per_setting:
            slots = num_slots(sparsity, gap, calibration)
            steps = 4.0 if calibration == "textbook" else 0.5
            most = math.floor(steps * math.log(slots) / gap**2)
            found.append(Slack(max(each.updates for each in runs), most, len(runs), "updates"))
    return found


def _potential(trials: int) -> list[Slack | Agreement]:
    found: list[Slack | Agreement] = []
    for calibration in CALIBRATIONS:
        per_setting = zip(SPARSE, _sparse_taught(calibration, trials), strict=True)
        for (_, gap, *_), runs in per_setting:
            promised = gap**2 / 4 if calibration == "textbook" else 2 * gap**2
            least = min(each.least_drop for each in runs)
            found.append(Slack(promised, least, sum(each.updates for each in runs), FALL))
    # The example that the row tells: half of the weight is on an element with 2 % of the
    # data, no other one was asked about.
    hypothesis, query = SparseWeights(88), SparseQuery({"a": 1})
    hypothesis.update(query, math.log(87))
    before, mass = hypothesis.mean(query), 0.02
    hypothesis.update(query, -0.225)
    printed = mass * math.log(hypothesis.mean(query) / before)
    off = max(abs(before - 0.5), abs(printed - -0.0024))
    found.append(Agreement(off, 1, "the example", 5e-5))
    return found


def _room(trials: int) -> list[Slack]:
    """Slots taken by one update more than there may be, each of m keys that are new."""
    found = []
    for calibration in CALIBRATIONS:
        for sparsity, gap in ((1, 0.5), (4, 0.25), (3, 0.2)):
            slots = num_slots(sparsity, gap, calibration)
            steps = 4 * (math.log(slots) + 1) if calibration == "textbook" else math.log(slots) / 2
            updates = math.floor(steps / gap**2) + (calibration == "tight")
            hypothesis = SparseWeights(slots)
            for number in range(updates):
                keys = range(number * sparsity, (number + 1) * sparsity)
                hypothesis.update(SparseQuery.of_list(keys), -gap)
            taken = hypothesis.num_slots - hypothesis.num_free + 1
            found.append(Slack(taken, slots, updates, "slots, with a free one"))
    return found


def _sparse_errors(trials: int) -> list[Failures]:
    found = []
    for delta, calibration, total in (
        (0.0, "textbook", 400_000),
        (DELTA, "textbook", 400_000),
        (DELTA, "tight", 20_000),
    ):
        counts = {"a": total * 17 // 20, "b": total // 10, "c": total // 20}
        queries = [SparseQuery.of_list(keys) for keys in ("a", "b", "c", "ab", "bc", "ad", "e")]
        plan = plan_sparse_mw(
            Guarantee(1.0, delta, "replace_one", "record", 1),
            total,
            max_sparsity=2,
            num_questions=len(queries),
            failure_probability=BETA,
            calibration=calibration,  # type: ignore[arg-type]
        )
        shares = []
        for _ in range(trials):
            run, worst = SparseMW(plan, KeyCounts(counts), NoiseSource()), 0.0
            for query in queries:
                answer = run.answer(query)
                assert answer.bound is not None
                worst = max(worst, abs(answer.value - query.count(counts) / GRID) / answer.bound)
            shares.append(worst)
        found.append(failures(shares, BETA))
    return found


CLAIMS = [
    Claim(
        key="sparse_weights.slots",
        source="Blum and Roth 2011, Algorithm 1",
        statement="s slots instead of U cells: elements of updates take slots, all others have the"
        " weight of a free one",
        here="`SparseWeights`, and one slot is never taken",
        measure=_slots,
        trials=20,
    ),
    Claim(
        key="sparse_weights.updates",
        source="Blum and Roth 2011, Theorem 3.5",
        statement="B(alpha) = 4 (ln s + 1) / alpha^2 updates at most, for s with s / (ln s + 1) >="
        " 4m / alpha^2",
        printed="T <= 4 ln(s) / alpha^2 first, then the above: with the potential mended (below)"
        " the first is right",
        here="floor(4 ln(s) / alpha^2), and floor(ln(s) / (2 alpha^2)) with eta = 4 alpha; m and"
        " alpha of (1, 0.5), (4, 0.25), (10, 0.1); first as published, then tight",
        measure=_slot_updates,
        trials=1,
    ),
    Claim(
        key="sparse_weights.room",
        source="Blum and Roth 2011, Claim 3.6",
        statement="slots do not run out: s - m B >= 1",
        here="`num_slots`; tight: s >= m (B + 1) + 1, room for one update more than there may be;"
        " m and alpha of (1, 0.5), (4, 0.25), (3, 0.2)",
        measure=_room,
        trials=1,
    ),
    Claim(
        key="sparse_weights.potential",
        source="Blum and Roth 2011, Lemma 3.7",
        statement="an update lowers the potential by alpha^2 / 4 or more",
        printed="the potential sums over elements that were asked about only, whose data have mass"
        " a < 1: with Q of weight 0.5 on the hypothesis and a = Q(D) = 0.02 the gap is 0.48, alpha"
        " = 0.45 promises a fall of 0.0506, and it rises by 0.0024; with a = 0 it never moves",
        here="the rest of the data is put on the slot that is never taken: a relative entropy, ln s"
        " at most; settings as above",
        measure=_potential,
        trials=1,
    ),
    Claim(
        key="sparse_weights.interactive",
        source="Blum and Roth 2011, Theorem 3.8",
        statement="sparse multiplicative weights as an interactive mechanism: k adaptive m-sparse"
        " queries within alpha n except with probability beta, in time O(m) each, up to logarithms",
        printed="with the constant of Theorem 3.3",
        here="`SparseMW`: NumericSparse with c = floor(B); pure and delta as published, then tight",
        measure=_sparse_errors,
        trials=500,
    ),
]
