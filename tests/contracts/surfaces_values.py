"""Values that jobs are described by: guarantees, mechanisms, domains, workloads and queries.

Refusals name all that this module imports or defines.
"""
# ruff: noqa: F401

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from surfaces import PUBLIC, Program, Surface, but_for

import beam_dp as dp
from beam_dp import checks
from beam_dp.cli.main import main
from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.discover import DiscoverValues, OpenAttribute
from beam_dp.domain.files import parse_domain, read_domain, read_open_domain
from beam_dp.domain.impossible import Impossible
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.flags import flag, windows
from beam_dp.flags.flag import OrWord, integer, number
from beam_dp.hashing.keys import HashKey
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries import sparse, vc_dimension
from beam_dp.queries.linear import Explicit, Parity, Product
from beam_dp.queries.reader import LinearQueries, expand_line
from beam_dp.queries.where import read_condition
from beam_dp.queries.workload import workload_from_json
from beam_dp.releases.kinds import write_release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.encoding.records import encode_cells
from beam_dp.views.intervals import _level

nan, inf = math.nan, math.inf


guarantee = but_for(
    dp.Guarantee,
    epsilon=1.0,
    delta=1e-9,
    neighboring="add_or_remove_one",
    privacy_unit="record",
    max_records_per_unit=1,
)

# Entries of domain files, each of an attribute without its name.
ENTRIES: dict[str, dict[str, Any]] = {
    "ages": {"type": "integer", "min": 0, "max": 9},
    "dates": {"type": "date", "edges": ["2020-01-01", "2020-02-01"]},
    "numeric": {"type": "numeric", "edges": [0, 1]},
    "equal": {"type": "numeric", "min": 0, "max": 9, "bins": 3},
    "yes": {"type": "boolean", "true_values": ["yes"], "false_values": ["no"]},
    "city": {"type": "categorical", "discover": {"max_values": 3, "include": ["Rome"]}},
    "income": {"type": "numeric", "discover": {"bins": 4, "min": 0, "max": 8192}},
    "day": {"type": "date", "discover": {"bins": 2, "min": "2020-01-01", "max": "2020-12-31"}},
    "untyped": {"type": "discover", "nullable": True},
}
PEOPLE = Domain(
    (
        NumericAttribute("age", (0, 16, 25, 65, 120), other=True, nullable=True),
        IntegerAttribute("hours", 0, 99, other=True),
        CategoricalAttribute("sex", ("Female", "Male")),
        CategoricalAttribute("relationship", ("Husband", "Wife", "other kin", 7), nullable=True),
        BooleanAttribute("married", nullable=True),
    )
)


def entry(*base: str, **fields: Any) -> Domain | dp.OpenDomain:
    """A domain of one attribute "a": an entry by its name, with changed or more fields."""
    attribute = {**(ENTRIES[base[0]] if base else {}), **fields}
    return read_open_domain(json.dumps({"attributes": [{"name": "a", **attribute}]}))


def domain_file(folder: pathlib.Path, content: bytes) -> Domain:
    (folder / "domain.json").write_bytes(content)
    return read_domain(folder / "domain.json")


def combinations(declared: Any) -> Domain:
    return parse_domain(json.dumps({**PEOPLE.to_json(), "impossible": declared}))


def open_combinations(impossible: Any) -> object:
    sex = {"type": "categorical", "values": ["F", "M"]}
    entries = {"city": ENTRIES["city"], "income": ENTRIES["income"], "sex": sex}
    attributes = [{"name": name, **fields} for name, fields in entries.items()]
    return read_open_domain({"attributes": attributes, "impossible": impossible})


FOUR_ENTRIES: list[dict[str, Any]] = [
    {"name": "degree", "type": "categorical", "values": ["BA", "MA", 7], "other": True}
    | {"nullable": True},
    {"name": "hours", "type": "integer", "min": -3, "max": 3, "other": True},
    {"name": "age", "type": "numeric", "edges": [17, 25, 35], "nullable": True},
    {"name": "member", "type": "boolean", "nullable": True},
]


