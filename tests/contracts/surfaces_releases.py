"""Releases: their cards and files, what reads them, and schemas."""

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
from horizons import card_of, leveled
from kind_examples import IMPOSSIBLE, drawn, read, unpack
from measured_database import database
from release_examples import DOMAIN, release_of
from surfaces import HERE, Program, Surface
from tiny import domain_of
from verification.forgeries import forge
from verification.kinds_of_releases import written
from window_examples import window_of
from window_plans import person
from written_draws import draw_of

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.queries.linear import Explicit, Product
from beam_dp.releases.files.commit import Draw, check_output
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.kinds import (
    read_release,
    release_from_bytes,
    verify_release,
    write_release,
)
from beam_dp.releases.leftovers import finish_writing
from beam_dp.releases.windows.horizon_files import read_horizon
from beam_dp.windows.horizon import Horizon


def verify(name: str, changes: str) -> object:
    """Verifies a release of ``kinds_of_releases`` whose card was changed."""
    draw = written(f"{name}, add_or_remove_one")
    card = json.loads(draw.text)
    forge(card, changes)
    forged = Draw(json.dumps(card).encode(), draw.payload)
    return verify_release(release_from_bytes(forged.to_bytes()))


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


STORES: dict[str, Any] = {
    "check_output": check_output,
    "finish_writing": finish_writing,
    "read_release": read_release,
    "write_release": write_release,
    "release": release_of(),
    "MWEM": dp.MWEM,
}
SURFACES: dict[str, Surface] = {
    "read_release": {
        **vars(kind_examples),
        **vars(dp),
        "read": read,
        "read_after": read_after,
        "os": os,
        "dp": dp,
        "nan": np.nan,
        "inf": np.inf,
    },
    "verify_release": {"verify": verify},
    "questions": {
        **vars(dp),
        "database": database,
        "impute": dp.impute,
        "compare_releases": dp.compare_releases,
        "golden": lambda name: dp.read_release(HERE.parent / "golden" / name),
        "report": dp.report,
        "never": release_of(IMPOSSIBLE),
        "pa": pa,
    },
    "horizons": {
        "window": window_of,
        "DOMAIN": DOMAIN,
        "Explicit": Explicit,
        "Horizon": Horizon,
        "Product": Product,
        "card_of": card_of,
        "dataclasses": dataclasses,
        "horizon_text": horizon_text,
        "leveled": leveled,
        "marginals": dp.marginals,
        "domain_of": domain_of,
        "np": np,
        "pathlib": pathlib,
        "person": person,
        "read_horizon": read_horizon,
        "read_horizon_release": lambda: dp.read_windows(HERE.parent / "golden" / "horizon"),
    },
    "beam-dp on a database": answered(database),
    "beam-dp on intervals": answered(
        functools.partial(kind_examples.intervals_of, ("histogram", "discrete_laplace"))
    ),
    "beam-dp on dates": answered(intervals_of_dates),
    "beam-dp on keys": answered(functools.partial(kind_examples.sketch_of, 3 * 2**8)),
    "stores": STORES,
    "schemas": {"draft": dp.domain_draft, "sql": sql, "pa": pa},
}
