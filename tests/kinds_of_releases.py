"""One genuine release of every kind and mechanism, small enough to make many of them."""

import dataclasses
import functools
import json
import tempfile
import zlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from noise_sources import Seeded
from tiny import on_trees
from written_draws import draw_of

import beam_dp as dp
from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.discovery.records_per_unit import plan_records
from beam_dp.mechanisms.intervals import plan_intervals, release_intervals
from beam_dp.mechanisms.left_out import LEFT_OUT_SHARE, plan_left_out, with_left_out
from beam_dp.mechanisms.linear_answers import LinearAnswersPlan
from beam_dp.mechanisms.marginals import (
    public_prior as prior_module,
    scores as scores_module,
    selection as selection_module,
)
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, StartingRecords
from beam_dp.mechanisms.marginals.selection import plan_selection
from beam_dp.mechanisms.registry import ReleaseOptions, draw_database, plan_release
from beam_dp.mechanisms.sketches.plan import SparseSummary
from beam_dp.privacy.budget import Budget
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.domain.earlier import RECORDS_FOLDER, records_of
from beam_dp.releases.domain.release import TYPES_FOLDER
from beam_dp.releases.files.commit import Draw
from beam_dp.releases.release import Release
from beam_dp.secret.summaries.histogram import Histogram
from beam_dp.secret.summaries.projection import Projection
from beam_dp.secret.summaries.sparse_counts import ElementCounts, ValueCounts

DOMAIN: dp.Domain = dp.read_domain('{"a": 2, "b": 3, "c": 4}')
# Also 24 cells, of columns whose values are drawn within bins.
BINS: dp.Domain = dp.read_domain(
    """{"attributes": [
      {"name": "sex", "type": "categorical", "values": ["f"], "other": true},
      {"name": "day", "type": "date", "edges": ["2000-01-01", "2001-01-01", "2009-01-01"],
       "nullable": true},
      {"name": "size", "type": "numeric", "edges": [0, 0.5, 2, 8], "clip": true, "other": true}
    ]}"""
)
COUNTS = np.arange(24, dtype=np.int64) % 7 * 5
WEIGHTED = dp.Workload(
    DOMAIN,
    tuple((name,) for name in DOMAIN.names),
    tuple(1000.0**n for n in range(len(DOMAIN.names))),
)
NOISE = Seeded(1)


def guarantee(
    delta: float = 1e-9, relation: str = "add_or_remove_one", records: int = 2, epsilon: float = 1.0
) -> dp.Guarantee:
    return dp.Guarantee(epsilon, delta, relation, "person_id", records)


def number_of(promise: dp.Guarantee) -> Any:
    return "noisy" if promise.neighboring == "add_or_remove_one" else int(COUNTS.sum())


def drawn(plan: MarginalsPlan) -> Release:
    marginals = Histogram(plan.domain, COUNTS).marginals(plan.summary_tables)
    release = plan.release(marginals, NOISE)
    if plan.left_out is None:
        return release
    counts = np.arange(plan.left_out.num_counts, dtype=np.int64)
    return with_left_out(release, plan.left_out, counts, NOISE)


def synthetic(
    mechanism: Any, promise: dp.Guarantee, left_out: bool = False, **options: Any
) -> Release:
    workload = options.get("workload", dp.marginals(DOMAIN, ways=2))
    number = options.get("num_records", number_of(promise))
    return drawn(
        plan_release(
            mechanism,
            DOMAIN,
            workload,
            promise,
            ReleaseOptions(
                num_records=number,
                count_left_out=left_out,
                num_synthetic_records=options.get("rows"),
            ),
        )
    )


def binned(promise: dp.Guarantee) -> Release:
    """A release in CSV with values drawn within bins."""
    options = ReleaseOptions(num_records=number_of(promise), records_format="csv")
    plan = plan_release(dp.Gaussian(), BINS, dp.marginals(BINS, ways=2), promise, options)
    marginals = Histogram(BINS, COUNTS).marginals(plan.summary_tables)
    return draw_database(plan, marginals, NOISE)


def selected(promise: dp.Guarantee, num_joined: int = 3, num_loose: int = 0) -> Release:
    """A selection whose scores chose all three pairs, or some of them."""

    def choose(domain: Any, expected: Any, *others: Any) -> Any:
        pairs = [*expected.distances]
        return pairs[:num_joined], pairs[num_joined : num_joined + num_loose]

    with on_trees(), mock.patch.object(selection_module, "choose_pairs", choose):
        return drawn(plan_selection(dp.marginals(DOMAIN, ways=2), promise, number_of(promise)))


