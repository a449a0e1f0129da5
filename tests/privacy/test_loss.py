"""The loss of every plan, computed again from the scales of its noise."""

from __future__ import annotations

import math

import pytest
from tiny import ADD, APPROXIMATE, PURE, REPLACE, domain_of, plan_of, promise, workload_of

from beam_dp.mechanisms.marginals.measure_all import Gaussian, Laplace
from beam_dp.mechanisms.marginals.measurements import residual_norm
from beam_dp.mechanisms.marginals.mwem import MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism

MECHANISMS = [
    MWEM(),
    MWEM(num_rounds=3),
    MWEM(num_rounds="annealed"),
    MWEM(num_rounds=3, calibration="textbook"),
    Gaussian(),
    Gaussian(calibration="textbook"),
    Laplace(),
    Laplace(calibration="textbook"),
]


def claims(plan: MarginalsPlan) -> dict[str, float]:
    """Pure epsilon, mu and rho of a plan's noise, by add-or-remove-one, from scales alone."""
    most, public = plan.guarantee.max_records_per_unit, plan.public
    if plan.measurements:
        if plan.measurements[0].distribution == "discrete_laplace":
            return {"epsilon": sum(most / each.scale for each in plan.measurements)}
        if plan.measurements[0].kind == "table":
            return {"rho": sum(most**2 / (2 * each.scale**2) for each in plan.measurements)}
        squares = 0.0
        for each in plan.measurements:
            sizes = [plan.domain.shape[axis] for axis in plan.domain.axes(each.names)]
            squares += residual_norm(sizes) * (most * each.grid) ** 2 / (each.scale**2 - 4)
        return {"mu": math.sqrt(squares)}
    steps = public.get("num_units", public.get("num_rounds"))
    selection, measurement = public["selection_scale"], public["measurement_scale"]
    # The exponential mechanism: twice the sensitivity over epsilon is its scale.
    if public["distribution"] == "discrete_laplace":
        return {"epsilon": steps * (2 * most / selection + most / measurement)}
    if public["strategy"] == "rounds":
        measured = (most * public["grid"]) ** 2 / (measurement**2 - 4)
        return {"mu": math.sqrt(steps * (math.pi / 8 * (2 * most / selection) ** 2 + measured))}
    return {"rho": steps * ((2 * most / selection) ** 2 / 8 + (most / measurement) ** 2 / 2)}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("delta", [PURE, APPROXIMATE])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_a_plan_spends_what_it_says(
    mechanism: Mechanism, delta: float, most: int, epsilon: float
) -> None:
    if isinstance(mechanism, Gaussian) and delta == PURE:
        pytest.skip("Gaussian noise needs a delta")
    guarantee = promise(ADD, delta, epsilon, most)
    plan = plan_of(mechanism, workload_of(domain_of(2, 3, 4), 2), guarantee, 100)
    for name, value in claims(plan).items():
        stated = getattr(plan.loss, name)
        assert stated is not None
        assert value <= stated * (1 + 1e-12)
        assert value >= stated * (1 - 1e-5)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_loss_follows_the_guarantee_under_either_relation(mechanism: Mechanism) -> None:
    workload = workload_of(domain_of(2, 3, 4), 2)
    losses = {
        plan_of(mechanism, workload, promise(relation, APPROXIMATE), 100).loss
        for relation in (ADD, REPLACE)
    }
    assert len(losses) == 1 or isinstance(mechanism, MWEM)