def of_another_domain(declared: Any) -> object:
    """A release over the four attributes with a workload over a domain of others."""
    other = {"attributes": declared} if isinstance(declared, list) else declared
    workload = dp.marginals(read_domain(other), ways=1)
    domain = read_domain({"attributes": FOUR_ENTRIES})
    return dp.release(pa.table({}), domain, workload, guarantee())


ORIGIN = {"ledger_release": "visits, 2026/3", "draw_id": "0f" * 16}
STATES = {"Boston": "MA", "Salem": "MA", "Austin": "TX", "7": "NY"}


def determines(mappings: Any) -> object:
    attributes = [
        {"name": "state", "type": "categorical", "values": ["MA", "TX", "NY"]},
        {"name": "city", "type": "categorical", "values": ["Boston", "Salem", "Austin", 7]},
        {"name": "hours", **ENTRIES["ages"]},
        {"name": "open", **ENTRIES["city"]},
    ]
    return read_open_domain({"attributes": attributes, "determines": mappings})


def dates_and_words(declared: Any) -> object:
    times = ["2020-01-01T00:00Z", "2020-01-02T00:00Z", "2020-01-03T00:00Z"]
    attributes = [
        {"name": "smoker", **ENTRIES["yes"]},
        {"name": "visit", "type": "date", "edges": ["2020-01-01", "2020-04-01", "2020-07-01"]},
        {"name": "at", "type": "datetime", "edges": times},
    ]
    return read_domain({"attributes": attributes, "impossible": declared})


def endless() -> dict[str, Any]:
    """An entry that contains itself."""
    found: dict[str, Any] = {"type": "categorical", "name": "a"}
    return {**found, "values": [found.setdefault("values", [found])]}


WIDE = parse_domain({f"a{place}": 2 for place in range(63)})
LEVELS = Domain(
    (
        IntegerAttribute("age", 18, 24, nullable=True),
        CategoricalAttribute("degree", ("HS", "BA", "MA"), other=True),
        IntegerAttribute("only", 5, 5),
        NumericAttribute("income", (0.0, 10.0, 20.0, 50.0)),
        BooleanAttribute("member"),
    )
)
MIXED = Domain(
    (
        BooleanAttribute("member"),
        IntegerAttribute("age", 0, 3, other=True, nullable=True),
        CategoricalAttribute("degree", ("HS", "BA", "MA")),
        IntegerAttribute("only", 5, 5),
    )
)
BINARY = Domain(tuple(BooleanAttribute(name) for name in "abcde"))


def linear_lines(folder: pathlib.Path, lines: str) -> object:
    """A workload over ``MIXED`` from a file with these lines."""
    (folder / "queries.jsonl").write_text(lines)
    return dp.parse_linear_workload(str(folder / "queries.jsonl"), MIXED)


def matrix(folder: pathlib.Path, values: Any) -> object:
    """A workload over ``BINARY`` from a matrix."""
    np.save(folder / "q.npy", values, allow_pickle=True)
    return dp.parse_linear_workload(f"matrix:{folder / 'q.npy'}", BINARY)


FOUR = parse_domain({"age": 85, "sex": 2, "education": 16, "a,b; c": 3})


def marginal_lines(folder: pathlib.Path, lines: str | bytes) -> object:
    """A workload of marginals over ``FOUR`` from a file with these lines."""
    content = lines if isinstance(lines, bytes) else lines.encode()
    (folder / "w.jsonl").write_bytes(content)
    return dp.parse_workload(str(folder / "w.jsonl"), FOUR)


def keys(folder: pathlib.Path, content: bytes, name: str = "keys", **more: Any) -> object:
    """A sparse query from a file."""
    (folder / name).write_bytes(content)
    return sparse.read_sparse_query(folder / name, **more)


CONDITIONS = Domain(
    (
        IntegerAttribute("hours", -2, 3, nullable=True),
        NumericAttribute("age", (0, 20, 40.5, 100)),
        CategoricalAttribute("sex", ("F", "M"), other=True),
        CategoricalAttribute("it's `odd`", ("a`b", "'")),
        IntegerAttribute("class", 1, 3),
        CategoricalAttribute("from", ("class", "a")),
        NumericAttribute("cars", (0, 1, 2, 6), whole=True),
    )
)

