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
from beam_dp.privacy.steps import Step, above, gaussian_vector, laplace_step, positive
from beam_dp.releases.sketches.release import HistogramNoise, SketchNoise, SparseRelease
from beam_dp.releases.verdict import Figures, Verification, check_fields, judged

THRESHOLD = "Korolova and others (2009); Bun, Nissim and Stemmer (2016)"
_OPTIONS = ("calibration", "noise", "histogram_share", "key")
_PARAMETERS = (*_OPTIONS, "sketch", "histogram", "bound", "ledger_release")
_OF_MECHANISM = {
    "sparse_project": ("calibration", "sketch"),
    "count_sketch": ("noise", "sketch"),
    "stability_histogram": ("histogram",),
    "hybrid_sketch": ("histogram_share", "sketch", "histogram"),
}


def verify(release: SparseRelease) -> Verification:
    """Verifies a release for sparse queries."""
    figures, public = Figures(), release.plan
    check_fields("parameters", public, _OF_MECHANISM.get(release.mechanism, ()), _PARAMETERS)
    if "calibration" in public:
        check_choice("calibration", public["calibration"], ("tight", "textbook"))
    if "noise" in public and release.sketch is not None:
        check_choice("noise", public["noise"], ("laplace", "gaussian"))
        figures.equal("noise", release.sketch.distribution, f"discrete_{public['noise']}")
    sketch: SketchNoise | None = _noise(SketchNoise, "sketch", release, figures)
    histogram: HistogramNoise | None = _noise(HistogramNoise, "histogram", release, figures)
    is_limited = (release.mechanism, public.get("noise")) == ("count_sketch", "gaussian")
    if sketch is not None and not is_limited:
        figures.equal("max_squared_norm", sketch.max_squared_norm, None)
    steps = sketch_steps(release.guarantee, release.max_weight, sketch, histogram)
    # Earlier versions did not state a bound.
    if release.sketch is not None and "sketch" in public and "bound" in public:
        _check_bound(release, public["bound"], figures)
    if "histogram_share" in public and release.histogram is not None:
        epsilon = steps[-1].loss.epsilon
        assert epsilon is not None
        share = float(epsilon) / release.guarantee.epsilon
        figures.same("histogram_share", public["histogram_share"], share)
    return judged("sparse_release", release.mechanism, release.guarantee, steps, figures)


def _noise(kind: type[Any], name: str, release: SparseRelease, figures: Figures) -> Any:
    """Returns the noise of a part that a card states twice, with the smaller of the scales."""
    fields = release.plan.get(name)
    part = release.sketch if name == "sketch" else release.histogram
    figures.equal(name, fields is not None, part is not None)
    if fields is None:
        return None
    check_fields(name, fields, [field.name for field in dataclasses.fields(kind)])
    for field, value in fields.items():
        if hasattr(part, field):
            figures.equal(f"{name}.{field}", getattr(part, field), value)
    scales = fields["scale"], getattr(part, "scale", fields["scale"])
    return kind(**{**fields, "scale": float(min(map(positive, scales)))})


def _check_bound(release: SparseRelease, entry: Any, figures: Figures) -> None:
    fields = ("num_queries", "failure_probability", "noise", "distortion_of_norm")
    check_fields("bound", entry, fields)
    bound: Mapping[str, Any] = dict(entry)
    try:
        bounds = release.bounds(bound.get("num_queries", 0), bound.get("failure_probability", 0))
    except InputError:
        bounds = None
    if bounds is None:
        figures.equal("bound", entry, None)
        return
    for name in ("noise", "distortion_of_norm"):
        figures.same(f"bound.{name}", bound.get(name), getattr(bounds, name))


def sketch_steps(
    guarantee: Guarantee,
    max_weight: int,
    sketch: SketchNoise | None,
    histogram: HistogramNoise | None,
) -> list[Step]:
    """Returns the steps to verify for a sketch, a histogram, or both.

    A unit has at most k records, so it moves the counts by at most w = k * ``max_weight`` in total,
    or by 2 w if the unit is replaced. An element is in one cell of every row.
    """
    moved = guarantee.neighboring.num_moved * guarantee.max_records_per_unit * max_weight
    steps = [] if sketch is None else [_sketch_step(sketch, moved, guarantee)]
    if histogram is not None:
        steps.append(_histogram_step(histogram, moved, guarantee, max_weight))
    return steps


def _sketch_step(sketch: SketchNoise, moved: int, guarantee: Guarantee) -> Step:
    scale, grid, limit = sketch.scale, sketch.grid, sketch.max_squared_norm
    rows = checked_integer("num_blocks", sketch.num_blocks, 1)
    width = checked_integer("projection_width", sketch.projection_width, 1)
    if sketch.family == "dense" and rows != width:
        raise InputError("num_blocks", rows, f"must be {width:,}, as the family is dense")
    what = f"add noise to {width:,} cells in {rows:,} rows"
    if sketch.distribution == "discrete_laplace":
        step = laplace_step(what, rows * moved, scale)
        # Each row has its own pure epsilon, and the rhos of the rows add up.
        one = Loss.pure(Fraction(moved) / positive(scale))
        assert one.rho is not None and step.loss.rho is not None
        rho = min(step.loss.rho, rows * one.rho)
        loss = dataclasses.replace(step.loss, rho=rho)
        return dataclasses.replace(step, numbers=f"{step.numbers}, rho {above(rho)}", loss=loss)
    squared_norm = moved**2 * rows
    if limit is not None:
        checked_integer("max_squared_norm", limit, 1)
        squared_norm = min(squared_norm, guarantee.neighboring.num_moved**2 * limit)
    return gaussian_vector(what, squared_norm * grid**2, float(Fraction(scale) * grid))


def _histogram_step(
    histogram: HistogramNoise, moved: int, guarantee: Guarantee, max_weight: int
) -> Step:
    scale, threshold = histogram.scale, checked_integer("threshold", histogram.threshold, 1)
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
