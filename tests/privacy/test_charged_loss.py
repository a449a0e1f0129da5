"""What a ledger is charged for a release covers every step on all of its cards, composed."""

import dataclasses
import itertools
from collections.abc import Iterable
from fractions import Fraction

import pytest
from open_domains import CITY_TYPE, INCOME, INCOME_TYPE, SEX, open_domain, plans_of
from tiny import ADD, REPLACE

from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.discovery.records_per_unit import plan_records
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.steps import Step, laplace_step, total
from beam_dp.queries.workload import marginals
from beam_dp.releases.domain.verify import domain_steps

MOST = 8
MECHANISMS = {
    "laplace": Laplace(),
    "gaussian": Gaussian(),
    "mwem": MWEM(),
    "rounds": MWEM(num_rounds=2),
    "textbook": MWEM(num_rounds=2, calibration="textbook"),
}
# What is drawn beside the release itself.
BESIDE = {
    "the release alone": (),
    "left-out counts": ("left out",),
    "records per unit": ("chosen",),
    "discovered domain": ("discovered",),
    "discovered domain and left-out counts": ("discovered", "left out"),
    "discovered domain and records per unit": ("discovered", "chosen"),
    "types": ("discovered", "types"),
    "types and records per unit": ("discovered", "types", "chosen"),
}


def planned(mechanism: MWEM | Laplace, guarantee: Guarantee, beside: Iterable[str]) -> Plan:
    options = ReleaseOptions(num_records=1000, count_left_out="left out" in beside)
    domain = open_domain() if guarantee.delta else open_domain(SEX, INCOME)
    if "types" in beside and guarantee.delta:
        domain = open_domain(CITY_TYPE, SEX, INCOME, INCOME_TYPE | {"name": "age"})
    bounded = domain.bounded()
    if "chosen" in beside:
        chosen = plan_records(bounded, guarantee, 9.0).chosen(3)
        options = dataclasses.replace(options, records_per_unit=chosen)
    workload = marginals(bounded, ways=1)
    if "discovered" not in beside:
        return plan_release(mechanism, bounded, workload, guarantee, options)
    _, plan = plans_of(mechanism, domain, workload, guarantee, options)
    return plan


def steps_on_the_cards(plan: Plan) -> list[Step]:
    steps = list(plan.steps)
    if plan.left_out is not None:
        steps.append(laplace_step("left out", plan.left_out.sensitivity, plan.left_out.scale))
    for earlier in (plan.discovered, plan.records_per_unit):
        if earlier is not None:
            steps += domain_steps(earlier.all_noise, earlier.whole)
    return steps


def is_covered(loss: Loss, steps: list[Step], promised: Guarantee) -> bool:
    """Whether a loss covers steps: added up, or as an epsilon except with a probability."""
    if loss.covers(composed(step.loss for step in steps)):
        return True
    if loss.epsilon is None or not loss.slack:
        return False
    pure = [step for step in steps if step.loss.epsilon is not None]
    others = [step for step in steps if step.loss.epsilon is None]
    _, epsilon = total(others, dataclasses.replace(promised, delta=float(loss.slack)), pure)
    return epsilon <= loss.epsilon * (1 + Fraction(1, 10**12))  # a sum of doubles


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_ledger_is_charged_for_every_step_on_the_cards(mechanism, beside):
    for relation, delta in itertools.product((ADD, REPLACE), (0.0, 1e-9)):
        if mechanism == "gaussian" and not delta:
            continue
        guarantee = Guarantee(1.0, delta, relation, "person", MOST)  # type: ignore[arg-type]
        plan = planned(MECHANISMS[mechanism], guarantee, BESIDE[beside])
        assert plan.promised == guarantee
        assert is_covered(plan.loss, steps_on_the_cards(plan), guarantee), (relation, delta)
