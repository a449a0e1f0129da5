"""Audits of units whose records are limited by what they cost together, and their mutants.

"costs": what neighbours spend after that, over everything that a unit can hold, in every order.
In a stream the unit holds the same records in two windows, which keep the promise together.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from auditing import Audit, Bug, Finding, Patch, around, audited, replaced
from limited_panes import DOMAIN, HORIZON, IN_ORDER, counted
from noise_sources import Draw, NoNoise
from numpy.typing import NDArray
from tiny import ADD, domain_of, promise, share_spent, workload_of

import beam_dp as dp
import beam_dp.in_memory as release_table
from beam_dp.mechanisms.marginals import measure_all as measure_all_module
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.privacy.unit_costs import PARTS, UnitCosts
from beam_dp.secret.encoding import contributions as contributions_module
from beam_dp.secret.encoding.batch import CostLimit
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.summaries.histogram import Histogram, Marginals, MarginalsAccumulator
from beam_dp.transforms.counting import count_windows as count_windows_module

SIZES, MOST, DELTA = (2, 3), 5, 1e-6
OTHERS = (0, 3, 3)  # of another unit, which is always there


def costs(mechanism: Mechanism, guarantee: dp.Guarantee) -> Finding:
    """Over all multisets of records, one more than are ever kept, and some of their orders."""
    domain = domain_of(*SIZES)
    plan = mechanism.plan(domain, workload_of(domain, 2), guarantee, "noisy")
    return spent_by_all(functools.partial(draws, plan), domain.num_cells, guarantee)


def spent_by_all(
    draws_of: Callable[[Sequence[int]], list[Draw]], num_cells: int, guarantee: dp.Guarantee
) -> Finding:
    empty, shares, is_a_function = draws_of(()), [], True
    for size in range(1, guarantee.max_records_per_unit + 2):
        for held in itertools.combinations_with_replacement(range(num_cells), size):
            found = [draws_of(order) for order in (held, held[::-1], held[1:] + held[:1])]
            shares += [share_spent(guarantee, each, empty) for each in found]
            if shares[-1] > 1 + 1e-9:
                return Finding(False)
            is_a_function &= all(same(each, found[0]) for each in found)
    return Finding(max(shares) <= 1 + 1e-9 and max(shares) >= 0.9 and is_a_function)


def draws(plan: MarginalsPlan, held: Sequence[int]) -> list[Draw]:
    """What is handed to the noise for a unit's records, in the order in which they arrive."""
    cells = np.array([*held, *OTHERS], np.int64)
    units = np.array([[1] * cells.size, [7] * len(held) + [8] * len(OTHERS)], np.uint64)
    batches = (
        EncodedBatch(cells=cells[part], units=units[:, part])
        for part in (slice(0, 2), slice(2, None))
    )
    accumulator = MarginalsAccumulator(plan.domain, plan.summary_tables)
    counts = release_table._summary(
        accumulator, batches, plan.domain, plan.guarantee, plan.unit_costs
    )
    return handed_on(plan, counts)


def handed_on(plan: MarginalsPlan, tables: Marginals) -> list[Draw]:
    """What is handed to the noise for exact tables."""
    noise = NoNoise()
    for each in plan.measurements:
        each.draw(tables, noise)
    return noise.draws


def costs_of_windows(mechanism: Mechanism, guarantee: dp.Guarantee) -> Finding:
    """The same where a unit is in two windows, each of which is drawn from its own table."""
    unit = dp.WindowUnit("person", guarantee.max_records_per_unit, 2, HORIZON.num_windows)
    workload = dp.Workload(DOMAIN, (DOMAIN.names,))
    limits = guarantee.epsilon, guarantee.delta
    plan = dp.plan_window_databases(mechanism, workload, HORIZON, unit, *limits)

    def spent(held: Sequence[int]) -> list[Draw]:
        rows = [(7, cell, start, start) for start in (10, 30) for cell in held] + [(8, 3, 11, 11)]
        tables = counted(rows, unit, IN_ORDER, unit_costs=plan.unit_costs)
        exact = (Histogram(DOMAIN, table).marginals(plan.summary_tables) for table in tables)
        return [draw for table in exact for draw in handed_on(plan.window, table)]

    return spent_by_all(spent, DOMAIN.num_cells, guarantee)


