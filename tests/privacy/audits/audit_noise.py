"""The noise source itself: its samplers against closed forms, and as mechanisms of their own."""

from collections.abc import Callable

import numpy as np
from auditing import (
    Audit,
    Finding,
    around,
    audited,
    double_scales,
    draw_once_for_all,
    follows,
    halve_scales,
    share_one_draw,
    skip_empty_cells,
    told_apart,
)
from tiny import ADD, REPLACE, promise

from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.testing import audit

DRAWS = 50_000
# Noise of 0.95 of the scale passes with a chance below 1e-12.
SAMPLER_DRAWS = 150_000
EPSILON = 1.5
DELTA = 1e-6
REACH = 12


def audits() -> list[Audit]:
    found = []
    for relation in (ADD, REPLACE):
        found.append(counting("laplace", promise(relation, 0.0, EPSILON)))
        found.append(counting("gaussian", promise(relation, DELTA, 12.0)))
    return found


def scale_of(kind: str, guarantee: Guarantee) -> float:
    """Of one count: sensitivity 1 under both relations."""
    if kind == "laplace":
        return 1 / guarantee.epsilon
    return (2 * zcdp_rho(guarantee.epsilon, guarantee.delta)) ** -0.5


def counting(kind: str, guarantee: Guarantee) -> Audit:
    """One count of the records that have a property, of a universe of two."""
    scale = scale_of(kind, guarantee)
    reach = REACH if kind == "laplace" else 40
    of = audit.discrete_laplace if kind == "laplace" else audit.discrete_gaussian

    def law(data: tuple[int, ...]) -> audit.Law:
        return of(scale, sum(data), -reach, reach)

    def draw(count: int) -> Callable[[int], list[int]]:
        def sample(runs: int) -> list[int]:
            noisy = getattr(NoiseSource(), kind)(np.full(runs, count, np.int64), scale)
            return np.clip(noisy, -reach, reach).tolist()

        return sample

    def exact() -> Finding:
        return Finding(audit.audit_law(law, (0, 1), guarantee).is_private)

    def sampler() -> Finding:
        limit = REACH if kind == "laplace" else 6
        first, second = (np.clip(draw(0)(SAMPLER_DRAWS // 2), -limit, limit) for _ in range(2))
        if np.array_equal(first, second):
            return Finding(False)
        return follows([*first.tolist(), *second.tolist()], of(scale, 0, -limit, limit))

    def black_box() -> Finding:
        laws = law((1,)), law(())
        return told_apart((draw(1), draw(0)), guarantee, runs=DRAWS, score=float, laws=laws)

    shrink_scale = around(
        NoiseSource, kind, lambda draw, self, values, scale: draw(self, values, 0.95 * scale)
    )
    bugs = {
        "sampler": {
            "noise scale halved: chi-square": halve_scales,
            "noise scale a twentieth too small": shrink_scale,
            "one draw for all runs": draw_once_for_all,
            "one draw for all cells": share_one_draw,
            "empty cells without noise": skip_empty_cells,
        },
        "black box": {"noise scale halved: black box": halve_scales},
    }
    checks = {"law": exact, "sampler": sampler, "black box": black_box}
    blinding = {"noise doubled": double_scales}
    return audited(f"noise: {kind}", guarantee, checks, bugs, blinding=blinding)
