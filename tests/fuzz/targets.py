"""What is fuzzed: each target takes any bytes, and fails if a parser does what it must not.

Releases of every kind, damaged in the card or in a file, whose checksums are made to fit: refused
in one line, or read and usable; and so cards, damaged anywhere, which are judged, and not too well.
Records, horizons, domains, workloads and schemas in the same way.
"""

import hashlib
import io
import json
import math
import pathlib
import zlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import fastavro
import numpy as np
from forgeries import Path, at, fields, forged_at, places, reason
from fuzz.mutations import CARD, Choices, fuzz_folder, mutate_bytes, mutate_json, raised_by
from horizons import DOMAIN as HORIZON_DOMAIN, FIRST, card_of, leveled, released_horizon
from kind_examples import drawn, unpack
from kinds_of_releases import RELEASES
from release_examples import DOMAIN, records_bytes, release_of
from rich.console import Console
from written_draws import draw_of

import beam_dp as dp
from beam_dp.checks import is_number
from beam_dp.cli.releases import verification_table
from beam_dp.domain.files import domain_from_json
from beam_dp.releases.files.commit import Draw
from beam_dp.releases.kinds import (
    finish_writing,
    read_any,
    read_release,
    verify_release,
    write_release,
)
from beam_dp.releases.parts import view_of
from beam_dp.releases.sketches.release import SparseRelease, key_type_of
from beam_dp.releases.synthetic_database import records as record_names
from beam_dp.releases.synthetic_database.measured_tables import (
    IndependentTables,
    MeasuredTable,
    NoisyMeasurements,
    PairDistances,
)
from beam_dp.releases.synthetic_database.records import RECORDS_FORMATS, Records
from beam_dp.releases.synthetic_database.records_avro import read_records
from beam_dp.releases.synthetic_database.records_columns import read_columns
from beam_dp.releases.windows.release import HorizonRelease, WindowTables
from beam_dp.storage.avro import HEADER, decode, encode
from beam_dp.storage.store import DamagedFileError
from beam_dp.views.windows import describe

HORIZON, WINDOW = "horizon", "window of a horizon"
NAMES = (*RELEASES, HORIZON, WINDOW)
# Figures of which less is less privacy, and those of which more is.
LESS = {
    "scale", "threshold_scale", "question_scale", "answer_scale", "selection_scale",
    "measurement_scale", "total_scale", "score_scale", "choice_scale", "count_scale", "threshold",
}  # fmt: skip
MORE = {
    "max_records_per_unit", "max_weight", "num_units", "num_rounds", "max_above", "size",
    "num_candidates", "score_grid", "attributes_mu", "pairs_mu", "num_blocks",
}  # fmt: skip
OF_PROMISE = frozenset(("epsilon", "delta"))
FACTORS = (0.5, 0.1, 0.9, 0.999, 1 - 1e-6)


@cache
def _good(name: str) -> tuple[pathlib.Path, str, str, float]:
    """Where a release is, which file is damaged, its text, and the epsilon that follows."""
    place = fuzz_folder() / f"verified {NAMES.index(name)}"
    file = CARD
    if name in (HORIZON, WINDOW):
        released_horizon(str(place), leveled(), (0, 1), (0,))
        file = "horizon.json"
        if name == WINDOW:
            place, file = place / "windows" / "000000", CARD
    else:
        write_release(RELEASES[name](), place)
    return place, file, (place / file).read_text("utf-8"), _verified(place).epsilon


def verify_target(data: bytes) -> None:
    """A real card after any damage; or one that states less noise, or promises more, than is so."""
    choices = Choices(data)
    name = choices.one_of(NAMES)
    place, file, text, epsilon = _good(name)
    card, is_worse = json.loads(text), bool(choices.number(2))
    if name in RELEASES and not choices.number(3):
        _check_forgery(place / file, card, choices)
        return
    if is_worse:
        if choices.number(2):
            _delete_one(card, choices)
        _worsen(card, choices)
        text = json.dumps(card)
    else:
        text = mutate_json(card, choices)
    (place / file).write_text(text, "utf-8")
    raised_by(lambda: _check(_verified(place), epsilon if is_worse else 0.0), dp.InputError)


