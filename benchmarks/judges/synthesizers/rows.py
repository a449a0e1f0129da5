"""SDV, this project as SDV is called, and AIM: time, quality by SDMetrics, attacks by anonymeter.

Each system gets half of a table; the other half is the control of the attacks, which are those of
``attacks``. As SDV is called, the values and bins of columns are found privately, for a part of
epsilon; where the domain is declared, as for AIM, all of epsilon is for the pairs.
"""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import accuracy_tables
from benchmarks.judges.environment import Environment
from benchmarks.peers.contenders import OWN, RECORDS, Contender
from benchmarks.peers.task import Task, released
from benchmarks.recorded import Figure, Row

# Columns whose codes are in order, and the one that is inferred, chosen before any result was seen.
TABLES = {
    "nltcs": ((), "traveling"),
    "nist": (("AGEP", "EDU", "PINCP_DECILE"), "PINCP_DECILE"),
    "adult": (
        ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
        "income>50K",
    ),
}
QUICK, QUICK_RECORDS = "nltcs", 4000
ATTACKS, QUICK_ATTACKS = 300, 50
SEED, DELTA = 20261130, 1e-9
LIMIT = int(os.environ.get("LIMIT", "3600"))  # processor seconds of a release
CONTENDERS = {contender.name: contender for contender in RECORDS}
OWN_NAME, AIM, COPY = "declared", "AIM, models of 80 MB", "copy"
LABELS = {
    "SDV": "SDV, Gaussian copula, no guarantee",
    "SDV's methods": f"{OWN}, called as SDV, epsilon 1",
    OWN_NAME: f"{OWN}, domain declared, epsilon 1",
    AIM: f"{CONTENDERS[AIM].label}, epsilon 1",
    COPY: "a copy of the records",
}


def rows(environment: Environment, quick: bool) -> Iterator[Row]:
    """Yields a row for each table and system; a system that was stopped is not asked again."""
    stopped = set()
    for table in (QUICK,) if quick else TABLES:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            found = _told(folder, table, quick)
            for system in (OWN_NAME,) if quick else (OWN_NAME, AIM):
                contender = CONTENDERS[OWN if system == OWN_NAME else system]
                if system not in stopped and not contender.lacking:
                    found[system] = _measured(folder, system, contender)
                    if found[system].pop("outcome") != "done":
                        stopped.add(system)
            for system, scores in environment.ask(folder).items():
                found.setdefault(system, {}).update(scores)
            risks = Environment("attacks").ask(folder, "anonymeter")
        for system, figures in found.items():
            yield _row(f"{table}: {LABELS[system]}", figures, risks.get(system, {}))


def _told(folder: pathlib.Path, table: str, quick: bool) -> dict[str, dict[str, Any]]:
    """Writes what all systems and attacks read; returns figures of each system, none as yet."""
    domain, columns = accuracy_tables.load(table)
    codes = np.random.default_rng(SEED).permutation(np.stack(columns, axis=1))
    train, control = np.array_split(codes[:QUICK_RECORDS] if quick else codes, 2)
    ordered, secret = TABLES[table]
    attacks = QUICK_ATTACKS if quick else ATTACKS
    told = {"columns": domain.names, "ordered": ordered, "secret": secret, "attacks": attacks}
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
    for name, records in (("train", train), ("control", control), (f"released-{COPY}", train)):
        np.save(folder / f"{name}.npy", records)
    sizes = {each: int(size) for each, size in zip(domain.names, domain.shape, strict=True)}
    Task(sizes, train, 2, 1.0, DELTA, SEED, {}).write(folder)
    return {}


def _measured(folder: pathlib.Path, system: str, contender: Contender) -> dict[str, Any]:
    """Returns the outcome and the time of a system that takes codes, and keeps its records."""
    task = Task.read(folder)
    Task(task.sizes, task.codes, 2, 1.0, DELTA, SEED, contender.options).write(folder)
    run = contender.measure(folder, LIMIT)
    if run["outcome"] == "done":
        np.save(folder / f"released-{system}.npy", released(folder))
    return {"outcome": run["outcome"], "seconds": run["cpu_seconds"]}


def _row(what: str, found: dict[str, Any], risks: dict[str, Any]) -> Row:
    """Returns the row of a system; one that was stopped has a time only."""
    figures = {}
    if "seconds" in found:
        figures["processor time"] = Figure(found["seconds"], "seconds")
    for name in ("columns", "pairs"):
        if name in found:
            figures[f"SDMetrics: {name}"] = Figure(found[name], "share")
    for attack, rates in risks.items():
        if not attack.endswith("one column"):  # which proves nothing about codes
            risk, *error = (100 * each for each in rates["risk"])
            figures[attack.partition(" of ")[0]] = Figure(risk, "percent", *error)
    return Row(what if "SDMetrics: pairs" in figures else f"{what}, stopped", figures)
