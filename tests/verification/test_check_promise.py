"""Plans whose noise breaks their promise are rejected before anything is paid or drawn."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from documents.blocks import blocks_of
from horizons import WORKLOAD, leveled
from verification.kinds_of_releases import COUNTS, DOMAIN, guarantee, number_of
from window_plans import horizon_of, person, plan_of

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import Plan, check_promise
from beam_dp.mechanisms.intervals.plan import plan_intervals
from beam_dp.mechanisms.marginals.measure_all import measure_all_plan
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.mechanisms.marginals.selection import plan_selection
from beam_dp.mechanisms.online.plan import OnlinePlan
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss, composed
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.summaries.histogram import Histogram

RELATIONS = ("add_or_remove_one", "replace_one")
PAIRS = dp.marginals(DOMAIN, ways=2)


def plans(promise: Guarantee) -> list[Plan]:
    """A plan of every family and mechanism for a promise with a delta."""
    number = number_of(promise)
    answers = parse_linear_workload("conjunctions:2", DOMAIN)
    synthetic: list[Mechanism] = [
        *(dp.MWEM(), dp.MWEM(num_rounds=3), dp.MWEM(num_rounds="annealed")),
        *(dp.Laplace(), dp.Gaussian(), dp.Gaussian(calibration="textbook"), dp.SmallDB(size=2)),
    ]
    sketches = [
        *(dp.SparseProject(64), dp.SparseProject(64, calibration="textbook")),
        *(dp.CountSketch(33), dp.CountSketch(33, noise="gaussian", unit_norm=3.0)),
        *(dp.StabilityHistogram(), dp.HybridSketch(33, 3)),
    ]
    found: list[Plan] = [
        *(
            plan_release(each, DOMAIN, PAIRS, promise, ReleaseOptions(num_records=number))
            for each in synthetic
        ),
        *(
            plan_release(
                dp.MWEM(num_rounds=2, calibration="textbook", stop_below=stop),
                *(DOMAIN, PAIRS, promise, ReleaseOptions(num_records=100)),
            )
            for stop in (None, 0.1)
        ),
        plan_selection(PAIRS, promise, number),
        *(plan_intervals(17, promise, each) for each in ("windows", "sine", "tree", "histogram")),
        *(each.plan(promise, max_sparsity=4) for each in sketches),
        dp.plan_workload_answers(answers, promise, number),
        dp.plan_workload_answers(answers, promise, number, "discrete_gaussian"),
        dp.plan_private_mw(DOMAIN, promise, number, num_questions=9),
        dp.plan_private_mw(DOMAIN, promise, number, num_questions=9, calibration="textbook"),
        dp.plan_sparse_mw(promise, number, max_sparsity=4, num_questions=9),
    ]
    if promise.neighboring == "add_or_remove_one":
        found += [
            leveled(delta=promise.delta),
            plan_of(10, person(2, 5, 3), WORKLOAD, delta=promise.delta),
            *(
                dp.plan_window_databases(
                    each, WORKLOAD, horizon_of(6), person(2, 3, 2), 1.0, promise.delta
                )
                for each in (dp.MWEM(), dp.Laplace(), dp.MWEM(num_rounds=2))
            ),
        ]
    return found


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.1, pytest.param(3.0, marks=pytest.mark.part)])
def test_loss_of_every_plan_is_as_stated_and_at_most_the_promise(relation, epsilon):
    for plan in plans(guarantee(1e-9, relation, 2, epsilon)):
        check_promise(plan, plan.guarantee)
        plan.paid_by(None)


@pytest.mark.parametrize("relation", RELATIONS)
def test_every_plan_for_a_larger_promise_is_rejected(relation):
    for plan in plans(guarantee(1e-9, relation)):
        if isinstance(plan, OnlinePlan):
            continue  # its noise follows from its guarantee when it is asked for
        less = dataclasses.replace(plan.guarantee, epsilon=0.2 * plan.guarantee.epsilon)
        with pytest.raises(InputError, match="must keep epsilon"):
            check_promise(dataclasses.replace(plan, guarantee=less), less)


@pytest.mark.parametrize("relation", RELATIONS)
def test_selection_is_charged_for_what_it_may_still_measure(relation):
    plan = plan_selection(PAIRS, guarantee(1e-9, relation), number_of(guarantee(1e-9, relation)))
    less = dataclasses.replace(plan.guarantee, epsilon=0.99 * plan.guarantee.epsilon)
    with pytest.raises(InputError, match="must keep epsilon"):
        check_promise(dataclasses.replace(plan, guarantee=less), less)
    # In every measure of the loss: nothing is measured yet, but all of it is to be spent.
    found = composed(step.loss for step in plan.steps)
    assert found.epsilon is None
    assert found.rho is not None and found.mu_squared is not None
    assert float(found.rho) == pytest.approx(float(found.mu_squared) / 2)


@pytest.mark.parametrize("relation", RELATIONS)
def test_every_plan_with_too_small_a_loss_is_rejected(relation):
    for plan in plans(guarantee(1e-9, relation)):
        halves = {
            name: getattr(plan.loss, name) and getattr(plan.loss, name) / 20
            for name in ("rho", "mu_squared", "epsilon", "slack")
        }
        with pytest.raises(InputError, match="must be at least the loss of the plan of"):
            dataclasses.replace(plan, loss=Loss(**halves)).paid_by(None)


class Careless(Mechanism):
    """Halves the noise of another mechanism, but makes the same promise."""

    name = "careless"

    def __init__(self, of: Mechanism, **changed: Any) -> None:
        self.of, self.changed = of, changed

    def plan(self, *arguments: Any) -> MarginalsPlan:
        plan = self.of.plan(*arguments)
        halved = [dataclasses.replace(each, scale=each.scale / 2) for each in plan.measurements]
        changed = self.changed or {"measurements": tuple(halved)}
        return dataclasses.replace(plan, **changed)


@pytest.mark.parametrize(
    ("careless", "line"),
    [
        *(
            (Careless(each), r"mechanism: .* is not valid: must keep epsilon 1 at")
            for each in (dp.MWEM(), dp.Laplace(), dp.Gaussian())
        ),
        (Careless(dp.MWEM(), guarantee=guarantee(epsilon=2.0)), "must be the requested guarantee"),
        (
            Careless(dp.Laplace(), loss=Loss.pure(0.5)),
            "must be at least the loss of the plan of lap",
        ),
    ],
    ids=["half of mwem", "half of laplace", "half of gaussian", "another guarantee", "less loss"],
)
def test_rejects_mechanism_with_less_noise_or_other_claims_than_promised(careless, line):
    with pytest.raises(InputError, match=line):
        plan_release(careless, DOMAIN, PAIRS, guarantee())


@pytest.mark.parametrize(
    ("kinds", "delta", "line"),
    [
        (
            ("table discrete_gaussian",),
            0.0,
            "delta: 0.0 is not valid: must be > 0 for discrete Gau",
        ),
        (("table discrete_laplace", "residual discrete_gaussian"), 1e-9, "measurements: .* all be"),
        (("table discrete_laplace",), 0.0, r"keeps only epsilon 1\.5 \(measure 1 table: 3 / 2 = "),
    ],
)
def test_rejects_measurements_that_cannot_keep_the_promise(kinds, delta, line):
    measured = tuple(Measurement(("a", "b"), *each.split(), 2.0) for each in kinds)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=line):
        plan = measure_all_plan(
            "own", PAIRS, guarantee(delta, records=3), "noisy", measured, "tight"
        )
        check_promise(plan, plan.guarantee)


@pytest.mark.job  # it imports Beam
def test_plan_that_breaks_its_promise_is_rejected_when_the_pipeline_is_built():
    from beam_dp.transforms.drawing.release import ReleasePlanned

    careless = Careless(dp.Laplace())
    plan = careless.plan(DOMAIN, PAIRS, guarantee(), "noisy")
    with pytest.raises(InputError, match=r"must keep epsilon 1 at"):
        ReleasePlanned(careless, plan)


def test_documented_mechanism_runs_and_its_careless_copy_is_rejected():
    """Both blocks of docs/mechanisms.md; the third is its audit, which follows the page."""
    names: dict[str, Any] = {"__name__": "example"}
    for block in [each for each in blocks_of("docs/mechanisms.md") if each.kind == "python"][:2]:
        exec(compile(block.text, block.page, "exec", dont_inherit=True), names)
    assert "must keep epsilon 1 at" in str(names["refusal"])
    mechanism, plan = names["Favourite"](("b",)), names["plan"]
    assert sum(each.scale for each in plan.measurements) > 0
    own = plan_release(mechanism, DOMAIN, PAIRS, guarantee())
    marginals = Histogram(DOMAIN, COUNTS).marginals(own.summary_tables)
    release = own.release(marginals, NoiseSource())
    assert release.mechanism == "favourite" and np.sum(release.counts) == release.num_records
