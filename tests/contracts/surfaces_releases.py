"""Releases: their cards and files, what reads them, and schemas.

Refusals name all that this module imports or defines.
"""
# ruff: noqa: F401

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import kind_examples
import numpy as np
import pyarrow as pa
from forgeries import forge
from horizons import WORKLOAD as WINDOWS_ASKED, card_of, leveled, released_horizon
from kind_examples import IMPOSSIBLE, drawn, read, unpack
from kinds_of_releases import written
from measured_database import database
from release_examples import DOMAIN, release_of
from surfaces import HERE, PUBLIC, Program, Surface
from tiny import domain_of
from window_examples import window_of as window
from window_plans import person, plan_of
from written_draws import draw_of

import beam_dp as dp
from beam_dp import MWEM, compare_releases, impute, marginals, report
from beam_dp.cli.main import main
from beam_dp.domain.horizon import Horizon
from beam_dp.queries.linear import Explicit, Product
from beam_dp.releases.files.commit import Draw, check_output, probe_output
from beam_dp.releases.intervals.files import strategy_from_tables
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.kinds import (
    finish_writing,
    read_release,
    release_from_bytes,
    verify_release,
    write_release,
)
from beam_dp.releases.synthetic_database.records import check_records_format
from beam_dp.releases.windows.horizon_files import begin_horizon, read_horizon


def verify(name: str, changes: str) -> object:
    """Verifies a release of ``kinds_of_releases`` whose card was changed."""
    draw = written(f"{name}, add_or_remove_one")
    card = json.loads(draw.text)
    forge(card, changes)
    forged = Draw(json.dumps(card).encode(), draw.payload)
    return verify_release(release_from_bytes(forged.to_bytes()))


def windows_after(folder: pathlib.Path, **changed: Any) -> object:
    """Asks the windows of a horizon, of which the second has another card."""
    released_horizon(str(folder), leveled(), range(3))
    card = folder / "windows/000001/card.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), **changed}))
    return dp.read_windows(folder).answer(WINDOWS_ASKED, slice(0, 2))


def read_after(folder: pathlib.Path, damage: Callable[[pathlib.Path], object]) -> object:
    """Reads a release of a database from a folder that was damaged."""
    unpack(drawn("database"), folder / "out")
    damage(folder / "out")
    return read_release(folder / "out")


def horizon_text(folder: pathlib.Path, text: str, **changed: Any) -> object:
    """Reads a horizon whose file has this text, or the right one with other fields."""
    right = json.loads(card_of(leveled()).text("1" * 32))
    text = text or json.dumps({**right, **changed})
    (folder / "horizon.json").write_bytes(text.encode(errors="surrogateescape"))
    return read_horizon(folder)


def answered(make: Callable[[], Any]) -> Program:
    """What reads a release that is in ``FOLDER/release``."""
    draw = functools.cache(lambda: draw_of(make()))

    def unpacked(folder: pathlib.Path) -> dict[str, str | None]:
        unpack(draw(), folder / "release")
        return {}

    return Program(main, unpacked)


def intervals_of_dates() -> IntervalRelease:
    edges = ("2020-01-01", "2020-02-01", "2020-03-01", "2020-04-01")
    release = kind_examples.intervals_of(("histogram", "discrete_laplace"), 3)
    return dataclasses.replace(release, attribute=dp.DateAttribute("visit", edges))


def sql(folder: pathlib.Path, text: str, **options: Any) -> object:
    """Drafts a domain from a file of SQL."""
    (folder / "tables.sql").write_text(text, "utf-8")
    return dp.domain_draft(str(folder / "tables.sql"), **options)


EVERYTHING: dict[str, Any] = {
    **vars(kind_examples),
    **PUBLIC,
    **globals(),
    "nan": np.nan,
    "inf": np.inf,
    "release": release_of(),
    "never": release_of(IMPOSSIBLE),
    "golden": lambda name: dp.read_release(HERE.parent / "golden" / name),
    "read_horizon_release": lambda: dp.read_windows(HERE.parent / "golden" / "horizon"),
    "draft": dp.domain_draft,
}
PLACES = ("read_release", "verify_release", "questions", "horizons", "stores", "schemas")
SURFACES: dict[str, Surface] = {
    **dict.fromkeys(PLACES, EVERYTHING),
    "beam-dp on a database": answered(database),
    "beam-dp on answers": answered(kind_examples.EXAMPLES["answers"]),
    "beam-dp on a domain": answered(kind_examples.EXAMPLES["domain"]),
    "beam-dp on intervals": answered(
        functools.partial(kind_examples.intervals_of, ("histogram", "discrete_laplace"))
    ),
    "beam-dp on dates": answered(intervals_of_dates),
    "beam-dp on keys": answered(functools.partial(kind_examples.sketch_of, 3 * 2**8)),
}
