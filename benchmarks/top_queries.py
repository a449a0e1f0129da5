"""Compares ways to find the c largest of k answers, all known at once, and the sparse vector.

    python benchmarks/top_queries.py --runs 200 --write

Scores are counts, so that one record more moves all of them up: add-or-remove-one, monotone. Noise
is real. Recall is the share of the c largest that is found; shortfall is how far a chosen score
is below the score that belongs in its place, on average over places, in records. The sparse vector
asks the queries in random order, with a threshold between the c-th largest score and the next,
which nobody knows without looking (oracle), or half of that (guess); places that it leaves
open are filled at random.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np
from numpy.typing import NDArray

from beam_dp.mechanisms.choosing import choose_top, top_choice
from beam_dp.mechanisms.sparse_vector import Sparse, sparse_vector_noise
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource

SEED, QUERIES, EPSILON = 20_261_123, 1000, 1.0
NUMBERS, DELTAS = (1, 10, 100), (0.0, 1e-9)
SHAPES = ("flat", "gapped", "power law")
GRID = 2**16  # units of a record, as of the program
PAGE = pathlib.Path(__file__).parent / "results" / "top_queries.md"
Scores = NDArray[np.int64]


def scores_of(shape: str, number: int) -> Scores:
    """Returns scores, in no order: from a public seed."""
    rng = np.random.default_rng(SEED)
    ranks = np.arange(1, QUERIES + 1)
    ordered = {
        "flat": 2000 - ranks,
        "gapped": np.where(ranks <= number, 3000, 500) - ranks // 10,
        "power law": 20_000 // ranks,
    }
    return rng.permutation(ordered[shape].astype(np.int64))


def in_order(scores: Scores) -> NDArray[np.intp]:
    """Returns the places of scores, that of the largest first."""
    return np.argsort(-scores, kind="stable")


def by_choice(method: str, scores: Scores, number: int, guarantee: Guarantee) -> list[int]:
    """Chooses at once."""
    choice = top_choice(guarantee, number, GRID, monotone=True, method=method)  # type: ignore[arg-type]
    return choose_top(scores * GRID, choice, NoiseSource())


def by_sparse(share: float, scores: Scores, number: int, guarantee: Guarantee) -> list[int]:
    """Asks one query after the other whether it is above a share of the right threshold."""
    ordered = np.sort(scores)[::-1]
    threshold = int(share * (ordered[number - 1] + ordered[number]) / 2)
    calibration = sparse_vector_noise(guarantee, number, answers=False, is_monotone=True)
    mechanism = Sparse(threshold, calibration, NoiseSource())
    order, found = np.random.default_rng().permutation(QUERIES).tolist(), []
    for place in order:
        if not mechanism.has_halted and mechanism.ask(int(scores[place])):
            found.append(place)
    rest = [place for place in order if place not in set(found)]
    return found + rest[: number - len(found)]


WAYS: dict[str, Callable[[Scores, int, Guarantee], list[int]]] = {
    "auto": functools.partial(by_choice, "auto"),
    "geometric, one shot": functools.partial(by_choice, "geometric"),
    "exponential, rounds": functools.partial(by_choice, "exponential"),
    "permute and flip, rounds": functools.partial(by_choice, "permute_and_flip"),
    "sparse vector, oracle": functools.partial(by_sparse, 1.0),
    "sparse vector, guess": functools.partial(by_sparse, 0.5),
}


def measured(job: tuple[str, str, int, float], runs: int) -> tuple[float, float]:
    """Returns the mean recall and shortfall of some runs."""
    way, shape, number, delta = job
    scores = scores_of(shape, number)
    guarantee = Guarantee(EPSILON, delta, "add_or_remove_one", "record", 1)
    best = in_order(scores)[:number]
    recalls, shortfalls = [], []
    for _ in range(runs):
        chosen = WAYS[way](scores, number, guarantee)
        recalls.append(len(set(chosen) & set(best.tolist())) / number)
        shortfalls.append(float((scores[best].sum() - scores[chosen].sum()) / number))
    return float(np.mean(recalls)), float(np.mean(shortfalls))


def page(found: dict[tuple[str, str, int, float], tuple[float, float]], runs: int) -> str:
    """Returns the tables."""
    lines = [
        "# The largest of many answers",
        "",
        f"`python benchmarks/top_queries.py --runs {runs} --write`: the c largest of {QUERIES:,}"
        f" counts, epsilon {EPSILON:g},",
        "add-or-remove-one. Recall of the c largest, and in brackets how far a chosen count is"
        " below the one that",
        "belongs in its place, on average, in records. `flat`: counts 1 apart; `gapped`: the c"
        " largest 2,500 above the",
        "others; `power law`: 20,000 / rank. The sparse vector asks in random order; its oracle"
        " knows the threshold that",
        "separates the c largest, its guess is half of that.",
    ]
    for delta in DELTAS:
        columns = [(shape, number) for shape in SHAPES for number in NUMBERS]
        lines += ["", f"## delta {delta:g}", ""]
        lines.append(
            "| mechanism | " + " | ".join(f"{shape}, c = {c}" for shape, c in columns) + " |"
        )
        lines.append("| --- " * (len(columns) + 1) + "|")
        for way in WAYS:
            cells = (found[way, shape, number, delta] for shape, number in columns)
            told = " | ".join(f"{recall:.2f} ({short:,.0f})" for recall, short in cells)
            lines.append(f"| {way} | {told} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, prints, and writes the page if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--write", action="store_true", help="benchmarks/results/top_queries.md")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    flags = parser.parse_args()
    jobs = list(product(WAYS, SHAPES, NUMBERS, DELTAS))
    with ProcessPoolExecutor(flags.processes) as pool:
        results = pool.map(functools.partial(measured, runs=flags.runs), jobs)
        text = page(dict(zip(jobs, results, strict=True)), flags.runs)
    print(text)
    if flags.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
