"""Random plans, and the laws of their noise as an accountant of another project reads them.

A law is written down from the public numbers of a plan and from how far a unit moves what is
measured. For tables, intervals and linear answers that distance is found by trying all records of a
small domain, so a wrong sensitivity in ``beam_dp.privacy.steps`` would show as well. For choices,
sketches, online runs and discovery it is written again by hand, by the same reasoning.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import beam_dp as dp
from beam_dp.domain.files import read_domain, read_open_domain
from beam_dp.domain.horizon import Horizon, WindowUnit
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.intervals import plan_intervals
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.marginals.selection import plan_selection
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.filters import Account
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.steps import total
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.releases.verdict import left_out_steps

Law = dict[str, Any]
_MOST_CELLS = 160  # all pairs of records are tried
_GRID = 2**16  # steps of a record in answers of online runs


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A random plan: what ``beam-dp verify`` proves of it, and the laws of its noise."""

    mechanism: str
    promise: Guarantee
    epsilon: float  # what is proved at the promised delta
    laws: list[Law]
    loss: Loss  # what a ledger adds up


def draw(kind: str, rng: random.Random) -> Drawn:
    """Returns a random plan of a kind; asks again where the mechanism refuses the request."""
    while True:
        promise = _promise(rng)
        try:
            return KINDS[kind](kind, promise, rng)
        except InputError:
            continue


def _promise(rng: random.Random) -> Guarantee:
    delta = 0.0 if rng.random() < 1 / 3 else 10 ** rng.uniform(-12, -5)
    relation = rng.choice(("add_or_remove_one", "replace_one"))
    most = rng.choice((1, 1, 2, 3, 10))
    return Guarantee(10 ** rng.uniform(math.log10(0.05), 1), delta, relation, "person", most)


def _number(promise: Guarantee, rng: random.Random) -> Any:
    if promise.neighboring == "add_or_remove_one" and rng.random() < 0.7:
        return "noisy"
    return rng.choice((100, 5000, 10**6))


def _workload(rng: random.Random, least_ways: int = 1) -> Any:
    while True:
        sizes = [rng.randint(2, 8) for _ in range(rng.randint(2, 5))]
        if math.prod(sizes) <= _MOST_CELLS:
            break
    shape = ", ".join(f'"{name}": {size}' for name, size in zip("abcde", sizes, strict=False))
    domain = read_domain("{" + shape + "}")
    return dp.marginals(domain, ways=rng.randint(least_ways, min(3, len(sizes))))


def _drawn(kind: str, plan: Plan, laws: list[Law]) -> Drawn:
    _, epsilon = total(plan.steps, plan.guarantee)
    return Drawn(kind, plan.guarantee, epsilon, laws, plan.loss)


# How far a unit moves the tables.


def _moves(columns: np.ndarray, promise: Guarantee) -> np.ndarray:
    """Returns what one record changes: columns and, where it may be replaced, differences."""
    if promise.neighboring == "add_or_remove_one":
        return columns
    number = len(columns)
    pairs = [columns[i] - columns[j] for i, j in itertools.combinations(range(number), 2)]
    return np.concatenate([columns, pairs]) if pairs else columns


def _records(domain: Domain) -> np.ndarray:
    """Returns every cell of a domain as a table with one record."""
    return np.eye(domain.num_cells, dtype=np.int64).reshape(-1, *domain.shape)


def _measured(records: np.ndarray, domain: Domain, one: Measurement) -> np.ndarray:
    axes = domain.axes(one.names)
    others = tuple(axis + 1 for axis in range(len(domain.shape)) if axis not in axes)
    table = records.sum(axis=others) * 1.0
    if one.kind == "residual":
        for axis in range(1, table.ndim):
            table = table - table.mean(axis=axis, keepdims=True)
    return table.reshape(len(records), -1)


