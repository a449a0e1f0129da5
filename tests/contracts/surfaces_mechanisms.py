"""Plans of mechanisms, theorems, and the commands that plan.

Refusals name all that this module imports or defines.
"""
# ruff: noqa: F401

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import open_domains
import pandas as pd
import pyarrow as pa
from noise_sources import NoNoise
from plan_words import KEYS, QUERIES, SHARED, TABLE, WINDOWS
from sketch_laws import batch_of, summary_of
from surfaces import PUBLIC, Program, Surface, but_for
from tiny import ADD, REPLACE, domain_of, plan_of, promise, workload_of
from window_plans import (
    HORIZON_ID,
    RECORD,
    horizon_of,
    marginals_of,
    person,
    plan_of as window_plan,
    whole,
)

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.discover import number_leaves
from beam_dp.domain.impossible import Impossible
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.mechanisms import choosing, intervals as intervals, sparse_vector as sparse_vector
from beam_dp.mechanisms.discovery.bins import plan_bins
from beam_dp.mechanisms.discovery.plan import plan_domain, plan_values
from beam_dp.mechanisms.discovery.records_per_unit import plan_records
from beam_dp.mechanisms.left_out import plan_left_out as left_out
from beam_dp.mechanisms.marginals.measurements import best_table_strategy
from beam_dp.mechanisms.marginals.plan import StartingRecords
from beam_dp.mechanisms.online.private_mw import PrivateMW
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.mechanisms.sketches.errors import KeyProfile
from beam_dp.mechanisms.small_db import size as small_sizes
from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.mechanisms.small_db.nested import NestedSampler
from beam_dp.mechanisms.sparse_vector import sparse_vector_noise as noise
from beam_dp.mechanisms.windows.plan import plan_window_databases
from beam_dp.planning.job import PlanningJob, QueryCountJob, SparsePlanningJob
from beam_dp.planning.ranking import Target
from beam_dp.planning.sketches import plan_sparse_release
from beam_dp.planning.theorems import synthesis, theorem
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.privacy.loss import Loss
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.secret.summaries.histogram import Histogram
from beam_dp.secret.summaries.sparse_counts import KeyCounts

nan, inf = math.nan, math.inf
DELTA, REPLACED, UNIT = promise(ADD, 1e-9), promise(REPLACE), promise(ADD, 1e-9, 1.0, 12)
MWEM, LIMITED, SKETCH = dp.MWEM(), dp.MWEM(max_unit_cost=3.0), dp.CountSketch()
FOUR_CELLS, PERSON, NOBODY = domain_of(4), person(1, 10), np.zeros(23, np.int64)


def planned(
    mechanism: Any,
    sizes: Sequence[int] = (3,),
    ways: int = 1,
    number: Any = 10,
    guarantee: dp.Guarantee = DELTA,
) -> Any:
    """The plan of a mechanism for marginals; everything but the mechanism is valid."""
    return plan_of(mechanism, workload_of(domain_of(*sizes), ways), guarantee, number)


def with_options(mechanism: Any = MWEM, queries: str | None = None, **options: Any) -> Any:
    """The plan of a whole release of four cells."""
    domain = domain_of(2, 2)
    workload = workload_of(domain, 1) if queries is None else parse_linear_workload(queries, domain)
    number = options.pop("num_records", 10)
    given = ReleaseOptions(num_records=number, **options)
    return plan_release(mechanism, domain, workload, promise(ADD), given)


def impossible(mechanism: Any, ways: int) -> Any:
    """A plan of impossible combinations that no tree holds."""
    first = ((0, 1),)
    pairs = itertools.combinations(range(15), 2)
    rules = tuple(Impossible(pair, (first, first)) for pair in pairs)
    domain = dataclasses.replace(domain_of(*[30] * 15), impossible=rules)
    return plan_of(mechanism, workload_of(domain, ways), promise(ADD, 1e-9), 10)


