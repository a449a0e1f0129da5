"""Plain tables of the card of a release for sparse queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.reports.terminal import (
    below_each_other,
    counted,
    facts_tables,
    noise_text,
    promise_facts,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


def describe_sparse_release(release: SparseRelease) -> RenderableType:
    """Returns what a release for sparse queries promises, for ``rich`` to print.

    Returns:
        Tables of the guarantee, the sketch, the histogram and the parameters.
    """
    columns = release.plan.get("key") or {}
    weight = columns.get("weight")
    facts = {
        "mechanism": release.mechanism,
        **promise_facts(release.guarantee),
        "keys": f"{columns.get('key', 'not stated')}, {columns.get('key_type', 'of any type')}",
        "weight": "1 a record" if weight is None else f"{weight}, from 0 to {release.max_weight:,}",
        "queries": f"at most {counted(release.max_sparsity, 'key')}, values from 0 to 1",
        "hash": f"{release.hash_key.independence}-wise independent, its key is public",
        "draw": release.draw_id,
    }
    tables: dict[str, dict[str, Any]] = {"release": facts}
    if release.sketch is not None:
        sketch = release.sketch
        tables["sketch"] = {
            "family": sketch.family,
            "cells": f"{len(sketch.cells):,} in {counted(sketch.num_blocks, 'row')}",
            "noise of a cell": f"{noise_text(sketch.distribution)}, scale {sketch.scale:.4g}",
            "estimator": sketch.estimator.replace("_", " "),
        }
    bounds = release.bounds()
    if bounds is not None:
        tables["bound"] = {
            "of": f"one query, except with probability {bounds.failure_probability:g}",
            "noise adds": f"at most {bounds.noise:,.1f}",
            "hashing adds": f"at most {bounds.distortion_of_norm:.3g} times the root of the sum of"
            " all squared counts",
        }
    if release.histogram is not None:
        histogram = release.histogram
        tables["histogram"] = {
            "keys that are held": f"{len(histogram.elements):,}",
            "least count": f"{histogram.threshold:,}",
            "noise of a count": f"discrete Laplace, scale {histogram.scale:.4g}",
        }
    tables["parameter"] = {
        name: value
        for name, value in release.plan.items()
        if name not in ("sketch", "histogram", "key", "bound")
    }
    return below_each_other(facts_tables(tables))
