"""Edges of bins, or values, from a finished release, at no further privacy cost.

Bins have about equal released counts, so no bins are wasted on empty ranges. Their edges are edges
of the release's levels. Values are the keys that a release of counts lists.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.domain import ordered
from beam_dp.domain.attributes import OTHER_LABEL, CategoricalAttribute, PaidRelease
from beam_dp.errors import InputError
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.release import Release
from beam_dp.releases.sketches.release import SparseRelease

MAX_BINS = 10_000
# A bin with a released count below this number of standard errors may well be empty.
_LEAST_STANDARD_ERRORS = 2.0


def binned_attribute(release: Release, num_bins: int) -> ordered.BinnedAttribute:
    """Returns the attribute of a release that a ledger paid for, in bins of about equal counts.

    Privacy: the result is a function of the release and ``num_bins``, so it costs nothing more. But
    a later release with these edges is chosen after this release was seen, and is about the same
    people. So the attribute names the ledger's entry, and programs demand the same budget to pay.

    Accuracy: the counts are those of ``increasing_prefixes``. A level whose count exceeds the share
    of a bin is a bin of its own; the other levels share the remaining bins. A bin whose count is
    below two standard errors of the count is joined with the bin before it, so no bin consists of
    noise only. There may be fewer bins than ``num_bins``, which is from 2 to 10,000 and at most the
    number of levels.

    An integer attribute becomes a numeric attribute of whole numbers. Its last edge is the largest
    integer, or the largest integer plus 0.5 if that integer has a bin of its own.
    """
    if not isinstance(release, IntervalRelease):
        condition = "must be a release of interval counts: beam-dp release-intervals"
        raise InputError("edges_from", type(release).__name__, condition)
    origin = _payment(release, "edges_from", release.plan)
    checked_integer("bins", num_bins, 2, min(MAX_BINS, release.num_leaves))
    cuts = _above_noise(release, _equal_masses(release.increasing_prefixes(), num_bins))
    if len(cuts) < 3:
        condition = "must have counts above its noise, which hides even a split into two bins"
        raise InputError("edges_from", release.draw_id, condition)
    return _in_bins(release, cuts, origin)


def listed_attribute(release: Release) -> CategoricalAttribute:
    """Returns a categorical attribute of the keys that a paid release lists, in sorted order.

    All other texts of the column go to ``other``; null is left as the schema declares it. What the
    docstring of ``binned_attribute`` says about privacy holds here, too.
    """
    if not isinstance(release, SparseRelease):
        condition = "must be a release of keys: beam-dp release-projection --list_keys"
        raise InputError("values_from", type(release).__name__, condition)
    origin = _payment(release, "values_from", release.plan)
    # All keys of a release are of one type.
    keys: list[Any] = [key for key, _ in release.listed_keys()]
    values = sorted(
        key
        for key in keys
        if (isinstance(key, str) and key != OTHER_LABEL) or (isinstance(key, int) and key < 2**63)
    )
    if not values:
        condition = (
            "must list keys as text or integers: --list_keys, and counts above its threshold"
        )
        raise InputError("values_from", release.draw_id, condition)
    name = release.plan["key"]["key"]
    return CategoricalAttribute(name, tuple(values), other=True, values_from=origin)


def _payment(release: Release, argument: str, parameters: Mapping[str, Any]) -> PaidRelease:
    """Returns the entry of a ledger that paid for a release."""
    paid = parameters.get("ledger_release")
    if not isinstance(paid, str):
        condition = (
            "must be paid for by a ledger (--ledger, --dataset_id): releases that use it add up"
            " with it"
        )
        raise InputError(argument, release.draw_id, condition)
    return PaidRelease(paid, release.draw_id)


def _equal_masses(prefixes: NDArray[np.float64], num_bins: int) -> list[int]:
    """Returns the first levels of at most ``num_bins`` bins, and the end of the last bin."""
    # ``prefixes``: cumulative counts of shape (d + 1,), which start at 0 and never decrease.
    masses, cuts = prefixes.tolist(), [0]
    last = len(masses) - 1
    for num_left in range(num_bins, 1, -1):
        start = cuts[-1]
        share = masses[start] + (masses[last] - masses[start]) / num_left
        stop = bisect.bisect_left(masses, share, lo=start + 1)
        if stop - 1 > start and share - masses[stop - 1] < masses[stop] - share:
            stop -= 1
        if stop >= last:
            break
        cuts.append(stop)
    return [*cuts, last]


def _above_noise(release: IntervalRelease, cuts: list[int]) -> list[int]:
    """Returns the cuts between bins whose counts exceed the noise."""
    kept = [cuts[0]]
    for stop in cuts[1:]:
        found = release.answer(kept[-1], stop - 1)
        if found.values >= _LEAST_STANDARD_ERRORS * found.standard_errors:
            kept.append(stop)
    # A remainder at the end joins the bin before it.
    return [*kept[:-1], cuts[-1]] if len(kept) > 1 else [cuts[0], cuts[-1]]


def _in_bins(
    release: IntervalRelease, cuts: list[int], origin: PaidRelease
) -> ordered.BinnedAttribute:
    attribute: Any = release.attribute
    assert isinstance(attribute, ordered.OrderedAttribute)
    kept = ("other", "nullable", "null_values", "case", "trim", "clip")
    shared = {name: getattr(attribute, name) for name in kept}
    if isinstance(attribute, ordered.IntegerAttribute):
        edges: list[Any] = [attribute.minimum + cut for cut in cuts]
        # The last bin includes its last edge, but must not include a larger integer.
        edges[-1] = attribute.maximum if edges[-2] < attribute.maximum else edges[-2] + 0.5
        return ordered.NumericAttribute(
            attribute.name, tuple(edges), whole=True, edges_from=origin, **shared
        )
    assert isinstance(attribute, ordered.BinnedAttribute)
    edges = [attribute.edges[cut] for cut in cuts]
    return type(attribute)(attribute.name, tuple(edges), edges_from=origin, **shared)