def unit_cost(mechanism: Any = LIMITED, **changed: Any) -> Any:
    """A plan with a limit on what a unit costs."""
    sizes, number = changed.pop("sizes", (2, 2)), changed.pop("number", "noisy")
    return planned(mechanism, sizes, 2, number, dataclasses.replace(UNIT, **changed))


HALVES = dp.Domain((NumericAttribute("x", (0, 1, 2)),))


def sums(mechanism: Any = MWEM, domain: dp.Domain = HALVES, **few: Any) -> Any:
    """A plan that must measure sums within bins."""
    options = ReleaseOptions(bin_sums=True, num_records=few.pop("number", "noisy"))
    promised = dataclasses.replace(UNIT, **few)
    return plan_release(mechanism, domain, workload_of(domain, 1), promised, options)


def small_db(spec: str = "prefixes:a0", sizes: Sequence[int] = (4,), number: Any = 5, **given: Any):
    """The plan of a small database of three records."""
    guarantee, named = given.pop("guarantee", promise(ADD)), {"size": 3, **given}
    domain = domain_of(*sizes)
    return dp.SmallDB(**named).plan(domain, parse_linear_workload(spec, domain), guarantee, number)


FOUR = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]])


multisets = but_for(MultisetChoice, queries=FOUR, epsilon=1.0, num_records=5, size=4)


def prefixes(num_cells: int) -> Any:
    return np.tri(num_cells, dtype=np.int64)[:-1]


def sketch(mechanism: Any = SKETCH, guarantee: Any = DELTA, **named: Any):
    """The plan of a sketch."""
    return mechanism.plan(guarantee, **{"max_sparsity": 100, **named})


def asked(support: Any, values: Any) -> Any:
    """What an empty sketch answers to a query."""
    plan = sketch(dp.CountSketch(300, 3))
    empty = summary_of(plan, batch_of([]))
    return dp.release_sparse(plan, empty, NoNoise()).answer(support, values)


def online(guarantee: Any = REPLACED, number: Any = 100, **named: Any) -> Any:
    """The plan of an online run over four cells."""
    return dp.plan_private_mw(domain_of(4), guarantee, number, **{"num_questions": 10, **named})


def sparse(guarantee: Any = REPLACED, number: Any = 100, **named: Any) -> Any:
    """The plan of a sparse online run."""
    return dp.plan_sparse_mw(guarantee, number, **{"max_sparsity": 4, "num_questions": 10, **named})


def run(plan: Any, domain: Any = FOUR_CELLS, **named: Any) -> PrivateMW:
    counts = np.zeros(domain.num_cells, np.int64)
    return PrivateMW(plan, Histogram(domain, counts), NoNoise(), **named)


def windows(unit: Any = PERSON, **options: Any) -> Any:
    """The plan of ten windows."""
    return window_plan(options.pop("num_windows", 10), unit, **options)


def drawn(number: Any, horizon_id: str = HORIZON_ID, blocks: bool = False) -> Any:
    """What a window of ten, or a block of four windows, draws."""
    plan = windows(RECORD, strategy="levels", block=4)
    draw = plan.draw_block if blocks else plan.draw
    return draw(number, marginals_of(plan, 1), NoNoise(), horizon_id)


def databases(mechanism: Any, unit: Any, number: int = 168, delta: float = 0.0) -> Any:
    workload = workload_of(domain_of(3, 2, 2), 2)
    return plan_window_databases(mechanism, workload, horizon_of(number), unit, 1.0, delta)


def released(counts: Any = NOBODY) -> Any:
    """A release of 23 cells, without noise."""
    plan = intervals.plan_intervals(23, promise(ADD, 1e-9))
    return intervals.release_intervals(plan, counts, NoNoise())


PAIRS = parse_linear_workload("conjunctions:2", domain_of(4, 2, 3))