def with_public_records(promise: dp.Guarantee) -> Release:
    """A selection that uses public records, which are the same as the data."""
    held = np.flatnonzero(COUNTS)
    records = StartingRecords(DOMAIN, "public records", DOMAIN.codes(held), COUNTS[held])
    with on_trees():
        plan = plan_selection(dp.marginals(DOMAIN, ways=2), promise, number_of(promise))
        with mock.patch.object(prior_module, "error_with", lambda *arguments: -1e9):
            return drawn(plan.starting_from(records))


def checked(promise: dp.Guarantee) -> Release:
    """A selection whose scores chose one pair of three, and whose last check chose one by noise."""
    checks = scores_module.CHECKS
    with mock.patch.dict(checks, {2: dataclasses.replace(checks[2], most_by_scores=0)}):
        return selected(promise, num_joined=1)


def intervals(
    strategy: str, promise: dp.Guarantee, cells: int = 33, left_out: bool = False
) -> Release:
    main, _ = Budget.of(promise, "pure").split(LEFT_OUT_SHARE if left_out else 0)
    plan = plan_intervals(cells, main, strategy)
    counts = np.arange(cells, dtype=np.int64)
    release = release_intervals(plan, counts, NOISE)
    if not left_out:
        return release
    beside = plan_left_out(dp.Domain((release.attribute,)), promise, plan.loss)
    return with_left_out(release, beside, np.array([3], np.int64), NOISE)


def sketch(mechanism: Any, promise: dp.Guarantee) -> Release:
    key = HashKey.draw(mechanism.independence)
    plan = mechanism.plan(promise, max_sparsity=8, max_weight=3, hash_key=key)
    elements = np.arange(1, 40, dtype=np.uint64)
    counts = np.full(39, 900, np.int64)
    projection = None
    if plan.sketch is not None:
        sums = plan.sketch.signs(key).project(elements, counts)
        projection = Projection(sums)
    held = ElementCounts(elements, counts) if plan.histogram is not None else None
    return dp.release_sparse(plan, SparseSummary(projection, held), NOISE)


def linear_answers(promise: dp.Guarantee, spec: str = "conjunctions:1", **options: Any) -> Release:
    workload = dp.LinearWorkload(
        DOMAIN, tuple(dict.fromkeys(dp.parse_linear_workload(spec, DOMAIN).queries))
    )
    plan: LinearAnswersPlan
    if "top" in options:
        plan = dp.plan_top_queries(workload, promise, number_of(promise), **options)
    else:
        plan = dp.plan_workload_answers(workload, promise, number_of(promise), **options)
    rows = [
        {
            "id": None,
            "query": json.dumps(workload.queries[place].to_json()),
            "value": value,
            "standard_error": plan.standard_error,
            "bound": plan.bound(),
            "route": "measured",
            "updates_left": None,
            "questions_left": None,
            "error": None,
        }
        for place, value in plan.answered(COUNTS, NOISE).items()
    ]
    public = None if plan.num_records == "noisy" else plan.num_records
    return answers_of(plan, public, rows)


def answers_of(plan: Any, number: int | None, rows: list[dict[str, Any]]) -> Release:
    return AnswersRelease(
        draw_id=NOISE.draw_id(), guarantee=plan.guarantee, rows=rows, stated=plan.card(number)
    )


def private_mw(promise: dp.Guarantee, **options: Any) -> Release:
    plan = dp.plan_private_mw(DOMAIN, promise, number_of(promise), num_questions=10, **options)
    run = dp.PrivateMW(plan, Histogram(DOMAIN, COUNTS), NOISE)
    return answers_of(plan, run.settings.total, [])


def sparse_mw(promise: dp.Guarantee, **options: Any) -> Release:
    plan = dp.plan_sparse_mw(
        promise, number_of(promise), max_sparsity=4, num_questions=10, **options
    )
    return answers_of(plan, 300 if plan.num_records == "noisy" else plan.num_records, [])


OPEN: list[dict[str, Any]] = [
    {"name": "adult", "type": "boolean"},
    {"name": "age", "type": "numeric", "whole": True, "discover": {"bins": 3, "min": 0, "max": 99}},
    {
        "name": "city",
        "type": "categorical",
        "discover": {"max_values": 3, "include": ["Atlantis"]},
    },
]


def found_types(promise: dp.Guarantee) -> dp.DomainRelease:
    """The types of two columns: a whole number and text."""
    entries = [{"name": each["name"], "type": "discover"} for each in OPEN[1:]]
    domain = dp.read_open_domain({"attributes": [OPEN[0], *entries]})
    assert isinstance(domain, dp.OpenDomain)
    plan = dp.plan_domain(domain, promise)
    votes = np.array([[90, 0, 1, 0, 0, 1], [3, 0, 2, 0, 0, 70]], np.int64) * 100 * 2**20
    return plan.release(ValueCounts({}, dict(zip(("age", "city"), votes, strict=True))), NOISE)


