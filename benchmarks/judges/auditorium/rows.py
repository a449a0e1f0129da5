"""Tests mechanisms as black boxes with Google's DP-Auditorium: it sees releases and nothing else.

Each mechanism promises epsilon 1, and is run on two neighbours. As the control, the same test gets
releases with four times the epsilon. If it does not refuse them, its row proves nothing.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import beam_dp as dp
from beam_dp.domain.files import read_domain
from beam_dp.mechanisms.intervals import plan_intervals, release_intervals
from beam_dp.mechanisms.registry import ReleaseOptions, draw_database, plan_release
from beam_dp.mechanisms.sketches.plan import SparseSummary, release_sparse
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.secret.encoding.batch import KeyBatch
from beam_dp.secret.summaries.histogram import Histogram
from beam_dp.secret.summaries.projection import ProjectionAccumulator
from beam_dp.secret.summaries.sparse_counts import ElementCounts
from benchmarks.judges.environment import Environment
from benchmarks.recorded import Figure, Row

Counts = NDArray[np.int64]
Draw = Callable[[], Sequence[float]]
# Plans for a promise, and returns what draws one output from counts.
Mechanism = Callable[[Guarantee], Callable[[Counts], Draw]]

NEEDS = "DP_AUDITORIUM"
_DOMAIN = read_domain('{"a": 2, "b": 2}')
_COUNTS = np.array([7, 5, 6, 4])
# A record is added to the first cell or, where the number of records is public, moved there.
_CHANGES = {"add_or_remove_one": [1, 0, 0, 0], "replace_one": [1, 0, 0, -1]}
_QUERIES = parse_linear_workload("conjunctions:1", _DOMAIN)
_EPSILON, _CONTROL = 1.0, 4.0
_LARGE_DELTA = 0.1  # with a small one no number of runs tells four times the epsilon from one
_FAILURE = 1e-4  # of each of sixty bounds
_RUNS, _QUICK_RUNS = 10_000, 4_000


@dataclasses.dataclass(frozen=True)
class Subject:
    """A mechanism whose outputs are tested.

    Args:
        mechanism: one plan is made for both neighbours.
        delta: of the promise.
        neighboring: the relation, which also says whether the number of records is public.
        share: of the runs, where a run takes long.
        is_quick: whether it is in the part that `--quick` runs.
    """

    mechanism: Mechanism
    delta: float = 0.0
    neighboring: str = "add_or_remove_one"
    share: float = 1.0
    is_quick: bool = False

    def outputs(self, epsilon: float, runs: int) -> list[NDArray[np.float32]]:
        """Returns the outputs of runs on either neighbour, one row each."""
        relation = dp.Neighboring(self.neighboring)
        promise = Guarantee(epsilon, self.delta, relation, "record", 1, allow_large_delta=True)
        drawn_from, found = self.mechanism(promise), []
        for counts in (_COUNTS, _COUNTS + _CHANGES[self.neighboring]):
            draw = drawn_from(counts)
            found.append(np.array([draw() for _ in range(int(self.share * runs))], np.float32))
        return found


def rows(environment: Environment, quick: bool) -> list[Row]:
    """Returns a row for each mechanism."""
    if not pathlib.Path(os.environ.get(NEEDS, ""), "dp_auditorium", "testers").is_dir():
        why = f"not run: {NEEDS} must name a folder python/dp_auditorium"
        return [Row(why, {"promises broken": Figure(0, "number")}, 0)]
    subjects = {name: each for name, each in SUBJECTS.items() if each.is_quick or not quick}
    runs = _QUICK_RUNS if quick else _RUNS
    asked = [(name, epsilon, runs) for name in subjects for epsilon in (_EPSILON, _CONTROL)]
    with tempfile.TemporaryDirectory() as name:
        folder, told = pathlib.Path(name), []
        with concurrent.futures.ProcessPoolExecutor() as pool:
            for place, sides in enumerate(pool.map(_sides, *zip(*asked, strict=True))):
                for side, outputs in zip(("one", "other"), sides, strict=True):
                    np.save(folder / f"{side}_{place}.npy", outputs)
                delta = subjects[asked[place][0]].delta
                told.append({"epsilon": _EPSILON, "delta": delta, "failure": _FAILURE})
        (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
        found = environment.ask(folder)
    return [
        _row(name, each, *found[2 * place : 2 * place + 2], int(each.share * runs))
        for place, (name, each) in enumerate(subjects.items())
    ]


def _sides(name: str, epsilon: float, runs: int) -> list[NDArray[np.float32]]:
    """Returns outputs on either neighbour."""
    return SUBJECTS[name].outputs(epsilon, runs)


def _row(name: str, subject: Subject, found: float, control: float, runs: int) -> Row:
    """Returns the row of a mechanism, from the bounds on delta at the promised epsilon."""
    figures = {
        "promises broken": Figure(found > subject.delta, "number"),
        "promised delta": Figure(subject.delta, "share"),
        "delta, from below": Figure(found, "share"),
        "control": Figure(control, "share"),
        "control is refused": Figure(control > subject.delta, "parts of all"),
    }
    return Row(name, figures, runs, wanted="0")


# Mechanisms, and what is released of a run; first what the record moves most.


def _database(mechanism: Any, ways: int = 1) -> Mechanism:
    def planned(promise: Guarantee) -> Callable[[Counts], Draw]:
        is_public = promise.neighboring is dp.Neighboring.REPLACE_ONE
        options = ReleaseOptions(num_records=int(_COUNTS.sum()) if is_public else "noisy")
        plan = plan_release(mechanism, _DOMAIN, dp.marginals(_DOMAIN, ways=ways), promise, options)

        def drawn_from(counts: Counts) -> Draw:
            held = Histogram(_DOMAIN, counts).marginals(plan.summary_tables)
            return lambda: _cells(draw_database(plan, held, NoiseSource()))

        return drawn_from

    return planned


def _cells(made: Any) -> Sequence[float]:
    """Returns the number of released records in each cell."""
    cells = np.ravel_multi_index(tuple(made.codes), _DOMAIN.shape)
    return np.bincount(cells, made.counts, _DOMAIN.num_cells)  # type: ignore[return-value]


def _intervals(promise: Guarantee) -> Callable[[Counts], Draw]:
    plan = plan_intervals(_DOMAIN.num_cells, promise)
    return lambda counts: lambda: release_intervals(plan, counts, NoiseSource()).histogram()


def _answers(promise: Guarantee) -> Callable[[Counts], Draw]:
    plan = dp.plan_workload_answers(_QUERIES, promise, "noisy")
    return lambda counts: lambda: dp.draw_workload_answers(plan, counts, NoiseSource()).values


def _top(promise: Guarantee) -> Callable[[Counts], Draw]:
    plan = dp.plan_top_queries(_QUERIES, promise, "noisy", 2)

    def draw(counts: Counts) -> Sequence[float]:
        drawn, told = dp.draw_top_queries(plan, counts, NoiseSource()), np.zeros(2 * len(_QUERIES))
        told[np.asarray(drawn.places)] = drawn.values
        told[len(_QUERIES) + np.asarray(drawn.places)] = 1
        return told

    return lambda counts: lambda: draw(counts)


def _online(promise: Guarantee) -> Callable[[Counts], Draw]:
    plan = dp.plan_private_mw(_DOMAIN, promise, "noisy", num_questions=4, max_updates=1)
    queries = LinearQueries(_DOMAIN)
    asked = [queries.conjunction({"a": a, "b": b}) for a in (0, 1) for b in (0, 1)]
    # With so many more records the first question is at the threshold.
    more = np.array([round(200 / promise.epsilon), 0, 0, 0])

    def draw(counts: Counts) -> Sequence[float]:
        run = dp.PrivateMW(plan, Histogram(_DOMAIN, counts + more), NoiseSource())
        return [run.answer(query).value for query in asked]

    return lambda counts: lambda: draw(counts)


def _sketch(mechanism: Any) -> Mechanism:
    elements = np.arange(_DOMAIN.num_cells, dtype=np.uint64)

    def planned(promise: Guarantee) -> Callable[[Counts], Draw]:
        plan = mechanism.plan(promise, max_sparsity=2)

        def drawn_from(counts: Counts) -> Draw:
            keys = np.repeat(elements, counts)
            batch, sums, found = KeyBatch(keys, np.ones(len(keys), np.int64)), None, None
            if plan.sketch is not None:
                accumulator = ProjectionAccumulator(plan.sketch.signs(plan.hash_key))
                state = accumulator.add_batch(accumulator.create(), batch)
                sums = accumulator.from_shards(accumulator.to_shards(state))
            if plan.histogram is not None:
                found = ElementCounts.of([batch])
            held = SparseSummary(sums, found)
            return lambda: release_sparse(plan, held, NoiseSource()).estimates(elements)

        return drawn_from

    return planned


SUBJECTS = {
    "Laplace tables": Subject(_database(dp.Laplace()), share=0.4),
    "Laplace tables (textbook)": Subject(_database(dp.Laplace("textbook"), 2), share=0.2),
    "Gaussian residuals": Subject(_database(dp.Gaussian()), _LARGE_DELTA, share=0.4),
    "rounds of MWEM": Subject(_database(dp.MWEM(num_rounds=2)), share=0.4),
    "MWEM as published": Subject(
        _database(dp.MWEM(num_rounds=2, calibration="textbook")), 0.0, "replace_one"
    ),
    "small databases": Subject(
        _database(dp.SmallDB(size=4)), neighboring="replace_one", is_quick=True
    ),
    "intervals": Subject(_intervals, is_quick=True),
    "answers, Laplace": Subject(_answers, is_quick=True),
    "answers, Gaussian": Subject(_answers, _LARGE_DELTA, is_quick=True),
    "largest queries": Subject(_top),
    "private multiplicative weights": Subject(_online),
    "sparse projection": Subject(_sketch(dp.SparseProject(8)), _LARGE_DELTA),
    "count sketch, Laplace": Subject(_sketch(dp.CountSketch(33))),
    "stability histogram": Subject(_sketch(dp.StabilityHistogram()), _LARGE_DELTA),
    "hybrid sketch": Subject(_sketch(dp.HybridSketch(33, 3)), _LARGE_DELTA),
}