TABLE = dp.parse_domain('{"age": 85, "sex": 2}')
WORKLOAD = dp.marginals(TABLE, ways=1)
PROMISE = guarantee()


synthetic = but_for(
    dp.ReleaseSyntheticDatabase,
    domain=TABLE, workload=WORKLOAD, guarantee=PROMISE, mechanism=dp.MWEM(),
)  # fmt: skip
sketch = but_for(
    dp.ReleaseProjection,
    plan=dp.CountSketch().plan(PROMISE, max_sparsity=9),
    columns=dp.KeyColumns("email"),
)
LINEAR = dp.parse_linear_workload("marginals:1", TABLE)
HORIZON = dp.Horizon("2026-11-23T00:00Z", window="1h", num_windows=24, grace="0s")
UNIT = dp.WindowUnit("record", max_records_per_unit=1, max_windows_per_unit=1, protected_windows=1)
KEYS = dp.KeyProfile(100, 10, 50)

WEEK = {"start": "2026-11-23T00:00Z", "window": "1h", "num_windows": "168", "grace": "30m"}
PERSON = {
    "privacy_unit": "person_id",
    "max_records_per_unit": "3",
    "max_windows_per_unit": "7",
    "protected_windows": "168",
}


@dataclasses.dataclass(frozen=True)
class Choice:
    """A class one of whose fields is a flag."""

    width: int = dataclasses.field(
        default=3, metadata=flag.option("how wide", "W", flag.integer, name="w")
    )


def window_unit(**changed: str | None) -> object:
    given = {**PERSON, **changed}
    return windows.read_window_unit({name: text for name, text in given.items() if text})


def released(folder: pathlib.Path) -> dict[str, str | None]:
    """Writes a release to the folder "release"; commands have no flags that are always valid."""
    domain = parse_domain({"sex": 3, "bed": 2})
    release = SyntheticDatabase(
        domain=domain,
        workload=dp.marginals(domain, ways=2),
        guarantee=PROMISE,
        mechanism="gaussian",
        num_records=60,
        num_records_is_public=False,
        codes=domain.codes([2, 3]),
        counts=np.array([20, 40]),
        potentials=[],
        draw_id="0" * 32,
    )
    write_release(release, folder / "release")
    return {}


EVERYTHING: dict[str, Any] = {
    **PUBLIC,
    **vars(vc_dimension),
    **vars(sparse),
    **vars(checks),
    **globals(),
    "query": LinearQueries(LEVELS).from_json,
    "cells": lambda names: list(LinearQueries(LEVELS).marginal_cells(names)),
    "linear": lambda spec, domain=MIXED: dp.parse_linear_workload(spec, domain),
    "workload": lambda spec: dp.parse_workload(spec, FOUR),
    "expand_line": lambda line: expand_line(LinearQueries(parse_domain({"a": 2**19})), line),
    "sparse_json": sparse.SparseQuery.from_json,
    "sparse_reader": lambda held: sparse.SparseQueries("text", 4, HashKey.draw(1)).from_json(held),
    "SparseQuery": sparse.SparseQuery,
    "read_sparse_query": sparse.read_sparse_query,
    "where": lambda text: read_condition(CONDITIONS, text),
    "level": lambda text: _level(NumericAttribute("share", (0, 0.5, 10)), text),
    "width": lambda **given: flag.values_of(Choice, given),
    "horizon": lambda **changed: windows.read_horizon({**WEEK, **changed}),
    "measured": lambda **given: windows.read_measured(given),
    "zeros": np.zeros(3, np.int64),
    "noise": NoiseSource(),
}
PLACES = (
    "Guarantee", "mechanisms", "queries", "conditions", "arguments", "numbers", "noise",
)  # fmt: skip
SURFACES: dict[str, Surface] = {
    **dict.fromkeys(PLACES, EVERYTHING),
    "domains": EVERYTHING | {"FOUR": FOUR_ENTRIES},
    "beam-dp": Program(main, released),
}
