"""One small valid use of every mechanism: a plan for any guarantee, and a run of it.

Exact data are the counts of six cells, for every mechanism; ``Case.run`` makes of them what the
mechanism reads.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from open_domains import CITY, CITY_TYPE, INCOME, open_domain
from sketch_laws import seeded_key
from tiny import (
    ADD,
    REPLACE,
    WithPublicRecords,
    domain_of,
    exact_table,
    on_trees,
    summary,
    with_triples,
    workload_of,
)
from window_plans import HORIZON_ID, horizon_of, person, plan_of as plan_windows

import beam_dp as dp
from beam_dp.hashing.keys import universe_elements
from beam_dp.mechanisms.bin_sums import with_bin_sums
from beam_dp.mechanisms.discovery.records_per_unit import plan_records
from beam_dp.mechanisms.intervals import (
    GAUSSIAN,
    PURE,
    calibrated,
    planned,
    release_intervals,
)
from beam_dp.mechanisms.left_out import LEFT_OUT_SHARE, plan_left_out
from beam_dp.mechanisms.marginals import plan as plan_module
from beam_dp.mechanisms.sketches.plan import SparseSummary
from beam_dp.models.intervals.hierarchy import tree
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.reader import LinearQueries
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.kinds import release_to_bytes
from beam_dp.releases.synthetic_database.bin_sums import GRID as GRID_OF_BINS, BinSums
from beam_dp.secret.encoding.open_values import GRID
from beam_dp.secret.summaries.histogram import Histogram, Marginals
from beam_dp.secret.summaries.projection import Projection
from beam_dp.secret.summaries.sparse_counts import ElementCounts, KeyCounts, ValueCounts

DOMAIN, CUBE = domain_of(3, 2), domain_of(3, 2, 2)
COUNTS = np.array([40, 3, 7, 11, 25, 14])
KEYS = universe_elements([*"abcdef"], seeded_key(0))
Counts = NDArray[np.int64]
Run = Callable[[Any, Counts, NoiseSource], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A mechanism at work.

    ``entries``: the entries of the registry that it stands for, as table and name.
    ``run``: the release of a plan and exact counts.
    ``face``: what of a release may depend on noisy values alone.
    ``least``: the least share of epsilon that the plan spends.
    ``least_on_data``: the least that some neighbours see; None if the draws do not show it.
    ``priced``: the part of a plan that states steps and their loss; None if it has none.
    ``errors``: what a release answers wrongly of some counts, in records; None if it must not be
        exact for a huge epsilon.
    """

    plan: Callable[[dp.Guarantee], Any]
    run: Run
    entries: tuple[tuple[str, str], ...] = ()
    deltas: tuple[float, ...] = (0.0, 1e-9)
    relations: tuple[str, ...] = (ADD, REPLACE)
    face: Callable[[Any], Any] = release_to_bytes
    least: float = 0.999
    least_on_data: float | None = 0.999
    priced: Callable[[Any], Any] | None = lambda plan: plan
    errors: Callable[[Any, Counts], Any] | None = None
    around: Callable[[], AbstractContextManager[object]] = nullcontext


def number_of(guarantee: dp.Guarantee) -> Any:
    return "noisy" if guarantee.neighboring == ADD else 100


def away(release: Any, counts: Counts) -> NDArray[np.float64]:
    """How far the marginals of a synthetic database are from the truth."""
    return np.concatenate(
        [
            (each.values - exact_table(DOMAIN, counts, each.attributes)).ravel()
            for each in release.answer(release.workload)
        ]
    )


def synthetic(name: str, mechanism: Any, ways: int = 1, number: Any = None, **named: Any) -> Case:
    def plan(guarantee: dp.Guarantee) -> Any:
        size = number_of(guarantee) if number is None else number
        return mechanism.plan(DOMAIN, workload_of(DOMAIN, ways), guarantee, size)

    given: dict[str, Any] = {"errors": away, **named}
    return Case(plan, draw_tables, (("SYNTHETIC", name),), **given)