def found_domain(
    promise: dp.Guarantee, *, later_is_pure: bool = False, types: dp.DomainRelease | None = None
) -> dp.DomainRelease:
    """The values and bins of a domain; with delta 0, only bins."""
    domain = dp.read_open_domain({"attributes": OPEN[: 2 + (promise.delta > 0)]})
    voted = None
    if types is not None:
        domain, voted = types.result, types.discovered
    assert isinstance(domain, dp.OpenDomain)
    plan = dp.plan_domain(domain, promise, later_is_pure=later_is_pure, types=voted)
    leaves = plan.columns.leaves[0].num_levels
    counts = np.arange(leaves, dtype=np.int64) % 7 * 100 * 2**20
    texts = pa.array([b"Bonn", b"Oslo", b"Rome", b"Ulm"], pa.large_binary())
    sums = np.array([9, 8, 7, 0], np.int64) * 1000 * 2**20
    return plan.release(ValueCounts({"city": (texts, sums)}, {"age": counts}), NOISE)


def domain_after_types(promise: dp.Guarantee) -> dp.DomainRelease:
    """A domain with the release of its types in its folder."""
    directory, types = tempfile.mkdtemp(dir=EARLIER.name), found_types(promise)
    dp.write_release(types, f"{directory}/{TYPES_FOLDER}")
    release = found_domain(promise, types=types)
    object.__setattr__(release, "directory", directory)
    return release


def counted_units(promise: dp.Guarantee, most: int = 3) -> dp.IntervalRelease:
    """The noisy counts of units that choose two records of each unit, of at most three."""
    plan = plan_records(None, dataclasses.replace(promise, max_records_per_unit=most), 4000.0)
    assert plan.attribute is not None
    return plan.release(np.array([3000, 9000, 30]), NOISE)


# The releases that others were planned with, below their folders.
EARLIER = tempfile.TemporaryDirectory()


def after(
    promise: dp.Guarantee, *, domain: bool = False, choice: bool = False, **how: Any
) -> Release:
    """A database of a found domain, with chosen records per unit, or both."""
    directory, asked = tempfile.mkdtemp(dir=EARLIER.name), DOMAIN
    options = ReleaseOptions(num_records=how.get("number", number_of(promise)))
    own = promise
    if choice:
        counts = counted_units(promise)
        folder = f"{directory}/domain" if domain else directory
        dp.write_release(counts, f"{folder}/{RECORDS_FOLDER}")
        chosen = records_of(counts)
        options = dataclasses.replace(options, records_per_unit=chosen)
        promise, own = chosen.whole, chosen.main
    if domain:
        types = None
        if how.get("types"):
            types = found_types(own)
            dp.write_release(types, f"{directory}/domain/{TYPES_FOLDER}")
        found = found_domain(own, later_is_pure=how.get("later_is_pure", False), types=types)
        beside = RECORDS_FOLDER if types is None else TYPES_FOLDER
        dp.write_release(found, f"{directory}/domain", beside=beside)
        asked = found.domain
        options = dataclasses.replace(options, discovered=found.discovered)
    mechanism = dp.Laplace() if how.get("later_is_pure") else dp.MWEM()
    plan = plan_release(mechanism, asked, dp.marginals(asked, ways=2), promise, options)
    held = np.arange(plan.domain.num_cells, dtype=np.int64) % 5 * 9
    summary = Histogram(plan.domain, held).marginals(plan.summary_tables)
    release = draw_database(plan, summary, NOISE)
    object.__setattr__(release, "directory", directory)
    return release