def _tables(
    domain: Domain, measurements: Sequence[Measurement], promise: Guarantee, records_of_unit: int
) -> list[Law]:
    """Returns the laws of noisy tables for the worst unit: all its records are in one cell."""
    if not measurements:
        return []
    records = _records(domain)
    moved = [
        _moves(_measured(records, domain, each), promise) * each.grid * records_of_unit
        for each in measurements
    ]
    power = 1 if measurements[0].distribution == "discrete_laplace" else 2
    costs = sum(
        (np.abs(change / each.scale) ** power).sum(axis=1)
        for change, each in zip(moved, measurements, strict=True)
    )
    worst = int(np.argmax(costs))
    return [
        noise(each.distribution, each.scale, change[worst], is_whole=each.kind == "table")
        for change, each in zip(moved, measurements, strict=True)
    ]


def noise(
    distribution: str, scale: float, change: Iterable[float], times: int = 1, is_whole: bool = True
) -> Law:
    """Returns the law of noise on a vector that one unit changes.

    Args:
        distribution: as cards name it.
        scale: of the noise.
        change: of each number of the vector, in the unit of the scale.
        times: how often it is drawn.
        is_whole: whether the changes are integers, as the noise is.
    """
    moved = [abs(float(each)) for each in change if each]
    if not is_whole:  # residuals have a grid so fine that only the length of the change matters
        moved = [math.hypot(*moved)] if moved else []
    law = distribution.removeprefix("discrete_")
    return {"law": law, "scale": scale, "change": moved, "times": times, "is_whole": is_whole}


def choice(epsilon: float, times: int = 1, *, is_bounded_range: bool) -> Law:
    """Returns the law of a choice, of which only an epsilon (its range, or pure) is known."""
    return {"law": "range" if is_bounded_range else "pure", "epsilon": epsilon, "times": times}


# Plans of each kind.


def _synthetic(make: Callable[[random.Random], Any], *, left_out: bool = False) -> Any:
    def drawn(kind: str, promise: Guarantee, rng: random.Random) -> Drawn:
        workload, number = _workload(rng), _number(promise, rng)
        options = ReleaseOptions(num_records=number, count_left_out=left_out)
        plan = plan_release(make(rng), workload.domain, workload, promise, options)
        laws = _laws_of_strategy(plan)
        if not left_out:
            return _drawn(kind, plan, laws)
        assert plan.left_out is not None
        beside = left_out_steps(plan.left_out, promise, workload.domain)  # type: ignore[arg-type]
        _, epsilon = total(plan.steps, promise, beside)
        counts = len(workload.domain.names)
        moved = promise.neighboring.num_moved if counts > 1 else 1
        change = [promise.max_records_per_unit] * moved
        laws.append(noise("discrete_laplace", plan.left_out.scale, change))
        return Drawn(kind, promise, epsilon, laws, plan.loss)

    return drawn


def _laws_of_strategy(plan: MarginalsPlan) -> list[Law]:
    promise, stated, domain = plan.guarantee, plan.public, plan.domain
    k, moved = promise.max_records_per_unit, promise.neighboring.num_moved
    name = stated["strategy"]
    if name == "measure_all":
        return _tables(domain, plan.measurements, promise, k)
    if name == "rounds":
        rounds, noisy = stated["num_units"], stated["distribution"]
        table = [k * stated["grid"]] * moved
        # A table's distance from its estimate moves as much as the table.
        epsilon = 2 * moved * k / stated["selection_scale"]
        is_range = stated["selection"] == "exponential_mechanism"
        laws = [choice(epsilon, rounds, is_bounded_range=is_range)]
        laws.append(noise(noisy, stated["measurement_scale"], table, rounds))
        if stated["total_scale"]:
            laws.append(noise(noisy, stated["total_scale"], [k * stated["grid"]]))
        return laws
    if name == "textbook":
        rounds = stated["num_rounds"]
        laws = [choice(2 * k / stated["selection_scale"], rounds, is_bounded_range=True)]
        laws.append(noise(stated["distribution"], stated["measurement_scale"], [k], rounds))
        if "stop_below" in stated:
            ends = 1 / stated["stop_threshold_scale"] + 2 / stated["stop_question_scale"]
            laws.append(choice(k * ends, is_bounded_range=False))
        return laws
    if name == "small_db":  # cells of marginals have values 0 and 1
        score = stated["size"] * k
        laws = [choice(2 * score / stated["selection_scale"], is_bounded_range=True)]
        if stated["total_scale"]:
            laws.append(noise("discrete_laplace", stated["total_scale"], [k]))
        return laws
    raise ValueError(name)


