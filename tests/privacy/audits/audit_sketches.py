"""Audits of the sketches and the stability histogram, and the mutants that they must catch.

"price": what neighbours spend, over everything that one unit can hold, where all elements collide.
"law": the exact output law. "black box": whole releases with the production noise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from audit_cases import Audit, Mutant, double_scales, halve_scales
from audit_views import Finding, from_black_box
from numpy.typing import NDArray
from sketch_laws import (
    LARGE_DELTA,
    batch_of,
    colliding_key,
    histogram_law,
    largest_share,
    promise,
    sketch_law,
    summary_of,
)
from tiny import ADD, REPLACE

from beam_dp.mechanisms.sketches import mechanisms as mechanisms_module, plan as plan_module
from beam_dp.mechanisms.sketches.mechanisms import (
    CountSketch,
    HybridSketch,
    SparseProject,
    StabilityHistogram,
)
from beam_dp.mechanisms.sketches.plan import (
    SparseMechanism,
    SparsePlan,
    SparseSummary,
    release_sparse,
)
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.summaries.projection import Projection
from beam_dp.testing.audit import Law, audit_black_box, audit_law, discrete_laplace, product_law

Patch = pytest.MonkeyPatch

RECORDS = [(element, weight) for element in range(3) for weight in (0, 2)]
WEIGHT = 2
ROWS = 3
RUNS = 5000
# The bound of a unit's records is often reached by few data; a price below it would show waste.
LEAST_SHARE = 0.99


def plan_for(mechanism: SparseMechanism, guarantee: Guarantee) -> SparsePlan:
    return mechanism.plan(
        guarantee, max_sparsity=4, max_weight=WEIGHT, hash_key=colliding_key(ROWS)
    )


def price(mechanism: SparseMechanism, guarantee: Guarantee, least: float = LEAST_SHARE) -> Finding:
    """What is spent; where there is a histogram every element has records of other units."""
    plan = plan_for(mechanism, guarantee)
    others = [(element, WEIGHT) for element in range(3)] if plan.histogram is not None else []
    share = largest_share(plan, guarantee, RECORDS, others)
    return Finding(least <= share <= 1 + 1e-9)


def law_of_sketch(mechanism: SparseMechanism, guarantee: Guarantee) -> Finding:
    plan = plan_for(mechanism, guarantee)
    records = [each for each in RECORDS if each[1]][:2]
    return Finding(
        audit_law(lambda data: sketch_law(plan, data), records, guarantee, num_others=1).is_private
    )


def law_of_histogram(mechanism: SparseMechanism, guarantee: Guarantee) -> Finding:
    plan = plan_for(mechanism, guarantee)
    records = [(0, WEIGHT), (1, WEIGHT), (1, 1)]
    found = audit_law(lambda data: histogram_law(plan, data, 2), records, guarantee, num_others=1)
    # Not a threshold more than is needed.
    return Finding(found.is_private and found.delta > guarantee.delta * math.exp(-1))


def black_box(mechanism: SparseMechanism, guarantee: Guarantee) -> Finding:
    """Laplace rows, where a unit's records have equal signs, or opposite ones after replacement."""
    plan = plan_for(mechanism, guarantee)
    most = guarantee.max_records_per_unit * WEIGHT
    least = 0 if guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE else -most
    signs = sums_of(plan, 1, 1)

    def run(value: int, runs: int) -> list[int]:
        # The unit holds nothing, or one of two elements with opposite signs.
        exact = SparseSummary(Projection(sums_of(plan, 0 if value >= 0 else 1, abs(value))))
        noise = NoiseSource()
        cells = (release_sparse(plan, exact, noise).sketch.cells for _ in range(runs))
        # Nothing else of the cells tells more about which of the neighbours it was.
        return [int(np.clip(-signs * each, least, most).sum()) for each in cells]

    def law(value: int) -> Law:
        row = discrete_laplace(plan.sketch.scale, value, least, most)
        found: dict[int, float] = {}
        for rows, probability in product_law([row] * ROWS).items():
            found[sum(rows)] = found.get(sum(rows), 0.0) + probability
        return found

    return from_black_box(
        audit_black_box(
            functools.partial(run, most),
            functools.partial(run, least),
            guarantee.epsilon,
            runs=RUNS,
            score=float,
            laws=(law(most), law(least)),
        )
    )


def sums_of(plan: SparsePlan, element: int, weight: int) -> NDArray[np.int64]:
    return summary_of(plan, batch_of([(element, weight)])).projection.sums


def pretend(module: Any, name: str, value: Callable[..., Any]) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(module, name, value)


def forget_collisions(module: Any) -> Callable[[Patch], None]:
    """A unit's k elements are taken to be in cells of their own: sqrt(k) for k."""

    def unit_weight(guarantee: Guarantee, max_weight: int) -> float:
        moved = 1 if guarantee.neighboring == ADD else 2
        return moved * math.sqrt(guarantee.max_records_per_unit) * max_weight

    return pretend(module, "unit_weight", unit_weight)


def replace_as_add(module: Any) -> Callable[[Patch], None]:
    return pretend(
        module,
        "unit_weight",
        lambda guarantee, max_weight: guarantee.max_records_per_unit * max_weight,
    )


def weight_forgotten(module: Any) -> Callable[[Patch], None]:
    original = plan_module.unit_weight
    return pretend(module, "unit_weight", lambda guarantee, max_weight: original(guarantee, 1))