TEXTBOOK = {"num_rounds": 3, "calibration": "textbook"}
ALL = {"num_records": int(COUNTS.sum())}  # the textbook's rounds need a public number
ONE_WAY = {"workload": dp.marginals(DOMAIN, ways=1)}
Make = Callable[[dp.Guarantee], Release]
OF_DELTA: dict[str, Make] = {
    "mwem": lambda p: synthetic(dp.MWEM(), p),
    "laplace": lambda p: synthetic(dp.Laplace(), p),
    "laplace weights": lambda p: synthetic(dp.Laplace(), p, workload=WEIGHTED),
    "gaussian": lambda p: synthetic(dp.Gaussian(), p),
    "bins": binned,
    "gaussian textbook": lambda p: synthetic(dp.Gaussian(calibration="textbook"), p),
    "rounds": lambda p: synthetic(dp.MWEM(num_rounds=3), p),
    "annealed": lambda p: synthetic(dp.MWEM(num_rounds="annealed"), p),
    "selection": selected,
    "checked selection": checked,
    "public records": with_public_records,
    "textbook": lambda p: synthetic(dp.MWEM(**TEXTBOOK), p, **ALL),
    "textbook that stops": lambda p: synthetic(dp.MWEM(**TEXTBOOK, stop_below=0.2), p, **ALL),
    "left out": lambda p: synthetic(dp.MWEM(), p, left_out=True),
    "fewer records": lambda p: synthetic(dp.MWEM(), p, rows=50),
    "histogram": lambda p: intervals("histogram", p),
    "tree": lambda p: intervals("tree", p),
    "sine": lambda p: intervals("sine", p),
    "intervals left out": lambda p: intervals("sine", p, left_out=True),
    "sparse_project": lambda p: sketch(dp.SparseProject(64), p),
    "sparse_project textbook": lambda p: sketch(dp.SparseProject(64, calibration="textbook"), p),
    "sparse_project dense": lambda p: sketch(dp.SparseProject(64, "dense"), p),
    "count_sketch gaussian": lambda p: sketch(
        dp.CountSketch(33, noise="gaussian", unit_norm=4.0), p
    ),
    "stability_histogram": lambda p: sketch(dp.StabilityHistogram(), p),
    "hybrid": lambda p: sketch(dp.HybridSketch(33, 3), p),
    "gaussian answers": lambda p: linear_answers(
        p, "conjunctions:2", distribution="discrete_gaussian"
    ),
    "top queries delta": lambda p: linear_answers(p, top=3, choice="exponential"),
    "private_mw": private_mw,
    "private_mw textbook delta": lambda p: private_mw(p, calibration="textbook"),
    "sparse_mw": sparse_mw,
    "domain": found_domain,
    "domain, later is pure": lambda p: found_domain(p, later_is_pure=True),
    "types": found_types,
    "domain of types": domain_after_types,
    "counted units": counted_units,
    "of a domain": lambda p: after(p, domain=True),
    "of a domain, later is pure": lambda p: after(p, domain=True, later_is_pure=True),
    "of types": lambda p: after(p, domain=True, types=True),
    "of types, later is pure": lambda p: after(p, domain=True, types=True, later_is_pure=True),
    "of chosen records": lambda p: after(p, choice=True, number="noisy"),
    "of both": lambda p: after(p, domain=True, choice=True, number="noisy"),
}
PURE: dict[str, Make] = {
    **{f"{name} pure": OF_DELTA[name] for name in ("mwem", "rounds", "annealed", "textbook")},
    "textbook that stops, pure": OF_DELTA["textbook that stops"],
    "laplace textbook": lambda p: synthetic(dp.Laplace(calibration="textbook"), p),
    "small_db": lambda p: synthetic(dp.SmallDB(size=3), p, **ONE_WAY),
    "left out pure": lambda p: synthetic(dp.Laplace(), p, left_out=True),
    "textbook_tree": lambda p: intervals("textbook_tree", p),
    "windows": lambda p: intervals("windows", p),
    "count_sketch": lambda p: sketch(dp.CountSketch(33), p),
    "laplace answers": linear_answers,
    "top queries": lambda p: linear_answers(p, top=3),
    "top queries flipped": lambda p: linear_answers(p, top=3, choice="permute_and_flip"),
    "private_mw pure": private_mw,
    "private_mw of 5 updates": lambda p: private_mw(p, max_updates=5),
    "private_mw textbook": lambda p: private_mw(p, calibration="textbook"),
    "sparse_mw pure": sparse_mw,
    "domain pure": found_domain,
    "of a domain pure": lambda p: after(p, domain=True),
}
RELEASES: dict[str, Callable[[], Release]] = {
    f"{name}, {relation}": functools.partial(make, guarantee(delta, relation))
    for relation in ("add_or_remove_one", "replace_one")
    for delta, makes in ((1e-9, OF_DELTA), (0.0, PURE))
    for name, make in makes.items()
    if relation == "add_or_remove_one" or name not in ("of chosen records", "of both")
}


@functools.cache
def released(name: str) -> Release:
    """The release of this name, drawn once with noise that follows from its name."""
    with mock.patch(f"{__name__}.NOISE", Seeded(zlib.crc32(name.encode()))):
        return RELEASES[name]()


@functools.cache
def written(name: str) -> Draw:
    """The card and the files of ``released(name)``."""
    return draw_of(released(name))