def _selection(kind: str, promise: Guarantee, rng: random.Random) -> Drawn:
    plan = plan_selection(_workload(rng, least_ways=2), promise, _number(promise, rng))
    stated, k = plan.public, promise.max_records_per_unit
    moved = promise.neighboring.num_moved
    scores = [k * moved * stated["score_grid"]] * stated["num_candidates"]
    laws = [noise("discrete_gaussian", stated["score_scale"], scores)]
    # What is measured may cost the rest of a mu^2 that choices are paid from, too.
    squares = stated["attributes_mu"] ** 2 + stated["pairs_mu"] ** 2
    whole = stated["attributes_mu"] ** 2 / stated["attributes_share"]
    for name, most, change in (("", "most_choices", 1), ("triple_", "most_triple_choices", moved)):
        times = stated.get(most, 0) - (0 if name else stated.get("most_by_scores", 0))
        if times:
            epsilon = 2 * change * k / stated[f"{name}choice_scale"]
            laws.append(choice(epsilon, times, is_bounded_range=True))
            squares -= times * whole * stated[f"{name}choice_share"]
    laws.append(noise("discrete_gaussian", 1.0, [math.sqrt(squares)], is_whole=False))
    return _drawn(kind, plan, laws)


def _intervals(kind: str, promise: Guarantee, rng: random.Random) -> Drawn:
    leaves = rng.randint(2, 64)
    name = rng.choice(("best", "windows", "sine", "tree", "histogram"))
    plan = plan_intervals(leaves, promise, name)
    columns = np.array([plan.strategy.measure(each) for each in np.eye(leaves, dtype=np.int64)])
    moves = _moves(columns.reshape(leaves, -1), promise) * promise.max_records_per_unit * plan.grid
    return _drawn(kind, plan, [_worst(plan.choice[1], plan.scale, moves)])


def _worst(distribution: str, scale: float, moves: np.ndarray) -> Law:
    power = 1 if distribution == "discrete_laplace" else 2
    costs = (np.abs(moves.astype(np.float64)) ** power).sum(axis=1)
    return noise(distribution, scale, moves[int(np.argmax(costs))])


def _sketch(make: Callable[[random.Random], Any]) -> Any:
    def drawn(kind: str, promise: Guarantee, rng: random.Random) -> Drawn:
        weight = rng.choice((1, 1, 5))
        plan = make(rng).plan(promise, max_sparsity=rng.choice((1, 4, 32)), max_weight=weight)
        k, moved = promise.max_records_per_unit, promise.neighboring.num_moved
        laws = []
        if plan.sketch is not None:
            # The two keys of a replaced unit may share a cell of every row, with other signs.
            change = [k * weight * moved] * plan.sketch.num_blocks
            law = plan.sketch.distribution
            # The scale is in records; Gaussian noise is drawn on a finer grid.
            is_whole = law == "discrete_laplace"
            laws.append(noise(law, plan.sketch.scale, change, is_whole=is_whole))
        if plan.histogram is not None:
            scale = plan.histogram.scale
            laws.append(noise("discrete_laplace", scale, [k * weight] * moved))
            cases = [[(k - keys + 1) * weight] + [weight] * (keys - 1) for keys in range(1, k + 1)]
            threshold = plan.histogram.threshold
            laws.append(_threshold("laplace", scale, threshold, cases))
        return _drawn(kind, plan, laws)

    return drawn


def _threshold(law: str, scale: float, threshold: int, cases: list[list[int]]) -> Law:
    """Returns the chance that what only one unit has is released, for the sums it may have."""
    return {"law": "threshold", "of": law, "scale": scale, "threshold": threshold, "cases": cases}


def _answers(distribution: str) -> Any:
    def drawn(kind: str, promise: Guarantee, rng: random.Random) -> Drawn:
        domain = _workload(rng).domain
        queries = parse_linear_workload(f"conjunctions:{rng.randint(1, 2)}", domain)
        plan = dp.plan_workload_answers(queries, promise, _number(promise, rng), distribution)
        values = np.unique(np.array([each.values().ravel() for each in queries]), axis=0)
        moves = _moves(values.T, promise) * promise.max_records_per_unit * plan.grid
        return _drawn(kind, plan, [_worst(plan.distribution, plan.scale, moves)])

    return drawn