def _check_forgery(file: pathlib.Path, card: Any, choices: Choices) -> None:
    """A card with one small change does not hold, except where it may."""
    path = choices.one_of(list(places(card)))
    changes = list(forged_at(card, path))
    if not changes:
        return
    label, changed = choices.one_of(changes)
    may_hold = reason(fields(path), label) is not None
    if path[:2] == ("domain", "attributes") and len(path) == 5 and not may_hold:
        may_hold = _is_unused_level(card, path, label, file) or _is_same_bin(card, changed, path)
    file.write_text(json.dumps(changed), "utf-8")

    def check() -> None:
        assert may_hold or not _verified(file.parent).holds, (path, label)

    raised_by(check, dp.InputError)


def _is_unused_level(card: Any, path: Path, label: str, file: pathlib.Path) -> bool:
    """Whether the place is a level that no row has: nothing but the card names it."""
    if (path[3], label) != ("values", "other text"):
        return False
    file.write_text(json.dumps(card), "utf-8")
    name = card["domain"]["attributes"][path[2]]["name"]
    release = read_any(file.parent)
    return isinstance(release, dp.SyntheticDatabase) and all(
        at(card, path) not in batch[name] for batch in release.records()
    )


def _is_same_bin(card: Any, changed: Any, path: Path) -> bool:
    """Whether the place is an edge of whole numbers that no row has to show.

    It lies between the same two numbers as before, or it is an end, and all rows of its bin may be
    at the other side.
    """
    if path[3] != "edges":
        return False
    try:
        both = [domain_from_json(each["domain"]).attributes[path[2]] for each in (card, changed)]
    except dp.InputError:
        return False
    ends = [getattr(each, "whole_ends", None) for each in both]
    is_end = path[4] in (0, both[0].num_levels)
    return None not in ends and (is_end or bool(np.array_equal(ends[0], ends[1])))


def _verified(place: pathlib.Path) -> dp.Verification:
    return verify_release(read_any(place))


def _check(found: dp.Verification, least: float) -> None:
    """What is found can be told, and a card that was made worse is not found to be better."""
    file = io.StringIO()
    Console(file=file, width=80).print(verification_table(found))
    assert max(map(len, file.getvalue().splitlines())) <= 80
    json.dumps(found.to_json(), allow_nan=False)
    if found.holds:
        assert not math.isnan(found.epsilon) and found.epsilon <= found.promise.epsilon
        assert found.epsilon >= least * (1 - 1e-9), (found.epsilon, least)


def _worsen(card: Any, choices: Choices) -> None:
    """Makes one figure such that less privacy follows from it than was so, or more is promised."""
    places = list(_figures(card))
    if not places:
        return
    holder, key = choices.one_of(places)
    factor = choices.one_of(FACTORS)
    changed = holder[key] / factor if key in MORE else holder[key] * factor
    if isinstance(holder[key], int):
        changed = math.ceil(changed) if key in MORE else math.floor(changed)
    holder[key] = changed