def rows_forgotten(patch: Patch) -> None:
    def scale(guarantee: Guarantee, wanted: float) -> float:
        return wanted / ROWS

    patch.setattr(mechanisms_module, "checked_scale", scale)


def lower_threshold(patch: Patch) -> None:
    original = mechanisms_module.stability_threshold
    patch.setattr(mechanisms_module, "stability_threshold", lambda *given: original(*given) - 1)


def one_key_threshold(patch: Patch) -> None:
    original = mechanisms_module.stability_threshold
    patch.setattr(
        mechanisms_module,
        "stability_threshold",
        lambda scale, delta, most, weight: original(scale, delta, 1, weight),
    )


def whole_epsilon_for_both(patch: Patch) -> None:
    original = mechanisms_module.CountSketch._noise

    def noise(self, guarantee, max_weight):
        whole = dataclasses.replace(
            guarantee, epsilon=guarantee.epsilon / 0.7, allow_large_delta=True
        )
        return original(self, whole, max_weight)

    patch.setattr(mechanisms_module.CountSketch, "_noise", noise)


def released_from_threshold_down(patch: Patch) -> None:
    """The boundary: what is one below the threshold is released as well."""
    original = mechanisms_module.HistogramNoise

    def noise(scale: float, threshold: int) -> Any:
        return original(scale, threshold - 1)

    patch.setattr(mechanisms_module, "HistogramNoise", noise)


PURE, DELTA = 0.0, 1e-6
LAPLACE = CountSketch(projection_width=ROWS, num_rows=ROWS)
GAUSSIAN = CountSketch(projection_width=ROWS, num_rows=ROWS, noise="gaussian")
TIGHT = SparseProject(ROWS, num_blocks=ROWS)
TEXTBOOK = SparseProject(64, "dense", calibration="textbook")
DENSE = SparseProject(64, "dense")
HISTOGRAM = StabilityHistogram()
HYBRID = HybridSketch(projection_width=ROWS, num_rows=ROWS)


def mutants_of(mechanism: SparseMechanism, replaces: bool) -> dict[str, Mutant]:
    found: dict[str, Mutant] = {}
    if isinstance(mechanism, CountSketch | SparseProject) and mechanism is not TEXTBOOK:
        found["collisions of a unit's elements forgotten"] = Mutant(
            forget_collisions(mechanisms_module), "price"
        )
        found["largest weight forgotten"] = Mutant(weight_forgotten(mechanisms_module), "price")
        if replaces:
            found["replaced as if added"] = Mutant(replace_as_add(mechanisms_module), "price")
    if mechanism is TEXTBOOK:
        found["noise that forgets the rows"] = Mutant(textbook_rows_forgotten, "price")
    if mechanism is LAPLACE:
        found["one row's sensitivity"] = Mutant(rows_forgotten, "price")
        found["noise scale halved in the sampler"] = Mutant(halve_scales, "black box")
        found["noise doubled in the sampler"] = Mutant(double_scales, "black box", blinds=True)
    if mechanism is HISTOGRAM:
        found["threshold one too low"] = Mutant(lower_threshold, "law")
        found["threshold of one element for k"] = Mutant(one_key_threshold, "law")
        found["one below the threshold released"] = Mutant(released_from_threshold_down, "law")
        found["largest weight forgotten"] = Mutant(weight_forgotten(mechanisms_module), "price")
        if replaces:
            found["replaced as if added"] = Mutant(replace_as_add(mechanisms_module), "price")
    if mechanism is HYBRID:
        found["all of epsilon for the sketch as well"] = Mutant(whole_epsilon_for_both, "price")
    return found


def textbook_rows_forgotten(patch: Patch) -> None:
    patch.setattr(mechanisms_module, "checked_scale", lambda guarantee, scale: scale / 8)


CASES: dict[str, tuple[SparseMechanism, float, tuple[str, ...]]] = {
    "count sketch, laplace": (LAPLACE, PURE, ("price", "law", "black box")),
    "count sketch, gaussian": (GAUSSIAN, DELTA, ("price",)),
    "sparse project": (TIGHT, DELTA, ("price",)),
    "sparse project, dense": (DENSE, DELTA, ("price",)),
    "sparse project textbook": (TEXTBOOK, DELTA, ("price",)),
    "stability histogram": (HISTOGRAM, LARGE_DELTA, ("price", "law")),
    "hybrid sketch": (HYBRID, LARGE_DELTA, ("price",)),
}


def check_of(check: str, mechanism: SparseMechanism, guarantee: Guarantee) -> Callable[[], Finding]:
    if check == "law":
        law = law_of_histogram if mechanism is HISTOGRAM else law_of_sketch
        return lambda: law(mechanism, guarantee)
    if check == "black box":
        return lambda: black_box(mechanism, guarantee)
    # The published scale is several times what its own composition needs; and no two dense
    # columns of 64 rows are opposite.
    least = {TEXTBOOK: 0.08, DENSE: 0.6}.get(mechanism, LEAST_SHARE)
    return lambda: price(mechanism, guarantee, least)


def sketch_audits() -> list[Audit]:
    """Every sparse mechanism, with two records of weight two in a unit, under either relation."""
    return [
        Audit(
            name,
            (guarantee := promise(relation, 2, delta, 1.0 if delta else 3.0)),
            {check: check_of(check, mechanism, guarantee) for check in checks},
            mutants_of(mechanism, relation == REPLACE),
        )
        for name, (mechanism, delta, checks) in CASES.items()
        for relation in (ADD, REPLACE)
    ]
