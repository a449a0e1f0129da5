"""What SDMetrics, SynthEval, scikit-learn and LightGBM find in records that systems release.

Each release is made of two thirds of a table. Models learn from it to predict whether one column's
code is above its median, and are scored on the third that no release was made of. The columns were
chosen before any result was seen. The table's own records show what can be had, and records whose
columns were shuffled apart what must be found bad.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import accuracy_tables
from benchmarks.judges.environment import Environment
from benchmarks.peers.contenders import OWN, RECORDS, Contender
from benchmarks.peers.task import Task, released
from benchmarks.recorded import Figure, Row

Codes = NDArray[np.int64]
Release = Callable[[Codes, dict[str, int], int], Codes | None]
# Tables, and the column that is predicted.
TABLES = {"adult": "income>50K", "nist": "PINCP_DECILE", "people1": "c13", "mixture": "c20"}
QUICK, SEEDS = "people1", 3
DELTA, WAYS = 1e-9, 2
LIMIT = 3600  # processor seconds of a release
CONTENDERS = {contender.name: contender for contender in RECORDS}
# Others are settings of these that take hours, or baselines.
PEERS = ("PrivSyn", "MST", "AIM, 300 iterations", "AIM, models of 1 MB")


def rows(environment: Environment, quick: bool) -> Iterator[Row]:
    """Yields a row for each table and system, again with each seed; peers take hours."""
    tables = {name: _table(name) for name in ((QUICK,) if quick else TABLES)}
    runs: dict[str, list[dict[str, float]]] = {}
    failed: set[str] = set()
    systems = [list(_own(quick)), [] if quick else list(_peers())]
    seeds = range(1 if quick else SEEDS)
    tasks = [task for some in systems for task in itertools.product(seeds, some, tables)]

    def found(task: tuple[int, tuple[str, Release], str]) -> dict[str, float] | None:
        """Returns the figures of one release; None once a system has failed or took too long."""
        seed, (name, release), table = task
        sizes, codes = tables[table]
        train, held_out = _parts(codes, seed)
        made = None if _what(table, name) in failed else release(train, sizes, seed)
        if made is None:
            failed.add(_what(table, name))
            return None
        told = {"sizes": sizes, "target": TABLES[table]}
        return _judged(environment, told, train, held_out, made)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (_, (name, _), table), figures in zip(tasks, pool.map(found, tasks), strict=True):
            if figures is not None:
                what = _what(table, name)
                runs.setdefault(what, []).append(figures)
                yield _row(what, runs[what])


def _what(table: str, system: str) -> str:
    return f"{table}: {system}"


def _table(name: str) -> tuple[dict[str, int], Codes]:
    """Returns the sizes of a table's columns, and the codes of its records."""
    domain, columns = accuracy_tables.load(name)
    sizes = {each: int(size) for each, size in zip(domain.names, domain.shape, strict=True)}
    return sizes, np.stack(columns, axis=1)


def _row(what: str, runs: list[dict[str, float]]) -> Row:
    """Returns the means of a system's runs."""
    figures = {
        name: Figure.mean(
            [run[name] for run in runs], "small share" if name == "propensity" else "share"
        )
        for name in runs[0]
    }
    return Row(what, figures, len(runs))


def _own(quick: bool) -> Iterator[tuple[str, Release]]:
    """Yields the baselines and this project; each makes records from true records."""
    yield "the records themselves", lambda codes, sizes, seed: codes
    yield "a copy of 10 % of them", lambda codes, sizes, seed: codes[: len(codes) // 10]
    yield "columns shuffled apart", lambda codes, sizes, seed: _shuffled(codes, seed)
    for epsilon in (1.0,) if quick else (1.0, 10.0):
        yield f"{OWN}, epsilon {epsilon:g}", _by(CONTENDERS[OWN], epsilon)


def _peers() -> Iterator[tuple[str, Release]]:
    """Yields systems of others, each with the privacy of ours."""
    for contender in map(CONTENDERS.__getitem__, PEERS):
        if not contender.lacking:
            yield f"{contender.label}, epsilon 1", _by(contender, 1.0)


def _by(contender: Contender, epsilon: float) -> Release:
    """Returns what asks a system for a release; none comes of it if it fails or takes too long."""

    def release(codes: Codes, sizes: dict[str, int], seed: int) -> Codes | None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            Task(sizes, codes, WAYS, epsilon, DELTA, seed, contender.options).write(folder)
            run = contender.measure(folder, LIMIT)
            print(f"  {contender.label}: {run}", flush=True)
            return released(folder) if run["outcome"] == "done" else None

    return release


def _parts(codes: Codes, seed: int) -> tuple[Codes, Codes]:
    """Returns two thirds of the records, and the third that is held out."""
    mixed = codes[np.random.default_rng(seed).permutation(len(codes))]
    held_out = len(codes) // 3
    return mixed[held_out:], mixed[:held_out]


def _shuffled(codes: Codes, seed: int) -> Codes:
    """Returns records whose columns are independent."""
    return np.random.default_rng(seed).permuted(codes, axis=0)


def _judged(
    environment: Environment, told: dict[str, Any], train: Codes, held_out: Codes, made: Codes
) -> dict[str, float]:
    """Returns the figures of one release."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for part, records in (("train", train), ("held_out", held_out), ("released", made)):
            np.save(folder / f"{part}.npy", records)
        (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
        found: dict[str, float] = environment.ask(folder)
        return found
