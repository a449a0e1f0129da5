"""Audits of the sums of places within bins, from values to noisy sums, and their mutants.

The records of a unit are encoded, limited and summed as those of a table in memory. "law" and
"black box" are of few places in a bin, so that the laws of sums have few outcomes.
"""

import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from auditing import Audit, Finding, around, audited, derived, halve_scales, ratio_of, told_apart
from subjects import Subject, beside, exact_law, price
from tiny import ADD, REPLACE, promise

import beam_dp as dp
from beam_dp import in_memory
from beam_dp.mechanisms import bin_sums as sums_module
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.synthetic_database import bin_sums as steps_module
from beam_dp.secret.encoding.levels import Coded, PlaceLevels
from beam_dp.secret.encoding.records import encode_records
from beam_dp.secret.summaries.histogram import MarginalsAccumulator
from beam_dp.testing import audit
from beam_dp.testing.audit import neighbouring_units

DELTA = 1e-6
COLUMN = dp.NumericAttribute("x", (0, 4, 8), clip=True, nullable=True)
DOMAIN = dp.Domain((COLUMN,), placed=(COLUMN,))
VALUES = (-1e9, 0.0, 2.0, 4.0, 1e300, None)  # beyond the ends, at both ends of bins, and null
OTHERS: tuple[tuple[Any, ...], ...] = ((), (((1.0,), (8.0, 8.0))))
FEW = 4  # places in a bin


def plan_of(guarantee: dp.Guarantee) -> Measurement:
    """The plan of the sums alone, which spend the whole guarantee."""
    return sums_module.planned(("x",), guarantee, Budget.of(guarantee))


def release(plan: Any, units: tuple[tuple[Any, ...], ...], noise: Any, limit: int) -> np.ndarray:
    """The noisy sums of the records that units have."""
    rows = [(f"unit {place}", value) for place, unit in enumerate(units) for value in unit]
    columns = [pa.array(column) for column in zip(*rows, strict=True)] or [pa.nulls(0)] * 2
    batch = pa.record_batch([columns[0], columns[1].cast(pa.float64())], ["person", "x"])
    accumulator = MarginalsAccumulator(DOMAIN, [("x",)])
    encoded = encode_records(DOMAIN, "person", False, batch)
    limited = dp.Guarantee(1.0, 0.0, ADD, "person", limit)  # type: ignore[arg-type]
    exact = in_memory._summary(accumulator, iter([encoded]), DOMAIN, limited, None)
    return np.rint(plan.draw(exact, noise) * plan.grid).astype(np.int64)


def subject(guarantee: dp.Guarantee, values: tuple[Any, ...] = VALUES) -> Subject:
    limit = guarantee.max_records_per_unit
    return Subject(
        guarantee,
        plan_of,
        functools.partial(release, limit=limit),
        lambda: beside(OTHERS, neighbouring_units(values, guarantee.neighboring, limit)),
    )


@contextlib.contextmanager
def few_places() -> Iterator[None]:
    with (
        mock.patch.object(PlaceLevels, "PLACES", FEW),
        mock.patch.object(sums_module, "GRID", FEW),
        mock.patch.object(steps_module, "GRID", FEW),
    ):
        yield


def law(guarantee: dp.Guarantee) -> Finding:
    with few_places():
        return exact_law(subject(guarantee, (0.0, 3.0, 9.0)), tuple, least=0.9, ends=(-9, 9))


def black_box(guarantee: dp.Guarantee) -> Finding:
    """Of a unit whose records are at the upper end of a bin, and lower, or not there at all."""
    limit, source = guarantee.max_records_per_unit, NoiseSource()
    other = () if guarantee.neighboring == ADD else (0.0,) * (limit + 1)
    sides, half, ends = ((4.0 - 1e-9,) * (limit + 1), other), limit * FEW // 2, (-12, 12)
    with few_places():
        plan = subject(guarantee).planned()
        exact = [half, 0 if guarantee.neighboring == ADD else -half]
        scale = guarantee.neighboring.num_moved * half / guarantee.epsilon
        laws = tuple(audit.discrete_laplace(scale, value, *ends) for value in exact)

        def outcomes(side: tuple[float, ...], runs: int) -> list[int]:
            drawn = (release(plan, (side,), source, limit) for _ in range(runs))
            return [int(np.clip(sums[0], *ends)) for sums in drawn]

        runs_of = [functools.partial(outcomes, side) for side in sides]
        limits: dict[str, Any] = {"runs": 3000, "pilot_runs": 500}
        return told_apart(runs_of, guarantee, laws=laws, score=ratio_of(laws), **limits)


def unclamped(original: Any, levels: PlaceLevels, values: Any) -> Coded:
    """Numbers beyond the ends are where they are."""
    bins = original(levels, values)
    last = np.minimum(np.searchsorted(levels._first, values, "right") - 1, 1)
    first = levels._first[np.maximum(last, 0)]
    places = np.clip((values - first) / 4 * levels.PLACES, 0, 2.0**31)
    return Coded(np.where(values < 0, bins.codes, places).astype(np.uint32), bins.outside)


def audits() -> list[Audit]:
    results = []
    for delta, relation, limit in itertools.product((0.0, DELTA), (ADD, REPLACE), (1, 2)):
        guarantee = promise(relation, delta, 2.0, limit)
        checks: dict[str, Any] = {"price": lambda promised: price(subject(promised))}
        bugs = {"price": derived(guarantee, draws=1)}
        bugs["price"]["clamp missing"] = around(PlaceLevels, "floats", unclamped)
        if not delta:
            checks["law"] = law
            bugs["law"] = {"clamp missing, few places": around(PlaceLevels, "floats", unclamped)}
        if not delta and limit == 1:
            checks["black box"] = black_box
            bugs["black box"] = {"noise scale halved in the sampler": halve_scales}
        name = f"bin sums, {'delta' if delta else 'pure'}, k = {limit}"
        results.append(audited(name, guarantee, checks, bugs, guarantee, dear=("law", "black box")))
    return results
