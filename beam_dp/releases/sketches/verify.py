"""Verifies sketches and histograms of keys: noise on hashed sums, and a threshold for counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from beam_dp.checks import check_choice, checked_integer
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import DISTRIBUTIONS
from beam_dp.privacy.steps import Step, above, gaussian_vector, laplace_step, positive
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.releases.verdict import Figures, Verification, check_fields, judged

THRESHOLD = "Korolova and others (2009); Bun, Nissim and Stemmer (2016)"
_PARAMETERS = (
    *("calibration", "noise", "histogram_share", "sketch", "histogram", "bound", "key"),
    "ledger_release",
)
_OF_MECHANISM = {
    "sparse_project": ("calibration", "sketch"),
    "count_sketch": ("noise", "sketch"),
    "stability_histogram": ("histogram",),
    "hybrid_sketch": ("histogram_share", "sketch", "histogram"),
}
_SKETCH = (
    *("family", "projection_width", "num_blocks", "distribution", "scale"),
    *("estimator", "max_squared_norm", "grid"),
)


def verify(release: SparseRelease) -> Verification:
    """Verifies a release for sparse queries."""
    figures, public = Figures(), release.plan
    check_fields("parameters", public, (), _PARAMETERS)
    if "calibration" in public:
        check_choice("calibration", public["calibration"], ("tight", "textbook"))
    if "noise" in public and release.sketch is not None:
        check_choice("noise", public["noise"], ("laplace", "gaussian"))
        figures.equal("noise", release.sketch.distribution, f"discrete_{public['noise']}")
    is_limited = (release.mechanism, public.get("noise")) == ("count_sketch", "gaussian")
    if not is_limited and isinstance(public.get("sketch"), Mapping):
        figures.equal("max_squared_norm", public["sketch"].get("max_squared_norm"), None)
    for name in _OF_MECHANISM.get(release.mechanism, ()):
        check_fields("parameters", public, (name,), public)
    steps = sketch_steps(release.guarantee, release.max_weight, _at_least_noise(release))
    for name, part in (("sketch", release.sketch), ("histogram", release.histogram)):
        stated = public.get(name)
        figures.equal(name, stated is not None, part is not None)
        if part is None or not isinstance(stated, Mapping):
            continue
        check_fields(name, stated, _SKETCH if name == "sketch" else ("scale", "threshold"))
        for field in dataclasses.fields(part):
            if field.name in stated:
                figures.equal(f"{name}.{field.name}", getattr(part, field.name), stated[field.name])
    # Earlier versions did not state a bound.
    if release.sketch is not None and "sketch" in public and "bound" in public:
        _check_bound(release, public["bound"], figures)
    if "histogram_share" in public and release.histogram is not None:
        epsilon = steps[-1].loss.epsilon
        assert epsilon is not None
        share = float(epsilon) / release.guarantee.epsilon
        figures.same("histogram_share", public["histogram_share"], share)
    return judged("sparse_release", release.mechanism, release.guarantee, steps, figures)


def _at_least_noise(release: SparseRelease) -> dict[str, Any]:
    """Returns the parameters, with the smaller scale if the card states two different scales."""
    found = dict(release.plan)
    for name, part in (("sketch", release.sketch), ("histogram", release.histogram)):
        stated = found.get(name)
        if part is not None and isinstance(stated, Mapping) and "scale" in stated:
            scale = min(map(positive, (stated["scale"], part.scale)))
            found[name] = {**stated, "scale": float(scale)}
    return found


def _check_bound(release: SparseRelease, stated: Any, figures: Figures) -> None:
    fields = ("num_queries", "failure_probability", "noise", "distortion_of_norm")
    check_fields("bound", stated, fields)
    known: Mapping[str, Any] = dict(stated)
    try:
        bounds = release.bounds(known.get("num_queries", 0), known.get("failure_probability", 0))
    except InputError:
        bounds = None
    if bounds is None:
        figures.equal("bound", stated, None)
        return
    for name in ("noise", "distortion_of_norm"):
        figures.same(f"bound.{name}", known.get(name), getattr(bounds, name))


def sketch_steps(guarantee: Guarantee, max_weight: int, public: Mapping[str, Any]) -> list[Step]:
    """Returns the steps to verify for a sketch, a histogram, or both.

    A unit has at most k records, so it moves the counts by at most w = k * ``max_weight`` in total,
    or by 2 w if the unit is replaced. An element is in one cell of every row.
    """
    moved = guarantee.neighboring.num_moved * guarantee.max_records_per_unit * max_weight
    steps = []
    sketch, histogram = public.get("sketch"), public.get("histogram")
    for name, stated in (("sketch", sketch), ("histogram", histogram)):
        if stated is not None and not isinstance(stated, Mapping):
            raise InputError(name, stated, "must be a JSON object")
    if sketch is not None:
        steps.append(_sketch_step(sketch, moved, guarantee))
    if histogram is not None:
        steps.append(_histogram_step(histogram, moved, guarantee, max_weight))
    return steps


def _sketch_step(sketch: Mapping[str, Any], moved: int, guarantee: Guarantee) -> Step:
    distribution, scale = sketch.get("distribution"), sketch.get("scale", 0.0)
    check_choice("distribution", distribution, DISTRIBUTIONS)
    rows = checked_integer("num_blocks", sketch.get("num_blocks"), 1)
    width = checked_integer("projection_width", sketch.get("projection_width"), 1)
    if sketch.get("family") == "dense" and rows != width:
        raise InputError("num_blocks", rows, f"must be {width:,}, as the family is dense")
    grid = checked_integer("grid", sketch.get("grid", 1), 1)
    what = f"add noise to {width:,} cells in {rows:,} rows"
    if distribution == "discrete_laplace":
        step = laplace_step(what, rows * moved, scale)
        # Each row has its own pure epsilon, and the rhos of the rows add up.
        one = Loss.pure(Fraction(moved) / positive(scale))
        assert one.rho is not None and step.loss.rho is not None
        rho = min(step.loss.rho, rows * one.rho)
        loss = dataclasses.replace(step.loss, rho=rho)
        return dataclasses.replace(step, numbers=f"{step.numbers}, rho {above(rho)}", loss=loss)
    squared_norm = moved**2 * rows
    limit = sketch.get("max_squared_norm")
    if limit is not None:
        most = checked_integer("max_squared_norm", limit, 1)
        squared_norm = min(squared_norm, guarantee.neighboring.num_moved**2 * most)
    return gaussian_vector(what, squared_norm * grid**2, float(Fraction(scale) * grid))


def _histogram_step(
    histogram: Mapping[str, Any], moved: int, guarantee: Guarantee, max_weight: int
) -> Step:
    scale = histogram.get("scale", 0.0)
    threshold = checked_integer("threshold", histogram.get("threshold"), 1)
    step = laplace_step("count keys above a threshold", moved, scale)
    delta = release_probability(scale, threshold, guarantee.max_records_per_unit, max_weight)
    loss = dataclasses.replace(step.loss, slack=delta)
    numbers = f"{step.numbers}; P(a key of one unit >= {threshold:,}) = {above(delta)}"
    return dataclasses.replace(
        step,
        formula=f"{step.formula}; delta = P(key of one unit)",
        theorem=THRESHOLD,
        numbers=numbers,
        loss=loss,
    )


def release_probability(
    scale: float, threshold: int, max_records_per_unit: int, max_weight: int
) -> Fraction:
    """Returns the largest probability that a key of one unit alone is released.

    The unit's k records have j keys. f(x) = -ln(1 - P(x + noise >= threshold)) is convex in the
    weight x below the threshold, so for each j the worst case is one key with k - j + 1 records and
    j - 1 keys with one record each. (j - 1) f(w) + f((k - j + 1) w) is convex in j, so in the worst
    case all records have the same key, or each record has its own key. The result is rounded up.
    """
    k, heaviest = max_records_per_unit, max_records_per_unit * max_weight
    if threshold <= heaviest:
        return Fraction(1)
    with localcontext() as context:
        context.prec = 400  # deltas may be as small as 1e-300
        exact = Decimal(scale)
        ratio = (-1 / exact).exp()

        def tail(weight: int) -> Decimal:
            return (-Decimal(threshold - weight) / exact).exp() / (1 + ratio)

        # The exponent is convex in the number of keys, so the worst case is at an end.
        worst = min((1 - tail(heaviest)).ln(), k * (1 - tail(max_weight)).ln())
        return Fraction((1 - worst.exp()) * (1 + Decimal("1e-30")) + Decimal("1e-350"))