def _top(kind: str, promise: Guarantee, rng: random.Random) -> Drawn:
    queries = parse_linear_workload("conjunctions:1", _workload(rng).domain)
    top = rng.randint(1, max(1, len(queries) // 2))
    method = rng.choice(("geometric", "exponential", "permute_and_flip"))
    plan = dp.plan_top_queries(queries, promise, _number(promise, rng), top, method)
    k, ways = promise.max_records_per_unit, promise.neighboring.num_moved
    epsilon = ways * k * plan.choice_grid / plan.choice_scale
    laws = [choice(epsilon, top, is_bounded_range=method == "exponential")]
    laws.append(noise(plan.distribution, plan.scale, [k * plan.grid] * top))
    return _drawn(kind, plan, laws)


def _online(make: Callable[..., Any]) -> Any:
    def drawn(kind: str, promise: Guarantee, rng: random.Random) -> Drawn:
        number = _number(promise, rng)
        calibration = rng.choice(("tight", "textbook"))
        updates = rng.choice((1, 5, 20)) if calibration == "tight" else None
        error = None if updates else 0.4
        plan = make(rng, promise, number, calibration, updates, error)
        k, most = promise.max_records_per_unit, 2**40 if number == "noisy" else number
        stated = plan.settle(most).noise.to_json()
        above = stated["max_above"]
        first, each = k / stated["threshold_scale"], 2 * k / stated["question_scale"]
        laws = [choice(first + above * each, is_bounded_range=False)]
        if stated["redraws_threshold"]:
            laws = [choice(first + each, above, is_bounded_range=False)]
        change, scale = [k * _GRID], stated["answer_scale"] * _GRID
        laws.append(noise(stated["answer_noise"], scale, change, above))
        if plan.count_scale is not None:
            laws.append(noise("discrete_laplace", plan.count_scale, [k]))
        return _drawn(kind, plan, laws)

    return drawn


def _private_mw(
    rng: random.Random, promise: Guarantee, number: Any, name: str, updates: Any, error: Any
) -> Any:
    domain = _workload(rng).domain
    return dp.plan_private_mw(
        domain,
        promise,
        number,
        num_questions=9,
        calibration=name,  # type: ignore[arg-type]
        max_updates=updates,
        max_error=error,
    )


def _sparse_mw(
    rng: random.Random, promise: Guarantee, number: Any, name: str, updates: Any, error: Any
) -> Any:
    return dp.plan_sparse_mw(
        promise,
        number,
        max_sparsity=rng.choice((1, 4)),
        num_questions=9,
        calibration=name,  # type: ignore[arg-type]
        max_updates=updates,
        max_error=error,
    )


def _windows(kind: str, promise: Guarantee, rng: random.Random) -> Drawn:
    workload, windows = _workload(rng), 12
    most = rng.choice((1, 3, 7))
    strategy = rng.choice(("independent", "levels"))
    unit = WindowUnit("person", promise.max_records_per_unit, most, windows)
    horizon = Horizon(0, "1h", windows, 0)
    budget = promise.epsilon, promise.delta
    plan = dp.plan_window_tables(workload, horizon, unit, *budget, strategy=strategy, block=4)
    add = dataclasses.replace(promise, neighboring=dp.Neighboring.ADD_OR_REMOVE_ONE)
    records, domain = promise.max_records_per_unit, workload.domain
    laws = _tables(domain, plan.measurements, add, records) * most
    if plan.block is not None:
        # The windows of a unit are in as few blocks as possible: then it moves a block most.
        full, rest = divmod(most, plan.block)
        for together in [plan.block] * full + [rest] * (rest > 0):
            laws += _tables(domain, plan.block_measurements, add, records * together)
    return _drawn(kind, plan, laws)


def _domain(kind: str, promise: Guarantee, rng: random.Random) -> Drawn:
    columns: list[dict[str, Any]] = [
        {"name": "city", "type": "categorical", "discover": {"max_values": 50}},
        {"name": "age", "type": "numeric", "discover": {"bins": 8, "min": 0, "max": 64}},
    ]
    chosen = [each for each in columns if rng.random() < 0.7] or columns
    plan = dp.plan_domain(read_open_domain({"attributes": chosen}), promise)  # type: ignore[arg-type]
    moved, laws = promise.neighboring.num_moved, []
    for each in plan.noise:
        grid, scale = each["grid"], each["scale"]
        if "threshold" in each:
            # A unit with m texts adds 1 / sqrt(m) of a unit to each.
            laws.append(noise("discrete_gaussian", scale, [grid] * moved))
            texts = range(1, promise.max_records_per_unit + 1)
            cases = [[math.floor(grid / math.sqrt(m))] * m for m in texts]
            laws.append(_threshold("gaussian", scale, each["threshold"], cases))
        else:
            change = [grid] * (len(each["levels"]) * moved)
            laws.append(noise(each["distribution"], scale, change))
    return _drawn(kind, plan, laws)


def _ledger(kind: str, promise: Guarantee, rng: random.Random) -> Drawn:
    """Returns what a ledger counts for up to four plans that its budget can pay for."""
    account, laws = Account(promise.epsilon, promise.delta, "pure_first"), []
    while len(account.losses) < 4 and rng.random() < 0.9:
        budget = dataclasses.replace(promise, epsilon=promise.epsilon * rng.uniform(0.1, 0.6))
        try:
            one = KINDS[rng.choice(_PAID)]("", budget, rng)
        except InputError:
            continue
        if account.fits(one.loss):
            account = dataclasses.replace(account, losses=(*account.losses, one.loss))
            laws += one.laws
    if not laws:
        raise InputError("ledger", 0, "must pay for a release")
    return Drawn(kind, promise, account.spent_epsilon(), laws, one.loss)


def _rounds(rng: random.Random) -> Any:
    return dp.MWEM(num_rounds=rng.choice((1, 3, 8, "annealed")))


def _published(rng: random.Random) -> Any:
    stop = rng.choice((None, 0.1))
    return dp.MWEM(num_rounds=rng.randint(1, 6), calibration="textbook", stop_below=stop)


# By the words of a row. A ledger pays for the first four.
KINDS: dict[str, Callable[[str, Guarantee, random.Random], Drawn]] = {
    "Gaussian residuals": _synthetic(lambda rng: dp.Gaussian()),
    "Laplace tables": _synthetic(lambda rng: dp.Laplace()),
    "rounds of MWEM": _synthetic(_rounds),
    "intervals": _intervals,
    "Gaussian tables (textbook)": _synthetic(lambda rng: dp.Gaussian(calibration="textbook")),
    "Laplace tables (textbook)": _synthetic(lambda rng: dp.Laplace(calibration="textbook")),
    "MWEM as published": _synthetic(_published),
    "selection of pairs": _selection,
    "small databases": _synthetic(lambda rng: dp.SmallDB(size=rng.randint(1, 3))),
    "with counts of left-out records": _synthetic(
        lambda rng: rng.choice((dp.Gaussian(), dp.Laplace())), left_out=True
    ),
    "sparse projection": _sketch(
        lambda rng: dp.SparseProject(64, calibration=rng.choice(("tight", "textbook")))
    ),
    "count sketch, Laplace": _sketch(lambda rng: dp.CountSketch(33)),
    "count sketch, Gaussian": _sketch(lambda rng: dp.CountSketch(33, noise="gaussian")),
    "stability histogram": _sketch(lambda rng: dp.StabilityHistogram()),
    "hybrid sketch": _sketch(lambda rng: dp.HybridSketch(33, 3)),
    "answers, Laplace": _answers("discrete_laplace"),
    "answers, Gaussian": _answers("discrete_gaussian"),
    "largest queries": _top,
    "private multiplicative weights": _online(_private_mw),
    "weights of sparse queries": _online(_sparse_mw),
    "tables of windows": _windows,
    "discovery of a domain": _domain,
    "ledgers of several releases": _ledger,
}
_PAID = tuple(KINDS)[:4]
