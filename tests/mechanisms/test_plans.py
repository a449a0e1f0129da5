"""Noise is drawn from the typed fields of a plan: what its card states is never read back."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from noise_sources import NoNoise
from tiny import ADD, REPLACE, domain_of, on_trees, promise, summary, workload_of

from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.linear_answers.answers import draw_workload_answers, plan_workload_answers
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.sketches.mechanisms import (
    CountSketch,
    HybridSketch,
    SparseProject,
    StabilityHistogram,
)
from beam_dp.mechanisms.sketches.plan import SparseSummary, release_sparse
from beam_dp.mechanisms.small_db.small_db import SmallDB
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.summaries.projection import Projection

TABLES = {
    "laplace": (Laplace(), promise(ADD)),
    "gaussian": (Gaussian(), promise(REPLACE, 1e-9)),
    "textbook": (MWEM(num_rounds=2, calibration="textbook"), promise(REPLACE)),
    "textbook with delta": (MWEM(num_rounds=2, calibration="textbook"), promise(REPLACE, 1e-9)),
    "textbook that stops": (MWEM(2, "textbook", stop_below=0.1), promise(REPLACE)),
    "rounds": (MWEM(num_rounds=2), promise(REPLACE)),
    "annealed": (MWEM(num_rounds="annealed"), promise(REPLACE, 1e-9)),
    "pairs": (MWEM(), promise(REPLACE, 1e-9)),
    "small_db": (SmallDB(size=2), promise(REPLACE)),
}
SKETCHES = {
    "project": SparseProject(64),
    "count_sketch": CountSketch(63, 3, noise="gaussian"),
    "histogram": StabilityHistogram(),
    "hybrid": HybridSketch(64),
}


class Recording(NoNoise):
    """Adds nothing, and answers what only integers of a draw need."""

    def below(self, bound: int) -> int:
        self.draws.append(bound)  # type: ignore[arg-type]
        return 0


def tamper(value: Any) -> None:
    """Makes every number a thousandth of what it was, as far as that is possible."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(entries):
        if isinstance(each, dict | list):
            tamper(each)
        elif isinstance(each, int | float) and not isinstance(each, bool):
            value[key] = type(each)(each / 1000)
        elif isinstance(each, str):
            value[key] = "tampered"


def drawn(noise: Recording) -> list[Any]:
    return [
        (each.kind, each.exact.tolist(), each.scale) if hasattr(each, "kind") else each
        for each in noise.draws
    ]


@pytest.mark.parametrize("name", TABLES)
def test_changing_stated_values_does_not_change_plan_noise(name):
    mechanism, guarantee = TABLES[name]
    domain = domain_of(2, 2, 2)
    counts = np.array([5, 1, 2, 0, 3, 0, 0, 9])

    def run(tampered: bool) -> tuple[list[Any], Any]:
        plan = mechanism.plan(domain, workload_of(domain, 2), guarantee, 20)
        if tampered:
            tamper(plan.public)
        noise = Recording()
        mechanism.release(plan, summary(plan, counts), noise)
        return drawn(noise), (plan.public, plan.guarantee, plan.loss)

    if name == "pairs":
        with on_trees(selected_cells=10):
            assert run(True) == run(False)
    else:
        assert run(True) == run(False)


@pytest.mark.parametrize("name", SKETCHES)
def test_changing_stated_values_does_not_change_sketch_noise(name):
    key = HashKey.draw(8)

    def run(tampered: bool) -> tuple[list[Any], Any]:
        plan = SKETCHES[name].plan(promise(ADD, 1e-9), max_sparsity=3, hash_key=key)
        if tampered:
            tamper(plan.public)
        width = 0 if plan.sketch is None else plan.sketch.signs(key).projection_width
        elements = ElementCounts(np.array([1], np.uint64), np.array([100]))
        exact = SparseSummary(Projection(np.arange(width)), elements)
        noise = Recording()
        stated = release_sparse(plan, exact, noise).plan
        return drawn(noise), stated

    assert run(True) == run(False)


def test_changing_stated_values_does_not_change_workload_noise():
    def run(tampered: bool) -> tuple[list[Any], Any]:
        workload = parse_linear_workload("prefixes:a0", domain_of(4))
        plan = plan_workload_answers(workload, promise(ADD), 10)
        if tampered:
            tamper(plan.public)
        noise = Recording()
        answers = draw_workload_answers(plan, np.arange(4), noise)
        return drawn(noise), answers.public

    assert run(True) == run(False)


@pytest.mark.parametrize("name", TABLES)
def test_plan_is_unchanged_by_pickling(name):
    mechanism, guarantee = TABLES[name]
    domain = domain_of(2, 2, 2)
    plan = mechanism.plan(domain, workload_of(domain, 2), guarantee, 20)
    assert pickle.loads(pickle.dumps(plan)).public == plan.public