def _figures(value: Any, is_promise: bool = False) -> Any:
    """Every holder and key of a figure of the noise, or of the promise."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in items:
        if isinstance(below, dict | list):
            yield from _figures(below, key == "guarantee")
        elif is_number(below) and (key in LESS | MORE or (is_promise and key in OF_PROMISE)):
            yield value, key


def _delete_one(card: Any, choices: Choices) -> None:
    """Deletes one field, as cards of earlier versions lack some.

    Not the counts beside a release with all that is said of them: without these less is released.
    """
    holders = [card, *(each for each in card.values() if isinstance(each, dict) and each)]
    holder = choices.one_of(holders)
    del holder[choices.one_of(sorted(set(holder) - {"left_out"}))]


_NUM_RECORDS = 40
LINES = (
    '{"marginal": ["age", "hours"]}\n\n{"marginal": ["member"], "weight": 2.5}\n'
    '{"marginal": ["getting in/out of bed"]}\n'
)


@cache
def _database() -> Draw:
    described = tuple(
        MeasuredTable(names, kind, "discrete_laplace", 2.5, 12)
        for names, kind in ((("hours", "age"), "table"), (("member",), "residual"), ((), "table"))
    )
    domain = DOMAIN.with_impossible([{"hours": [[-3, 12], "other"], "age": [[17, 25], None]}])
    shapes = [domain.restrict(each.names).shape for each in described]
    tables = tuple(np.arange(math.prod(shape), dtype=float).reshape(shape) for shape in shapes)
    potentials = tuple(((each.name,), np.linspace(-1, 1, each.size)) for each in domain)
    independent = IndependentTables(40.5, 64, potentials)
    scores = {("hours", "age"): 7.5, ("age", "member"): -0.5}
    distances = PairDistances(2.5, scores, independent)
    return draw_of(
        release_of(
            domain,
            num_records=40,
            noise=[each.to_json() for each in described],
            measurements=NoisyMeasurements(described, tables, False, distances),
        )
    )


def _with_mutated_block(good: bytes, choices: Choices) -> bytes:
    """A container whose header stands, and whose first block is damaged before it is packed."""
    file = io.BytesIO(good)
    header = decode(HEADER, file)
    start = good[: file.tell()]
    is_packed = header["meta"].get("avro.codec") == b"deflate"
    decode("long", file)
    block = decode("bytes", file)
    if is_packed:
        block = zlib.decompress(block, wbits=-15)
    num_records = choices.one_of([40, 39, 41, 0, 1, -1, 2**40, 2**62])
    block = mutate_bytes(block, choices)
    if is_packed:
        packer = zlib.compressobj(wbits=-15)
        block = packer.compress(block) + packer.flush()
    return start + encode("long", num_records) + encode("bytes", block) + header["sync"]


def read_release_target(make: Callable[[], Draw], data: bytes) -> None:
    """A valid release, damaged in its card, in a file, or inside a file."""
    choices, draw = Choices(data), make()
    how, text, files = choices.number(6), draw.text, dict(draw.payload)
    name = choices.one_of(sorted(files)) if how in (2, 3) else ""
    if how == 0:
        text = choices.rest()
    elif how == 1:
        text = mutate_bytes(text, choices)
    elif name:
        is_container = how == 3 and files[name].startswith(b"Obj\x01")
        mutate = _with_mutated_block if is_container else mutate_bytes
        files[name] = mutate(files[name], choices)
        card = json.loads(text)
        card["files"] = {
            each: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
            for each, content in files.items()
        }
        text = json.dumps(card).encode()
    else:
        text = mutate_json(json.loads(text), choices).encode()
    folder = fuzz_folder() / draw.card.kind
    unpack(Draw(text, files), folder)
    raised_by(lambda: _use(read_release(folder)), dp.ReleaseError)


def _use(release: Any) -> None:
    """What was read is a release: it can be described, asked, and written again."""
    repr(release)
    view_of(release.KIND).describe(release)
    draw_of(release)
    if isinstance(release, dp.SyntheticDatabase):
        for row in release.query().group_by(release.domain.names[0]).count().rows():
            assert math.isfinite(row["count"])
            assert row["reason"] if row["margin"] is None else math.isfinite(row["margin"])
        assert int(release.counts.sum()) == release.num_records
    elif isinstance(release, SparseRelease):
        key_type_of(release.plan)
        answer = release.answer(np.array([5], np.uint64), np.ones(1))
        assert np.isfinite([answer.value, answer.standard_error, answer.bound]).all()
    elif isinstance(release, WindowTables):
        for answer in release.answer(release.workload):
            assert np.isfinite(answer.values).all() and answer.standard_error is not None


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
    records_format, is_drawn = choices.one_of(RECORDS_FORMATS), bool(choices.number(2))
    damaged = mutate_bytes(_good_records(records_format, is_drawn), choices)

    def read() -> Records:
        if records_format == "avro":
            return read_records(damaged, DOMAIN, _NUM_RECORDS, is_drawn=is_drawn)
        return read_columns(damaged, DOMAIN, _NUM_RECORDS, records_format, is_drawn=is_drawn)

    def use() -> None:
        records = read()
        assert int(records.counts.sum()) == _NUM_RECORDS
        for column, size in zip(records.codes, DOMAIN.shape, strict=True):
            assert len(column) == len(records.counts) and (column < size).all()

    raised_by(use, DamagedFileError)


@cache
def _horizon_folder() -> str:
    """A horizon with some windows, the same for all inputs."""
    folder = f"{fuzz_folder()}/horizon"
    released_horizon(folder, leveled(), (0, 1, 2), (0,))
    return folder


def read_horizon_target(data: bytes) -> None:
    """A valid ``horizon.json``, damaged, above windows that are whole."""
    choices = Choices(data)
    card = card_of(leveled()).text(FIRST).encode()
    if choices.number(3) == 0:
        card = mutate_bytes(card, choices)
    else:
        card = mutate_json(json.loads(card), choices).encode()
    with open(f"{_horizon_folder()}/horizon.json", "wb") as file:
        file.write(card)
    raised_by(lambda: _use_horizon(dp.read_windows(_horizon_folder())), dp.ReleaseError)
    raised_by(lambda: finish_writing(_horizon_folder()), dp.ReleaseError)


def _use_horizon(release: HorizonRelease) -> None:
    """What was read is a horizon: it can be described, and asked where its windows are its own."""
    repr(release)
    describe(release)
    if release.released[:3] == (0, 1, 2):
        (answer,) = release.answer(dp.Workload(HORIZON_DOMAIN, (("a1",),)), slice(0, 3))
        assert answer.standard_error is not None


_DECLARED = DOMAIN.with_impossible(
    [
        {"hours": [[-3, 12], "other"], "member": [True]},
        {"getting in/out of bed": ["né", 7, None], "age": [[17, 25], None], "member": [False]},
    ]
).to_json()
_DECLARED["attributes"] += [
    {"name": "smoker", "type": "boolean", "true_values": ["yes", 1], "false_values": ["no"],
     "nullable": True, "null_values": ["", "NA", -9], "case": "ignore", "trim": True},
    {"name": "weight", "type": "numeric", "edges": [0, 1.5], "clip": True, "nullable": True,
     "null_values": [-0.5, "?"]},
    {"name": "visit", "type": "date", "edges": ["2020-01-01", "2020-02-01"], "nullable": True,
     "null_values": ["9999-12-31"], "edges_from": {"ledger_release": "v/1", "draw_id": "0f" * 16}},
    {"name": "at", "type": "datetime", "edges": ["2020-01-01T00:00Z", "2020-01-02T00:00+01:30"]},
]  # fmt: skip


def parse_domain_target(data: bytes) -> None:
    """Any text, or a damaged domain of either form."""
    choices = Choices(data)
    how = choices.number(4)
    if how == 0:
        text = choices.rest().decode(errors="surrogateescape")
    elif how == 1:
        text = mutate_json({"age": 85, "sex": 2, "a b": 1}, choices)
    elif how == 2:
        text = mutate_bytes(json.dumps(_DECLARED).encode(), choices).decode(errors="replace")
    else:
        text = mutate_json(_DECLARED, choices)
    raised_by(lambda: _check_domain(text), dp.InputError)


def _check_domain(text: str) -> None:
    domain = dp.parse_domain(text)
    again = dp.parse_domain(json.dumps(domain.to_json()))
    assert again == domain
    assert len(domain.names) == len(domain.shape) == domain.num_attributes
    record_names.avro_names(domain.names)


def parse_workload_target(data: bytes) -> None:
    """A specification, or a file of JSON lines, damaged or not."""
    choices = Choices(data)
    how = choices.number(5)
    if how == 0:
        spec = "marginals:" + choices.rest().decode(errors="surrogateescape")
    elif how == 1:
        good = b"marginals:age,hours;age, member;getting in/out of bed"
        spec = mutate_bytes(good, choices).decode(errors="replace")
    else:
        path = fuzz_folder() / "workload"
        if how == 2:
            path.write_bytes(choices.rest())
        elif how == 3:
            path.write_bytes(mutate_bytes(LINES.encode(), choices))
        else:
            lines = [json.loads(line) for line in LINES.splitlines() if line]
            written = [mutate_json(line, Choices(choices.bytes(24))) for line in lines]
            path.write_text("\n".join(written), encoding="utf-8")
        spec = str(path)
    raised_by(lambda: _check_workload(spec), dp.InputError)


def _check_workload(spec: str) -> None:
    workload = dp.parse_workload(spec, DOMAIN)
    assert isinstance(workload, dp.Workload)
    assert len(workload) == len(set(workload.marginals)) == len(workload.weights)
    assert workload.num_cells() >= len(workload)
    assert set(workload.maximal()) <= set(workload)


_AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "age", "type": ["null", "int", "double"]},
        {"name": "sex", "type": {"type": "enum", "name": "Sex", "symbols": ["F", "M"]}},
        {"name": "other", "type": ["null", "Sex"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
_BIGQUERY = [
    {"name": "age", "type": "INTEGER", "mode": "REQUIRED"},
    {"name": "home", "type": "RECORD", "fields": [{"name": "town", "type": "STRING"}]},
]
_JSON_SCHEMA = {
    "$defs": {"Sex": {"enum": ["F", "M"], "type": "string"}, "A": {"$ref": "#/$defs/Sex"}},
    "properties": {
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 120},
        "sex": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]},
        "at": {"type": ["string", "null"], "format": "date-time"},
    },
}
_SIZES = {"age": 85, "sex": {"type": "discrete", "domain": 2}, "x": {"min": 0, "max": 9.5}}
_DOMAIN = {
    "attributes": [
        {"name": "age", "type": "numeric", "edges": {"open": "list edges"}},
        {"name": "sex", "type": "categorical", "values": {"confirm": ["F", "M"]}},
    ],
    "impossible": [],
}
_JSON = (_AVRO, _BIGQUERY, _JSON_SCHEMA, _SIZES, _DOMAIN)
_SQL = b"""CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE visits (age INT NOT NULL CHECK (age >= 0 AND age < 120), m mood, "se""x" CHAR(1),
CONSTRAINT c CHECK ("se""x" IN ('F', 'M') AND (age BETWEEN -1 AND 2.5)), x DOUBLE PRECISION);"""


def draft_target(data: bytes) -> None:
    """A damaged schema: JSON of one of the kinds, SQL, or the header of an Avro file."""
    choices = Choices(data)
    how = choices.number(len(_JSON) + 3)
    name = "schema.json"
    if how < len(_JSON):
        text = mutate_json(_JSON[how], choices)
        content = text.encode("utf-8", "surrogatepass")
    elif how == len(_JSON):
        name, content = "schema.sql", mutate_bytes(_SQL, choices)
    elif how == len(_JSON) + 1:
        file = io.BytesIO()
        fastavro.writer(file, _AVRO, [], sync_marker=b"0" * 16)
        name, content = "schema.avro", mutate_bytes(file.getvalue(), choices)
    else:
        content = choices.rest()
    path = fuzz_folder() / name
    path.write_bytes(content)
    raised_by(lambda: _check_draft(str(path)), dp.InputError)


def _check_draft(path: str) -> None:
    """What was drafted is a file of JSON, and is a domain once nothing is open."""
    draft = dp.domain_draft(path)
    assert json.loads(draft.text()) == json.loads(json.dumps(draft.to_json()))
    draft.text().encode()
    if draft.open_points:
        raised_by(draft.domain, dp.InputError)
    else:
        draft.domain()


def _example(name: str) -> Callable[[bytes], None]:
    return partial(read_release_target, partial(drawn, name))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "read_release": partial(read_release_target, _database),
    "read_records": read_records_target,
    "read_sparse_release": _example("sketch"),
    "read_window": _example("window"),
    "read_intervals": _example("intervals"),
    "read_domain_release": _example("domain"),
    "read_horizon": read_horizon_target,
    "parse_domain": parse_domain_target,
    "parse_workload": parse_workload_target,
    "domain_draft": draft_target,
    "verify": verify_target,
}
