"""Counts of records outside the domain: whole pipelines on neighbours, and their mutants.

One unit has a thousand records outside the domain, against none or against a thousand of another
kind; its records inside the domain change, too. Encoding, limiting and counting run on Beam, as
shipped; the step that draws is then run on what they found.

"price": what release and counts hand to the noise, which must cost no more than epsilon together,
and the counts no more than their part.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any
from unittest import mock

import apache_beam as beam
import numpy as np
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from auditing import (
    Audit,
    Finding,
    around,
    audited,
    replaced,
    unchecked,
)
from noise_sources import Draw, NoNoise
from tiny import ADD, REPLACE, domain_of, promise, share_spent, workload_of

from beam_dp.encoding import records as encode_module
from beam_dp.encoding.records import EncodedBatch
from beam_dp.mechanisms.left_out import LEFT_OUT_SHARE, LeftOutPlan
from beam_dp.mechanisms.marginals.measure_all import Laplace
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.transforms import ReleaseSyntheticDatabase
from beam_dp.transforms.counting import summarise as limited_module
from beam_dp.transforms.drawing import one_worker, release as release_module

DOMAIN = domain_of(3, 3).with_impossible([{"a0": [0], "a1": [0]}])
WORKLOAD = workload_of(DOMAIN, 1)
BOTH, IMPOSSIBLE = (9, 9), (0, 0)  # fails both attributes; and none
MANY = 1000
EPSILON = 40.0

Record = tuple[int, int]
Sides = tuple[list[Record], list[Record]]


def holdings(guarantee: Guarantee) -> Sides:
    """What one unit holds in either of two neighbours."""
    replaces = guarantee.neighboring == REPLACE
    if guarantee.privacy_unit == RECORD:
        return [BOTH], ([IMPOSSIBLE] if replaces else [])
    first = [BOTH] * MANY + [(1, 1)] * MANY
    return first, ([IMPOSSIBLE] * MANY + [(2, 2)] * MANY if replaces else [])


def audits() -> list[Audit]:
    found = []
    for relation in (ADD, REPLACE):
        for most in (1, 2):
            guarantee = promise(relation, 0.0, EPSILON, most)
            if most > 1:
                # A record that fails twice is limited once all the same.
                bugs = {"budget not split": unchecked(split_nothing)}
                bugs["left-out records not bounded"] = skip_limit
            else:  # a record changes one of the two parts of the budget
                bugs = {"counted at every attribute that fails": count_at_each}
            if relation == REPLACE:
                bugs["sensitivity k under replace-one"] = forget_two
            name, checks = f"left out, {'units' if most > 1 else 'records'}", {"price": price}
            found.append(audited(name, guarantee, checks, {"price": bugs}, guarantee, jobs=checks))
    return found


def transform(guarantee: Guarantee) -> ReleaseSyntheticDatabase:
    return ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee, Laplace(), 20, count_left_out=True)


_SEEN: dict[str, list[tuple[int, bytes]]] = {}  # of this process, in which FnApiRunner runs


def _keep(name: str, shard: tuple[int, bytes]) -> None:
    _SEEN[name].append(shard)


def shards(release: ReleaseSyntheticDatabase, own: list[Record]) -> dict[str, Any]:
    """What the step that draws would be given, of a unit's records and of those of others."""
    others = [(1, 1), (2, 1), BOTH, (1, 9), IMPOSSIBLE]
    records = [{"a0": a0, "a1": a1, "person": "own"} for a0, a1 in own]
    records += [{"a0": a0, "a1": a1, "person": f"{i}"} for i, (a0, a1) in enumerate(others)]
    order = np.random.default_rng(0).permutation(len(records))

    def keep(_: Any, __: Any, sides: list[Any], ___: int, plan: Any, left_out: Any) -> Any:
        (inside,) = sides
        for name, each in (("inside", inside), ("left out", left_out)):
            _SEEN[name] = []
            _ = each | f"Keep {name}" >> beam.Map(lambda shard, name=name: _keep(name, shard))
        return inside

    with (
        mock.patch.object(release_module, "draw_release", keep),
        beam.Pipeline(runner=FnApiRunner()) as p,
    ):
        _ = p | beam.Create([records[i] for i in order]) | release
    return {name: list(found) for name, found in _SEEN.items()}


def price(guarantee: Guarantee) -> Finding:
    """The share of epsilon that both parts cost together, of one draw, and the counts of theirs."""
    release = transform(guarantee)
    sides = [drawn(release, shards(release, own)) for own in holdings(guarantee)]
    (*_, counts), (*_, other_counts) = sides
    part = dataclasses.replace(guarantee, epsilon=EPSILON * LEFT_OUT_SHARE)
    shares = [share_spent(guarantee, *sides), share_spent(part, [counts], [other_counts])]
    # A lone record is inside or outside, so that one of the parts costs nothing.
    least = shares if guarantee.privacy_unit != RECORD else shares[1:]
    return Finding(bool(min(least) >= 0.999 and max(shares) <= 1 + 1e-9))


def drawn(release: ReleaseSyntheticDatabase, given: dict[str, Any]) -> list[Draw]:
    held = release.mechanism, release.plan, release.accumulator
    drawing = functools.partial(release_module._released_database, *held)
    source = NoNoise()
    plan = release.plan.left_out
    list(one_worker._drawn(drawing, plan, source, given["left out"], given["inside"]))
    return source.draws


def _count_at_each(codes: Any, outside: np.ndarray, units: Any) -> EncodedBatch:
    """A record that fails two attributes is counted twice."""
    fails = [np.flatnonzero(outside & (column < 0)) for column in codes]
    nowhere = outside & np.all([column >= 0 for column in codes], axis=0)
    fails.append(np.flatnonzero(nowhere))
    cells = np.repeat(np.arange(len(fails)), [len(each) for each in fails])
    which = np.concatenate(fails)
    return EncodedBatch(cells=cells, units=None if units is None else units[:, which])


def _split_nothing(
    original: Any, mechanism: Any, domain: Any, workload: Any, guarantee: Guarantee, number: Any
) -> Any:
    """The release spends all of epsilon, and says that it spent 95 % of it."""
    whole = dataclasses.replace(guarantee, epsilon=guarantee.epsilon / (1 - LEFT_OUT_SHARE))
    plan = original(mechanism, domain, workload, whole, number)
    return dataclasses.replace(plan, loss=Loss.pure(guarantee.epsilon))


skip_limit = around(
    limited_module,
    "limited",
    lambda original, encoded, domain, guarantee, label="Limit", **limits: (
        encoded if "left out" in label else original(encoded, domain, guarantee, **limits)
    ),
)
count_at_each = replaced(encode_module, "left_out_records", _count_at_each)
split_nothing = around(Laplace, "plan", _split_nothing)
forget_two = replaced(
    LeftOutPlan, "sensitivity", property(lambda self: self.guarantee.max_records_per_unit)
)
