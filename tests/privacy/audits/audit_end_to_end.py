"""The whole Beam transform, audited over many independent replicas in one pipeline.

A replica is three cells of one large domain, the records of one other unit, and either of two
neighbouring holdings of one unit of its own; half of the replicas have the one, half the other.
Units are bounded one by one and every cell has noise of its own, so replicas are independent; the
claim for one replica is that of the whole release, because its unit has records nowhere else.

Covered, as shipped: encoding (records outside the domain among them), bounding by unit,
counting in bundles, adding their shards, the step that draws, with the production
noise source, and the barrier behind it. Not covered: the final fit, which is post-processing and
would tie the replicas together; the noisy table leaves the pipeline in its place. Nor reading
files and writing releases.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import auditing
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from auditing import (
    ADD_REMOVE,
    SENSITIVITY_HALVED,
    Audit,
    Finding,
    Patch,
    around,
    audited,
    halve_scales,
    plan_with,
    ratio_of,
    replaced,
    share_one_draw,
    skip_empty_cells,
    told_apart,
)
from tiny import ADD, REPLACE, promise

import beam_dp as dp
from beam_dp.mechanisms.marginals import measure_all as measure_all_module
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.kinds import release_from_bytes
from beam_dp.secret.encoding import contributions
from beam_dp.secret.summaries.shards import read_shards
from beam_dp.testing import audit
from beam_dp.transforms.counting import (
    limit_contributions as limit_module,
    summarise as summarise_module,
)
from beam_dp.transforms.drawing import one_worker as draw_module

RUNS, PILOT = 8_000, 2_000  # on either side: 20,000 replicas in one pipeline
REPLICAS = 2 * (RUNS + PILOT)
PLACES = 3
DOMAIN = dp.Domain(
    (dp.IntegerAttribute("replica", 0, REPLICAS - 1), dp.IntegerAttribute("place", 0, PLACES - 1))
)
WORKLOAD = dp.Workload(DOMAIN, (DOMAIN.names,))
MOST = 2
OUTSIDE = 9
# What the unit of a replica holds, in either of two neighbours. It may keep two of these.
HOLDINGS = {
    ADD: ((0, 0, 0, 1, 1, 2, 2, OUTSIDE, OUTSIDE), ()),
    REPLACE: ((0,) * 7, (2,) * 5 + (OUTSIDE,) * 3),
}
BASE = np.array([0, 1, 0])  # of another unit
BATCH = 20_000


def audits() -> list[Audit]:
    found = []
    for relation in (ADD, REPLACE):
        guarantee = promise(relation, 0.0, 2.0, MOST)
        intervals = {
            "bounding missing": skip_limit,
            "noise scale halved in the sampler": halve_scales,
            "empty cells skipped": skip_empty_cells,
        }
        bugs = {
            **intervals,
            "sensitivity halved": SENSITIVITY_HALVED,
            "k ignored": ignore_k,
            "noise per bundle": noise_per_bundle,
        }
        if relation == ADD:
            bugs["bounding after the sum"] = bound_cells
        else:
            bugs["replace-one run with add-remove noise"] = ADD_REMOVE
            bugs["one draw for all cells"] = share_one_draw
        for name, tried, release in (
            ("whole pipeline", bugs, released),
            ("whole pipeline, intervals", intervals, released_intervals),
        ):
            case = {"black box": black_box}, {"black box": tried}, relation, guarantee, release
            found.append(audited(name, guarantee, *case, jobs=("black box",)))
    return found


def black_box(
    relation: str, guarantee: dp.Guarantee, release: Callable[[str, dp.Guarantee], np.ndarray]
) -> Finding:
    noisy = release(relation, guarantee).reshape(REPLICAS, PLACES)
    clipped = np.clip(noisy - BASE, 0, MOST).astype(np.int64)
    scale = guarantee.epsilon**-1 * MOST * (1 if relation == ADD else 2)
    laws = tuple(replica_law(held, scale) for held in HOLDINGS[relation])
    # Replicas take turns to be of either neighbour.
    sides = [taken(iter(map(tuple, clipped[side::2].tolist()))) for side in range(2)]
    options = {"score": ratio_of(laws), "runs": RUNS, "pilot_runs": PILOT}
    return told_apart(sides, guarantee, laws=laws, **options)


def taken(outcomes: Iterator[Any]) -> Callable[[int], list[Any]]:
    """Runs are taken from what one pipeline made, no run twice."""
    return lambda runs: list(itertools.islice(outcomes, runs))


def replica_law(held: tuple[int, ...], scale: float) -> dict[Any, float]:
    """The law of a replica's clipped cells: any two of the unit's records are as likely."""
    inside = [place for place in held if place != OUTSIDE]
    kept = list(itertools.combinations(inside, min(MOST, len(inside))))
    law: dict[Any, float] = {}
    for places in kept:
        counts = np.bincount(np.array(places, np.int64), minlength=PLACES).tolist()
        cells = [audit.discrete_laplace(scale, count, 0, MOST) for count in counts]
        for outcome, share in audit.product_law(cells).items():
            law[outcome] = law.get(outcome, 0.0) + share / len(kept)
    return law


@functools.cache
def batches(relation: str) -> list[pa.RecordBatch]:
    """All records, in an order that scatters each unit over the bundles."""
    columns: tuple[list[int], list[int], list[str]] = ([], [], [])
    for replica in range(REPLICAS):
        records = [(place, f"own {replica}") for place in HOLDINGS[relation][replica % 2]]
        records += [(place, f"other {replica}") for place in np.flatnonzero(BASE).tolist()]
        for place, unit in records:
            for column, value in zip(columns, (replica, place, unit), strict=True):
                column.append(value)
    order = np.random.default_rng(0).permutation(len(columns[0]))
    table = pa.table(dict(zip(("replica", "place", "person"), columns, strict=True))).take(order)
    return table.combine_chunks().to_batches(max_chunksize=BATCH)


@dataclasses.dataclass(frozen=True)
class NoisyTable:
    """Stands in for the release: the noisy table, before any fit."""

    table: np.ndarray
    draw_id: str = "0" * 32
    records_format: str = "avro"
    within_bins: str = "midpoint"

    def to_bytes(self) -> bytes:
        return np.rint(self.table).astype(np.int64).tobytes()


# Of this process, in which FnApiRunner runs everything.
RECORDS: list[pa.RecordBatch] = []
SHARDS: list[Any] = []


def _collect(shard: Any) -> None:
    SHARDS.append(shard)


def _batch(number: int) -> pa.RecordBatch:
    return RECORDS[number]


def bytes_of(transform: beam.PTransform[Any, Any], records: list[pa.RecordBatch]) -> bytes:
    """What leaves a pipeline; the records are not part of its graph, which Beam compresses."""
    SHARDS.clear()
    RECORDS[:] = records
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        batches = pipeline | beam.Create(range(len(records))) | "Batch" >> beam.Map(_batch)
        _ = batches | transform | "Collect" >> beam.Map(_collect)
    pieces = sorted(shard for _, shard in SHARDS)
    assert len(pieces) == pieces[0][1]
    return b"".join(piece for _, _, piece in pieces)


def released(relation: str, guarantee: dp.Guarantee) -> np.ndarray:
    """What comes out of the pipeline, as one noisy count a cell."""
    planned = auditing.planned_for(guarantee)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            measure_all_module, "synthesise", lambda *arguments: NoisyTable(arguments[2][0])
        )
        patch.setattr(draw_module, "release_to_bytes", NoisyTable.to_bytes)
        # Values within bins are post-processing as the fit is, of records that are not drawn here.
        given = DOMAIN, WORKLOAD, planned, dp.Laplace("textbook"), REPLICAS
        transform = dp.ReleaseSyntheticDatabase(*given, within_bins="midpoint")
        return np.frombuffer(bytes_of(transform, batches(relation)), np.int64)


def released_intervals(relation: str, guarantee: dp.Guarantee) -> np.ndarray:
    """The same of interval counts of one column, whose histogram has noise of its own in a cell."""
    domain = dp.Domain((dp.IntegerAttribute("cell", 0, REPLICAS * PLACES - 1),))
    transform = dp.ReleaseIntervals(domain, "cell", auditing.planned_for(guarantee), "histogram")
    records = [as_cells(batch) for batch in batches(relation)]
    release = release_from_bytes(bytes_of(transform, records))
    assert isinstance(release, dp.IntervalRelease)
    return np.rint(release.histogram())


def as_cells(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records of one column in place of two; those outside the domain stay outside."""
    place = batch["place"].to_numpy()
    cell = np.where(place < PLACES, batch["replica"].to_numpy() * PLACES + place, -1)
    return pa.record_batch({"cell": pa.array(cell), "person": batch["person"]})