answers = but_for(
    dp.plan_workload_answers, workload=PAIRS, guarantee=promise(ADD), num_records="noisy"
)
top = but_for(dp.plan_top_queries, PAIRS, guarantee=promise(ADD), num_records=9, top=2)


def open_domain(**changed: Any) -> Any:
    """The plan for a domain of discovered texts and bins."""
    guarantee = open_domains.guarantee(changed.pop("epsilon", 1.0), changed.pop("delta", 1e-9))
    entries = [open_domains.CITY_TYPE] if changed.pop("untyped", False) else []
    return plan_domain(open_domains.open_domain(*entries), guarantee, **changed)


def bins(num_bins: int = 9, **loss: float) -> Any:
    """The plan of bins of incomes."""
    income = NumericAttribute("income", tuple(number_leaves(0, 1e7)), clip=True)
    return plan_bins(income, num_bins, Neighboring.ADD_OR_REMOVE_ONE, **loss)


def values(mu: float = 0.1, slack: float = 1e-10, most: int = 500, delta: float = 1e-9) -> Any:
    """The plan of the texts of a column."""
    return plan_values("city", dp.Guarantee(1.0, delta, ADD, "record", 1), mu, slack, most)


def records(noise: float = 9.0, most: int = 9, epsilon: float = 1.0, unit: str = "person") -> Any:
    """The plan that chooses how many records of a unit count."""
    whole_promise = dp.Guarantee(epsilon, 1e-9, ADD, unit, most)
    return plan_records(domain_of(3, 5), whole_promise, noise)


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns)


job = but_for(
    PlanningJob,
    workload=workload_of(domain_of(8, 4, 2), 2),
    guarantee=promise(delta=1e-9),
    num_records=10_000,
    num_records_is_public=True,
)
counted = but_for(
    dataclasses.replace,
    QueryCountJob(promise(REPLACE), 10**6, True, 10**5, num_cells=64, max_sparsity=3),
)
# How many queries the small database of 1,024 cells allows.
query_counts = but_for(
    theorem.queries_allowed,
    lambda count: synthesis.small_db_theorem(1024, count, 1.0, 0.05),
    10,
    target_error=1.0,
    failure_probability=0.05,
)


def program(valid: Mapping[str, str | None]) -> Program:
    """`beam-dp plan` with valid flags; a flag without a value is a switch."""

    def words(argv: Sequence[str]) -> list[str]:
        return ["plan", *(each.removesuffix("=true") for each in argv)]

    def flags(folder: pathlib.Path) -> Mapping[str, str | None]:
        return {**SHARED, **valid}

    return Program(lambda argv: main(words(argv)), flags, words)


EVERYTHING: dict[str, Any] = {
    **globals(),
    **PUBLIC,
    "draw": dp.draw_workload_answers,
    "bits": np.arange(256)[None, :] >> np.arange(8)[:, None] & 1,
    "best": but_for(
        plan_sparse_release,
        promise(ADD, 1e-9),
        KeyProfile(20_000, 2_000, 10),
        max_sparsity=4096,
        max_size=2**16,
    ),
    "plain": noise(promise(), 2, answers=False),
    "numeric": noise(promise(), 2, answers=True),
}
# Surfaces, and the modules whose names come first there.
PLACES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("marginals", "sketches", "online runs", "windows", "discovery"), ()),
    "small databases": (small_sizes,),
    "sparse vector": (sparse_vector,),
    "intervals": (intervals,),
    "answers": (choosing,),
    "theorems": (theorem, synthesis),
}
SURFACES: dict[str, Surface] = {
    "plan of tables": program({**TABLE, "epsilon": "1"}),
    "plan of query counts": program(QUERIES),
    "plan of windows": program({**WINDOWS, "epsilon": "1"}),
    "plan of keys": program({**KEYS, "epsilon": "1"}),
    **{
        name: dict(collections.ChainMap(*map(vars, modules), EVERYTHING))
        for name, modules in PLACES.items()
    },
}
