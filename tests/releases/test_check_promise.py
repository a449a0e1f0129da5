"""Plans whose noise breaks their promise are rejected before anything is paid or drawn."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from documents.blocks import blocks_of
from kinds_of_releases import COUNTS, DOMAIN, guarantee, number_of

import beam_dp as dp
from beam_dp.domain import discover
from beam_dp.flags import shared
from beam_dp.mechanisms.contract import check_promise
from beam_dp.mechanisms.marginals import plan as plans, synthesis
from beam_dp.mechanisms.marginals.measure_all import measure_all_plan
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.mechanisms.marginals.selection import plan_selection
from beam_dp.mechanisms.online import plan as online, private_mw
from beam_dp.mechanisms.registry import plan_release
from beam_dp.mechanisms.small_db import choice
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases import verdict
from beam_dp.secret.summaries.histogram import Histogram

RELATIONS = ("add_or_remove_one", "replace_one")
PAIRS = dp.marginals(DOMAIN, ways=2)


@pytest.mark.parametrize("relation", RELATIONS)
def test_selection_is_charged_for_what_it_may_still_measure(relation):
    plan = plan_selection(PAIRS, guarantee(1e-9, relation), number_of(guarantee(1e-9, relation)))
    less = dataclasses.replace(plan.guarantee, epsilon=0.99 * plan.guarantee.epsilon)
    with pytest.raises(dp.InputError, match="must keep epsilon"):
        check_promise(dataclasses.replace(plan, guarantee=less), less)
    # In every measure of the loss: nothing is measured yet, but all of it is to be spent.
    found = composed(step.loss for step in plan.steps)
    assert found.epsilon is None
    assert found.rho is not None and found.mu_squared is not None
    assert float(found.rho) == pytest.approx(float(found.mu_squared) / 2)


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
    with pytest.raises(dp.InputError, match=line):
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
    with pytest.raises(dp.InputError, match=line):
        plan = measure_all_plan(
            "own", PAIRS, guarantee(delta, records=3), "noisy", measured, "tight"
        )
        check_promise(plan, plan.guarantee)


def test_verification_repeats_the_numbers_of_the_mechanisms():
    copies = {
        verdict.MAX_RECORDS: shared.MAX_RECORDS,
        verdict.MAX_ARRAY_CELLS: plans.MAX_CELLS,
        verdict.MAX_TREE_RECORDS: plans.MAX_CANDIDATES,
        verdict.ROUNDING_SHARE: synthesis._ROUNDING_SHARE,
        verdict.COUNT_FAILURE: online._COUNT_FAILURE,
        verdict.START_SHARE: private_mw.START_SHARE,
    }
    assert list(copies) == list(copies.values())
    assert plans.MAX_CANDIDATES <= verdict.MAX_CANDIDATES
    assert choice.MAX_SIZE <= verdict.MAX_SIZE
    assert discover.MAX_LEAVES <= verdict.MAX_LEAVES


@pytest.mark.job  # it imports Beam
def test_plan_that_breaks_its_promise_is_rejected_when_the_pipeline_is_built():
    from beam_dp.transforms.drawing.release import ReleasePlanned

    careless = Careless(dp.Laplace())
    plan = careless.plan(DOMAIN, PAIRS, guarantee(), "noisy")
    with pytest.raises(dp.InputError, match=r"must keep epsilon 1 at"):
        ReleasePlanned(plan)


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
