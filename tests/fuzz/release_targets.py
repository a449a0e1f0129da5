"""Files of releases that are damaged anywhere: refused in one line, or read and usable.

Records in every format, sparse releases, tables of windows, and the file of a horizon.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from fuzz.mutations import (
    Choices,
    damaged_release,
    fuzz_folder,
    mutate_bytes,
    mutate_json,
    raised_by,
)
from horizons import DOMAIN as HORIZON_DOMAIN, FIRST, card_of, leveled, released_horizon
from release_examples import (
    DOMAIN as RECORDS_DOMAIN,
    DRAW,
    records_bytes,
    release_of,
)

from beam_dp.domain.attributes import BooleanAttribute
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.hashing.keys import HashKey
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload
from beam_dp.releases.files.card import ReleaseError, card_text, fingerprint
from beam_dp.releases.kinds import read_release
from beam_dp.releases.leftovers import finish_writing
from beam_dp.releases.sketches.describe import describe_sparse_release
from beam_dp.releases.sketches.files import payload as sketch_payload
from beam_dp.releases.sketches.release import NoisyCounts, NoisySketch, SparseRelease, key_type_of
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.releases.synthetic_database.records import RECORDS_FORMATS, Records
from beam_dp.releases.synthetic_database.records_avro import read_records
from beam_dp.releases.synthetic_database.records_columns import read_columns
from beam_dp.releases.windows.describe import describe_horizon, describe_window_tables
from beam_dp.releases.windows.files import payload as window_payload
from beam_dp.releases.windows.horizon_files import read_windows
from beam_dp.releases.windows.release import HorizonRelease, WindowTables
from beam_dp.storage.store import DamagedFileError, PayloadFile

_NUM_RECORDS = 40


def stated(files: dict[str, bytes]) -> dict[str, PayloadFile]:
    """Returns what a card states about files."""
    return {name: fingerprint(data) for name, data in files.items()}


@cache
def _good_records(records_format: str, is_drawn: bool) -> bytes:
    return records_bytes(
        release_of(
            num_records=_NUM_RECORDS,
            potentials=[],
            records_format=records_format,
            within_bins="uniform" if is_drawn else "midpoint",
        )
    )


def read_records_target(data: bytes) -> None:
    """What is read has codes of its domain, or is refused in one way."""
    choices = Choices(data)
    records_format = choices.one_of(RECORDS_FORMATS)
    is_drawn = bool(choices.number(2))
    damaged = mutate_bytes(_good_records(records_format, is_drawn), choices)
    raised_by(
        lambda: _use_records(_read_records(damaged, records_format, is_drawn)), DamagedFileError
    )


def _read_records(data: bytes, records_format: str, is_drawn: bool) -> Records:
    if records_format == "avro":
        return read_records(data, RECORDS_DOMAIN, _NUM_RECORDS, is_drawn=is_drawn)
    return read_columns(data, RECORDS_DOMAIN, _NUM_RECORDS, records_format, is_drawn=is_drawn)


def _use_records(records: Records) -> None:
    assert int(records.counts.sum()) == _NUM_RECORDS
    for column, size in zip(records.codes, RECORDS_DOMAIN.shape, strict=True):
        assert len(column) == len(records.counts) and (column < size).all()


def _read_target(
    kind: str, good: Callable[[], tuple[Any, dict[str, bytes]]], use: Callable[[Any], None]
) -> Callable[[bytes], None]:
    """A valid release, damaged in its card or in a file; checksums made to fit."""

    def target(data: bytes) -> None:
        release, files = good()
        folder = damaged_release(
            data,
            files,
            lambda damaged: card_text(kind, release.draw_id, release.card, stated(damaged)),
        )
        raised_by(lambda: use(read_release(folder)), ReleaseError)

    return target


@cache
def _good_sparse() -> tuple[SparseRelease, dict[str, bytes]]:
    elements = np.arange(20, dtype=np.uint64) * np.uint64(2**59)
    release = SparseRelease(
        draw_id=DRAW,
        mechanism="hybrid_sketch",
        guarantee=Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 2),
        hash_key=HashKey(2, np.arange(3, dtype=np.uint64), bytes(16)),
        max_sparsity=10,
        max_weight=7,
        plan={"key": {"key": "email", "key_type": "text", "weight": None, "rule": 2}},
        sketch=NoisySketch(
            "blocks", 18, 3, "discrete_laplace", 3.5, "median", cells=np.arange(-9, 9)
        ),
        histogram=NoisyCounts(elements, np.arange(50, 70), 2.5, 50),
    )
    return release, sketch_payload(release)


def _use_sparse(release: Any) -> None:
    """What was read is a release: it can be described, asked, and written again."""
    assert isinstance(release, SparseRelease)
    repr(release)
    describe_sparse_release(release)
    key_type_of(release.plan)
    answer = release.answer(np.array([5], np.uint64), np.ones(1))
    assert np.isfinite([answer.value, answer.standard_error, answer.bound]).all()
    card_text("sparse_release", DRAW, release.card, stated(sketch_payload(release))).encode()


@cache
def _good_window() -> tuple[WindowTables, dict[str, bytes]]:
    domain = Domain((IntegerAttribute("age", -1, 3), BooleanAttribute("member")))
    workload = Workload(domain, (("age", "member"), ("member",)))
    release = WindowTables(
        draw_id=DRAW,
        guarantee=Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 2),
        horizon_id=DRAW,
        level="window",
        number=7,
        start=1_795_402_800,
        end=1_795_406_400,
        workload=workload,
        tables={("age", "member"): np.arange(10.0).reshape(5, 2), ("member",): np.ones(2)},
        measured=(
            MeasuredTable(("age", "member"), "table", "discrete_laplace", 2.5),
            MeasuredTable(("member",), "residual", "discrete_gaussian", 700.0, 200),
        ),
        plan={"strategy": "independent"},
    )
    return release, window_payload(release)


def _use_window(release: Any) -> None:
    """What was read is a release: it can be described, asked, and written again."""
    assert isinstance(release, WindowTables)
    repr(release)
    describe_window_tables(release)
    for answer in release.answer(release.workload):
        assert np.isfinite(answer.values).all() and answer.standard_error is not None
    card_text("window_tables", DRAW, release.card, stated(window_payload(release))).encode()


read_sparse_release_target = _read_target("sparse_release", _good_sparse, _use_sparse)
read_window_target = _read_target("window_tables", _good_window, _use_window)
HORIZON = "horizon.json"


@cache
def _good_horizon() -> str:
    return card_of(leveled()).text(FIRST)


@cache
def _horizon_folder() -> str:
    """A horizon with some windows, the same for all inputs."""
    folder = f"{fuzz_folder()}/horizon"
    released_horizon(folder, leveled(), (0, 1, 2), (0,))
    return folder


def read_horizon_target(data: bytes) -> None:
    """A valid ``horizon.json``, damaged, above windows that are whole."""
    choices = Choices(data)
    card = _good_horizon().encode()
    if choices.number(3) == 0:
        card = mutate_bytes(card, choices)
    else:
        card = mutate_json(json.loads(card), choices).encode()
    with open(f"{_horizon_folder()}/{HORIZON}", "wb") as file:
        file.write(card)
    raised_by(lambda: _use_horizon(read_windows(_horizon_folder())), ReleaseError)
    raised_by(lambda: finish_writing(_horizon_folder()), ReleaseError)


def _use_horizon(release: HorizonRelease) -> None:
    """What was read is a horizon: it can be described, and asked where its windows are its own."""
    repr(release)
    describe_horizon(release)
    if release.released[:3] == (0, 1, 2):
        (answer,) = release.answer(Workload(HORIZON_DOMAIN, (("a1",),)), slice(0, 3))
        assert answer.standard_error is not None