def draw_tables(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
    return plan.release(summary(plan, counts), noise)


@contextmanager
def over_candidates() -> Iterator[None]:
    """Lets tiny domains take the path of those that fit neither an array nor a tree."""
    # Where noise is far larger than counts, a product of two tiny shares underflows.
    with pytest.MonkeyPatch.context() as patch, np.errstate(divide="ignore"):
        patch.setattr(plan_module, "MAX_ARRAY_CELLS", 0)
        patch.setattr(plan_module, "MAX_CANDIDATE_TREE", 0)
        patch.setattr(plan_module, "MAX_CANDIDATES", 2**12)
        yield


def records_apart(release: Any) -> Any:
    """All but the records, which are drawn by coins and not by noise that a script may replace."""
    return release.num_records, release.plan, release.noise, release.errors


def sketch(name: str, mechanism: Any, **named: Any) -> Case:
    def plan(guarantee: dp.Guarantee) -> Any:
        return mechanism.plan(guarantee, max_sparsity=6, hash_key=seeded_key(0))

    def wrong(release: Any, counts: Counts) -> Any:
        return release.estimates(KEYS) - counts

    face = named.pop("face", release_to_bytes)
    return Case(plan, draw_sketch, (("SKETCHES", name),), face=face, **{"errors": wrong, **named})


def draw_sketch(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
    held = counts > 0
    order = np.argsort(KEYS[held])
    elements, numbers = KEYS[held][order], counts[held][order]
    sums = None
    if plan.sketch is not None:
        sums = Projection(plan.sketch.signs(plan.hash_key).project(elements, numbers))
    listed = ElementCounts(elements, numbers) if plan.histogram is not None else None
    return dp.release_sparse(plan, SparseSummary(sums, listed), noise)


def stop_apart(release: Any) -> Any:
    """All but what follows from the comparisons that stop a run."""
    return release.num_records, {**release.plan, "num_updates": None}


def keys_apart(release: Any) -> Any:
    """All but the cells and the keys, which the noisy counts select."""
    return (
        release.hash_key,
        release.plan,
        None if release.sketch is None else len(release.sketch.cells),
    )


def intervals(choice: tuple[str, str], strategy: Any = None) -> Case:
    """The planned strategy for six leaves, or a given one: the best tree is their histogram."""

    def run(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
        return release_intervals(plan, counts, noise)

    def wrong(release: Any, counts: Counts) -> Any:
        return release.prefixes()[1:] - np.cumsum(counts)

    # Under replace-one a textbook's tree measures no root, and one of two moved leaves may be it.
    is_pure = choice in PURE
    return Case(
        lambda guarantee: (
            planned(6, guarantee, choice)  # type: ignore[arg-type]
            if strategy is None
            else calibrated(strategy, guarantee, choice)  # type: ignore[arg-type]
        ),
        run,
        deltas=(0.0, 1e-9) if is_pure else (1e-9,),
        errors=wrong,
        least_on_data=0.999 if is_pure else 0.9,
    )


def answers_of(plan: Any, number: Any, rows: list[dict[str, Any]], noise: NoiseSource) -> Any:
    return AnswersRelease(
        draw_id=noise.draw_id(), guarantee=plan.guarantee, rows=rows, stated=plan.card(number)
    )


def row(query: Any, value: float, plan: Any, **changed: Any) -> dict[str, Any]:
    row = {"id": None, "query": json.dumps(query.to_json()), "value": value, "route": "measured"}
    row |= {"standard_error": plan.standard_error, "bound": plan.bound()}
    return {**row, **dict.fromkeys(("updates_left", "questions_left", "error")), **changed}


WORKLOAD = dp.parse_linear_workload("marginals:1", DOMAIN)
LITERALS = dp.parse_linear_workload("conjunctions:1", DOMAIN)
SHARES = LinearQueries(DOMAIN).explicit([0.5, 0.25, 0.0, 1.0, 0.125, 0.75])
WORKLOADS = {
    "": WORKLOAD,
    " to literals": LITERALS,
    " to shares": dp.LinearWorkload(DOMAIN, (*LITERALS.queries, SHARES)),
    " to disjunctions": dp.parse_linear_workload("disjunctions:2", DOMAIN),
}


def linear(plan: Callable[..., Any], name: str, workload: Any = WORKLOAD, **named: Any) -> Case:
    def run(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
        found = plan.answered(counts, noise)
        rows = [row(workload.queries[place], value, plan) for place, value in found.items()]
        public = None if plan.num_records == "noisy" else plan.num_records
        return answers_of(plan, public, rows, noise)

    def wrong(release: Any, counts: Counts) -> Any:
        exact = {json.dumps(each.to_json()): each.count(counts) / 2**16 for each in workload}
        return [each["value"] - exact[each["query"]] for each in release.rows]

    return Case(
        lambda guarantee: plan(workload, guarantee, number_of(guarantee)),
        run, (("ANSWERS", name),), errors=wrong, **named,
    )  # fmt: skip


def every_answer(kind: str, workload: Any, **named: Any) -> Case:
    plan = functools.partial(dp.plan_workload_answers, distribution=f"discrete_{kind}")
    return linear(plan, kind, workload, **named)


def told(run: Any, noise: NoiseSource, number: Any, queries: Any) -> Any:
    """What an online run answers, and its card."""
    answers = [run.answer(query) for query in queries]
    release = answers_of(run.plan, number, [], noise)
    return release, [each.value for each in answers]


def private_mw(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
    run = dp.PrivateMW(plan, Histogram(DOMAIN, counts), noise)
    queries = dp.parse_linear_workload("marginals:2", DOMAIN).queries
    return told(run, noise, run.settings.total, queries)


def sparse_mw(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
    held = {key: number for key, number in zip("abcdef", counts.tolist(), strict=True) if number}
    run = dp.SparseMW(plan, KeyCounts(held), noise)
    return told(run, noise, run.settings.total, [dp.SparseQuery({key: 1.0}) for key in "abcdef"])


def online(name: str, run: Run, plan: Callable[..., Any]) -> Case:
    """Of runs only the plan's part is fixed: comparisons decide everything else."""
    return Case(
        lambda guarantee: plan(guarantee, number_of(guarantee), num_questions=6),
        run,
        (("ANSWERS", name),),
        face=lambda pair: (pair[0].guarantee, pair[0].card["plan"]),
        least=0.98,
        least_on_data=None,
    )


def window(deltas: tuple[float, ...] = (0.0, 1e-9), mechanism: Any = None, **options: Any) -> Case:
    """The first window of four: a unit counts in two of these, so one shows half of the loss."""

    def plan(guarantee: dp.Guarantee) -> Any:
        unit = person(2, 4, guarantee.max_records_per_unit)
        limits = unit, guarantee.epsilon, guarantee.delta
        workload, large = workload_of(DOMAIN, 1), {"allow_large_delta": True}
        if mechanism is None:
            return plan_windows(4, limits[0], workload, *limits[1:], **large, **options)
        return dp.plan_window_databases(mechanism, workload, horizon_of(4), *limits, **large)

    def run(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
        held = Histogram(DOMAIN, counts).marginals(plan.summary_tables)
        return plan.draw(0, held, noise, HORIZON_ID)

    def wrong(release: Any, counts: Counts) -> Any:
        if mechanism is not None:
            return away(release, counts)
        pairs = release.tables.items()
        return np.concatenate(
            [(found - exact_table(DOMAIN, counts, names)).ravel() for names, found in pairs]
        )

    least = 0.999 if mechanism is None else 0.9
    return Case(plan, run, (), deltas, (ADD,), errors=wrong, least=least, least_on_data=None)


def draw_domain(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
    """Texts for the first three cells, and incomes for the others."""
    leaves = np.zeros(plan.columns.leaves[0].num_levels, np.int64)
    leaves[[0, 20, 40]] = counts[3:] * GRID
    texts = pa.array([b"a", b"b", b"c"], pa.large_binary())
    held = ValueCounts({"city": (texts, counts[:3] * GRID)}, {"income": leaves})
    return plan.release(held, noise)


def draw_types(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
    """Votes of six readings."""
    return plan.release(ValueCounts({}, {"city": counts * GRID}), noise)


def draw_records(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
    return plan.release(counts, noise)


def plan_of_records(guarantee: dp.Guarantee) -> Any:
    unit = {"privacy_unit": "person", "max_records_per_unit": 6}
    whole = dataclasses.replace(guarantee, **unit, allow_large_delta=True)
    return plan_records(DOMAIN, whole, 9.0)


def plan_of_left_out(guarantee: dp.Guarantee) -> Any:
    """Of a whole promise, of which the counts have the given one."""
    most = min(guarantee.epsilon / LEFT_OUT_SHARE, 1e6)
    whole = dataclasses.replace(guarantee, epsilon=most)
    main, _ = Budget.of(whole, "pure").split(LEFT_OUT_SHARE)
    return plan_left_out(domain_of(2, 2, 2, 2, 2, 2), whole, Loss.pure(main.epsilon))


ENDS = dp.Domain((dp.NumericAttribute("x", (0, 1, 3, 4), clip=True),))


def plan_with_sums(guarantee: dp.Guarantee) -> Any:
    workload, number = workload_of(ENDS, 1), number_of(guarantee)
    plan = with_bin_sums(lambda g: dp.MWEM().plan(ENDS, workload, g, number), ENDS, guarantee)
    if plan.bin_sums is None:
        raise dp.InputError("epsilon", guarantee.epsilon, "is too small for sums")
    return plan


def draw_sums(plan: Any, counts: Counts, noise: NoiseSource) -> Any:
    """Records at either end of three bins."""
    low, high = counts.reshape(3, 2).T
    exact = Marginals(ENDS, {("x",): low + high, (): np.array((low + high).sum())})
    sums = dataclasses.replace(exact, bin_sums=(high - low) * (GRID_OF_BINS // 2))
    release = plan.release(exact, noise)
    noisy = plan.bin_sums.draw(sums, noise), plan.bin_sums.variance**0.5
    return release and dataclasses.replace(release, bin_sums=BinSums(plan.bin_sums, *noisy))


def sums_away(release: Any, counts: Counts) -> NDArray[np.float64]:
    low, high = counts.reshape(3, 2).T
    return np.asarray(release.bin_sums.sums - (high - low) / 2)


ALL = 100  # a number of records that is public
COINS: dict[str, Any] = {"least_on_data": None, "face": records_apart, "errors": None}
CASES: dict[str, Case] = {
    "mwem": synthetic("mwem", dp.MWEM()),
    "mwem, pairs": synthetic("mwem", dp.MWEM(), 2),
    "mwem in rounds": synthetic("mwem", dp.MWEM(num_rounds=2), 2, least_on_data=0.85),
    "mwem annealed": synthetic("mwem", dp.MWEM(num_rounds="annealed"), 2, least_on_data=0.85),
    "mwem textbook": synthetic(
        "mwem", dp.MWEM(2, "textbook"), 1, ALL, errors=None, least=0.5, least_on_data=0.5
    ),
    "mwem that stops": synthetic(
        "mwem",
        dp.MWEM(3, "textbook", stop_below=0.2),
        1,
        ALL,
        errors=None,
        least=0.5,
        least_on_data=None,
        face=stop_apart,
    ),
    "mwem that selects": synthetic(
        "mwem",
        dp.MWEM(),
        2,
        deltas=(1e-9,),
        around=lambda: on_trees(6),
        least_on_data=0.7,
    ),
    "mwem in rounds over a tree": synthetic(
        "mwem", dp.MWEM(num_rounds=2), 2, around=lambda: on_trees(6), least_on_data=0.85
    ),
    "mwem annealed over a tree": synthetic(
        "mwem", dp.MWEM(num_rounds="annealed"), 2, around=lambda: on_trees(6), least_on_data=0.85
    ),
    "mwem with public records": synthetic(
        "mwem",
        WithPublicRecords(),
        2,
        deltas=(1e-9,),
        around=lambda: on_trees(6),
        least_on_data=0.7,
    ),
    "mwem over candidates": synthetic("mwem", dp.MWEM(), 2, around=over_candidates),
    "laplace": synthetic("laplace", dp.Laplace()),
    "laplace textbook": synthetic("laplace", dp.Laplace("textbook")),
    "gaussian": synthetic("gaussian", dp.Gaussian(), deltas=(1e-9,)),
    "gaussian textbook": synthetic(
        "gaussian", dp.Gaussian("textbook"), deltas=(1e-9,), least=0.7, least_on_data=0.7
    ),
    "gaussian, a triple": Case(
        lambda promised: dp.Gaussian().plan(
            CUBE, workload_of(CUBE, 2), promised, number_of(promised)
        ),
        # The third code follows from the first two.
        lambda plan, counts, noise: draw_tables(
            plan, np.where(np.arange(12) // 2 % 2 == np.arange(12) % 2, counts.repeat(2), 0), noise
        ),
        deltas=(1e-9,),
        around=with_triples,
    ),
    "small_db": synthetic("small_db", dp.SmallDB(size=3), **COINS),
    "sparse_project": sketch(
        "sparse_project", dp.SparseProject(64), deltas=(1e-9,), errors=None, least_on_data=0.7
    ),
    "count_sketch": sketch("count_sketch", dp.CountSketch(33, 3)),
    "count_sketch gaussian": sketch(
        "count_sketch",
        dp.CountSketch(33, 3, noise="gaussian"),
        deltas=(1e-9,),
        least_on_data=0.7,
    ),
    "stability_histogram": sketch(
        "stability_histogram",
        dp.StabilityHistogram(),
        deltas=(1e-9,),
        face=keys_apart,
        least_on_data=None,
    ),
    "hybrid": sketch(
        "hybrid", dp.HybridSketch(33, 3), deltas=(1e-9,), face=keys_apart, least_on_data=None
    ),
    **{f"intervals {' '.join(choice)}": intervals(choice) for choice in (*PURE, *GAUSSIAN)},
    "intervals in a tree of two levels": intervals(("tree", "discrete_laplace"), tree((2, 6))),
    **{f"laplace answers{name}": every_answer("laplace", each) for name, each in WORKLOADS.items()},
    **{
        f"gaussian answers{name}": every_answer("gaussian", each, deltas=(1e-9,))
        for name, each in WORKLOADS.items()
    },
    "top_queries": linear(
        lambda *given: dp.plan_top_queries(*given, 3, "permute_and_flip"),
        "top_queries",
        least_on_data=0.5,
    ),
    "private_mw": online(
        "private_mw",
        private_mw,
        lambda *given, **named: dp.plan_private_mw(DOMAIN, *given, **named),
    ),
    "sparse_mw": online(
        "sparse_mw",
        sparse_mw,
        lambda *given, **named: dp.plan_sparse_mw(*given, max_sparsity=1, **named),
    ),
    "windows laplace": window(distribution="discrete_laplace"),
    "windows gaussian": window((1e-9,), distribution="discrete_gaussian"),
    "windows and blocks": window(strategy="levels", block=2),
    "windows by mwem": window(mechanism=dp.MWEM()),
    "windows by laplace": window(mechanism=dp.Laplace()),
    "windows by rounds": window(mechanism=dp.MWEM(num_rounds=2)),
    "discovery": Case(
        lambda g: dp.plan_domain(open_domain(CITY, INCOME), g),
        draw_domain,
        deltas=(1e-9,),
        least_on_data=None,
        face=lambda release: (release.guarantee, release.noise, release.plan),
    ),
    "types": Case(
        lambda g: dp.plan_domain(open_domain(CITY_TYPE), g),
        draw_types,
        deltas=(1e-9,),
        least_on_data=None,
        errors=lambda release, counts: release.found[0].counts - counts,
        face=lambda release: (release.guarantee, release.noise, release.plan),
    ),
    "records per unit": Case(
        plan_of_records,
        draw_records,
        errors=lambda release, counts: release.histogram() - counts,
        least_on_data=None,
    ),
    "bin sums": Case(
        plan_with_sums,
        draw_sums,
        errors=sums_away,
        least=0.99,
        least_on_data=0.98,  # no pair of neighbours moves the table and all of a sum
    ),
    "left out": Case(
        plan_of_left_out,
        draw_records,
        priced=None,
        face=lambda counts: json.dumps(counts.to_json()),
        errors=lambda found, counts: np.array([*found.counts.values()]) - counts,
        least_on_data=0.999,
    ),
}
