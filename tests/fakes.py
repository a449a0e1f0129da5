"""Fakes for the tests of transforms: a mechanism without noise, and a local runner."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
import fastavro
import numpy as np
import pytest
from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from noise_sources import Seeded

import beam_dp as dp
from beam_dp.mechanisms.contract import Plan
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.steps import Step
from beam_dp.secret.summaries.histogram import Marginals
from beam_dp.transforms.drawing import one_worker

DOMAIN = dp.Domain(
    (
        dp.IntegerAttribute("age", 0, 9),
        dp.CategoricalAttribute("sex", ("f", "m")),
        dp.BooleanAttribute("smokes", nullable=True),
    )
)
WORKLOAD = dp.Workload(DOMAIN, (("age", "sex"), ("smokes",)))
DRAWS: list[str] = []  # of this process, in which FnApiRunner runs everything


def guarantee(privacy_unit: str = "record", max_records_per_unit: int = 1) -> dp.Guarantee:
    return dp.Guarantee(1.0, 1e-9, "add_or_remove_one", privacy_unit, max_records_per_unit)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoPrivacyPlan(Plan):
    mechanism: str = "no_privacy"
    domain: dp.Domain
    workload: dp.Workload
    summary_tables: tuple[tuple[str, ...], ...]
    within_bins: str = "midpoint"
    records_format: str = "avro"
    start_from: None = None
    asked: Any = None
    unit_costs: None = None
    num_synthetic_records: None = None
    num_rows_from_noise: float = 0.0
    bin_sums: None = None

    @property
    def counted(self) -> dp.Domain:
        return self.domain

    @property
    def steps(self) -> tuple[Step, ...]:
        return ()  # a lie, which no check of what is declared can see

    @property
    def memory_bytes(self) -> float:
        return 0.0

    def _stated(self) -> dict[str, Any]:
        return {}

    def release(
        self,
        marginals: Marginals,
        noise: NoiseSource,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> dp.SyntheticDatabase:
        counts = marginals.tables[self.domain.names].ravel()
        assert counts.sum() == marginals.tables[()]
        cells = np.flatnonzero(counts)
        DRAWS.append(noise.draw_id())
        if progress is not None:
            progress("draw", 1, 1)
        return dp.SyntheticDatabase(
            domain=self.domain,
            workload=self.workload,
            guarantee=self.guarantee,
            mechanism=self.mechanism,
            num_records=int(counts.sum()),
            num_records_is_public=True,
            codes=self.domain.codes(cells),
            counts=counts[cells],
            potentials=[],
            draw_id=DRAWS[-1],
        )


@dataclasses.dataclass(frozen=True)
class NoPrivacy:
    """Releases the exact records: what the distributed part computed, for all to see."""

    max_cells: int = 2**20
    name: str = "no_privacy"

    def plan(
        self,
        domain: dp.Domain,
        workload: dp.Workload,
        guarantee: dp.Guarantee,
        num_records: int | str,
    ) -> NoPrivacyPlan:
        if domain.num_cells > self.max_cells:
            raise dp.InputError("domain", domain.num_cells, f"must be at most {self.max_cells}")
        return NoPrivacyPlan(
            domain=domain,
            workload=workload,
            guarantee=guarantee,
            summary_tables=(domain.names, ()),
            loss=Loss.pure(guarantee.epsilon),
        )

    def release(self, plan: NoPrivacyPlan, *arguments: Any) -> dp.SyntheticDatabase:
        return plan.release(*arguments)


def pipeline(bundle_repeat: int = 0) -> beam.Pipeline:
    # Not DirectRunner, which looks for another runner to download first.
    return beam.Pipeline(runner=FnApiRunner(bundle_repeat=bundle_repeat))


def reading(p: beam.Pipeline) -> Any:
    """The step that reads, as a runner gets it."""
    (step,) = (
        step
        for step in p.to_runner_api().components.transforms.values()
        if "ReadRecords/Read/" in step.unique_name
    )
    payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
    return pickler.loads(payload.do_fn.payload)[0].reading.wanted


COLLECTED: dict[str, list[Any]] = {}


def collect(name: str) -> beam.PTransform:
    """Puts all elements, which may come in any order, into ``COLLECTED[name]``."""
    COLLECTED[name] = []
    return f"Collect {name}" >> beam.Map(lambda element: _put(name, element))


def _put(name: str, element: Any) -> None:
    COLLECTED[name].append(element)


def write_avro(
    folder: pathlib.Path, kind: Any, values: list[Any], name: str = "a", column: str = "a"
) -> str:
    """Writes a file of one column of an Avro type, and returns its path."""
    path = folder / f"{name}.avro"
    schema = {"type": "record", "name": "r", "fields": [{"name": column, "type": kind}]}
    with path.open("wb") as file:
        fastavro.writer(file, schema, [{column: value} for value in values])
    return str(path)


class _Branch(beam.PTransform):
    def __init__(self, steps: Callable[[Any], Any]) -> None:
        super().__init__()
        self.steps = steps

    def expand(self, begin: Any) -> Any:
        return self.steps(begin)


def outputs(
    branches: Mapping[str, Callable[[Any], Any]], bundle_repeat: int = 0
) -> dict[str, list[Any]]:
    """What each branch of one pipeline gives: many cases, and one start of Beam.

    A branch gets the pipeline, in which its steps have names of their own, and returns a
    collection.
    """
    with pipeline(bundle_repeat) as p:
        for name, steps in branches.items():
            _ = p | name >> _Branch(steps) | collect(name)
    return {name: COLLECTED[name] for name in branches}


def seed_noise(patch: pytest.MonkeyPatch, seed: int = 20261129) -> list[str]:
    """Lets draws of jobs in this process have a seed each; returns a list, for their ids."""
    seeds, ids = itertools.count(seed), list[str]()

    class Drawn(Seeded):
        def __init__(self) -> None:
            super().__init__(next(seeds))

        def draw_id(self) -> str:
            ids.append(super().draw_id())
            return ids[-1]

    from beam_dp.transforms.drawing import answer_queries

    for module in (one_worker, answer_queries):
        patch.setattr(module, "NoiseSource", Drawn)
    return ids
