"""The processor time of fits and enumerations next to the rough estimates that plans print.

    PYTHONPATH=.:tests python benchmarks/resources.py

Estimates are good to an order of magnitude: nothing fails where one is further off.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from tiny import plan_of, promise, summary, workload_of

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.resources import Resources, enumeration_resources, fit_resources
from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.privacy.noise.source import NoiseSource


def show(name: str, predicted: Resources, work: Callable[[], object]) -> None:
    """Prints the predicted and the measured seconds of a piece of work."""
    started = time.process_time()
    work()
    seconds = time.process_time() - started
    print(f"| {name} | {predicted.seconds:.3f} | {seconds:.3f} |", flush=True)


def main() -> None:
    """Prints the table."""
    print("| work | predicted seconds | processor seconds |\n| --- | --- | --- |")
    generator = np.random.default_rng(0)
    for number in (10, 17):
        domain = Domain(tuple(IntegerAttribute(f"a{i}", 0, 1) for i in range(number)))
        plan = plan_of(MWEM(), workload_of(domain, 2), promise(delta=1e-9), 10**6)
        shares = generator.dirichlet(np.ones(domain.num_cells))
        exact = summary(plan, generator.multinomial(10**6, shares))
        predicted = fit_resources(domain.num_cells, 4 * len(plan.measurements))
        show(
            f"fit, {domain.num_cells:,} cells",
            predicted,
            lambda plan=plan, exact=exact: MWEM().release(plan, exact, NoiseSource()),
        )
    for num_cells, size in ((12, 6), (16, 8)):
        queries = generator.integers(0, 2, (40, num_cells))
        choice = MultisetChoice(queries, 1.0, 1000, size, sampler="enumeration")
        counts = np.full(num_cells, 1000 // num_cells)
        predicted = enumeration_resources(choice.public["num_multisets"], 40, queries.size)
        show(
            f"enumeration, {choice.public['num_multisets']:,} multisets",
            predicted,
            lambda choice=choice, counts=counts: choice.draw(counts, NoiseSource()),
        )


if __name__ == "__main__":
    main()