def ignore_k(patch: Patch) -> None:
    """Units keep k records, and the noise is that for one."""
    plan_with(max_records_per_unit=lambda _: 1)(patch)
    around(
        limit_module,
        "LimitContributions",
        lambda original, domain, _, **limits: original(domain, MOST, **limits),
    )(patch)


def _selected_by_cell(
    units: np.ndarray, words: Any, counts: np.ndarray, most: int, _: object
) -> np.ndarray:
    """At most k records of a unit in each cell: as many cells as it likes."""
    by_cell = np.stack([units[0], units[1] + words[0].astype(np.uint64)])
    return contributions.select_records(by_cell, words, counts, most, None)


skip_limit = replaced(
    limit_module,
    "select_records",
    lambda units, words, counts, most, _: np.repeat(np.arange(counts.size), counts),
)
bound_cells = replaced(limit_module, "select_records", _selected_by_cell)


def noise_per_bundle(patch: Patch) -> None:
    """Each bundle adds noise to the cells that it has; after the last combine nobody does."""
    added: list[np.ndarray] = []
    original = summarise_module._CountBundle.finish_bundle

    def finish(self: Any) -> Any:
        shards = [each.value for each in original(self)]
        counts = read_shards(shards, DOMAIN.num_cells)
        noisy = NoiseSource().laplace(counts, 1.0)
        added.append(np.where(counts == 0, 0, noisy - counts))
        return (beam.window.GlobalWindows.windowed_value(shard) for shard in shards)

    def draw(self: Measurement, marginals: Any, noise: NoiseSource) -> np.ndarray:
        exact = marginals.marginal(self.names)
        total = exact + sum(each.reshape(exact.shape) for each in added)
        added.clear()
        return total / 1.0

    patch.setattr(summarise_module._CountBundle, "finish_bundle", finish)
    patch.setattr(Measurement, "draw", draw)