def same(first: list[Draw], second: list[Draw]) -> bool:
    return all((a.exact == b.exact).all() for a, b in zip(first, second, strict=True))


def planned(change: Callable[[UnitCosts], UnitCosts]) -> Bug:
    """The limit that a plan states is another one."""
    return around(
        measure_all_module, "unit_costs", lambda original, *given: change(original(*given))
    )


def _measured_otherwise(original: Any, domain: Any, measurements: Any, most: float) -> UnitCosts:
    """What is measured is settled after the records were limited for something else."""
    return original(domain, [each for each in measurements if len(each.names) != 1], most)


def one_late(keeps: Any, costs: UnitCosts, unit: Any, codes: Any) -> NDArray[np.bool_]:
    """The record with which the cost is above the limit stays, too."""
    kept = keeps(costs, unit, codes)
    first = np.r_[True, unit[1:] != unit[:-1]]
    return kept | np.r_[False, kept[:-1]] & ~first


def by_their_mean(costs: UnitCosts, unit: Any, codes: Any) -> NDArray[np.bool_]:
    """Each record is compared with itself and the last one before it, not with all."""
    starts = np.flatnonzero(np.r_[True, unit[1:] != unit[:-1]])
    kept = np.zeros(unit.size, np.bool_)
    for start, stop in itertools.pairwise([*starts, unit.size]):
        total = 0
        for place in range(start, stop):
            total += PARTS
            if place > start:
                pattern = sum(
                    int(codes[axis][place] == codes[axis][place - 1]) << bit
                    for bit, axis in enumerate(costs.axes)
                )
                total += 2 * int(costs.pairs[pattern])
            if total > costs.limit:
                break
            kept[place] = True
    return kept


def in_order_of_arrival(patch: Patch) -> None:
    original = contributions_module.select_records

    def mutant(
        units: Any, words: Any, counts: Any, most: int, cost_limit: CostLimit | None = None
    ) -> NDArray[np.intp]:
        if cost_limit is None:
            return original(units, words, counts, most)
        order = np.argsort(units[1], kind="stable")
        kept = cost_limit.keeps(units[1][order].astype(np.intp), [word[order] for word in words])
        return order[kept]

    patch.setattr(contributions_module, "select_records", mutant)


def forgets_limit(module: Any, name: str, place: int) -> Bug:
    """A step forgets the limit of its plan."""
    return around(module, name, lambda original, *given: original(*given[:place], None))


BUGS = {
    "their number alone is limited": forgets_limit(release_table, "limit_records", 3),
    "measured after they were limited": around(
        measure_all_module, "unit_costs", _measured_otherwise
    ),
    "a limit of twice C squared": planned(
        lambda each: dataclasses.replace(each, limit=2 * each.limit)
    ),
    "pairs counted once": planned(lambda each: dataclasses.replace(each, pairs=each.pairs // 2)),
    "records that agree nowhere cost less than nothing": planned(
        lambda each: dataclasses.replace(each, pairs=np.r_[-PARTS, each.pairs[1:]].astype(np.int64))
    ),
    "the record above the limit stays": around(UnitCosts, "keeps", one_late),
    "compared with the record before": replaced(UnitCosts, "keeps", by_their_mean),
    "in order of arrival": in_order_of_arrival,
}


def audits() -> list[Audit]:
    """A unit of up to six records, or five, which are worth at most two or 2.5."""
    guarantee, few = (promise(ADD, DELTA, 1.0, most) for most in (MOST, 4))
    mwem = dp.MWEM(max_unit_cost=2.0)
    twice = "a limit of twice C squared"
    of_windows = {
        "a counting step without the cost limit": forgets_limit(
            count_windows_module, "select_records", 4
        ),
        twice: BUGS[twice],
    }
    gaussian = dp.Gaussian(max_unit_cost=2.5)
    return [
        audited(name, promised, {"costs": check}, {"costs": bugs}, mechanism, promised, dear=dear)
        for name, promised, mechanism, check, bugs, dear in (
            ("mwem, unit costs", few, mwem, costs, BUGS, ()),
            ("gaussian, unit costs", guarantee, gaussian, costs, BUGS, ("costs",)),
            ("windows, unit costs", guarantee, mwem, costs_of_windows, of_windows, ("costs",)),
        )
    ]
