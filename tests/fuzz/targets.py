"""What is fuzzed: each target takes any bytes, and fails if a parser does what it must not."""

from __future__ import annotations

import io
import json
import math
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from fuzz.draft_target import draft_target
from fuzz.mutations import (
    CARD,
    Choices,
    fuzz_folder,
    mutate_bytes,
    mutate_json,
    raised_by,
    written_to_fuzz_folder,
)
from fuzz.release_targets import (
    read_horizon_target,
    read_records_target,
    read_sparse_release_target,
    read_window_target,
    stated,
)
from fuzz.verify_target import verify_target
from release_examples import DOMAIN, DRAW, release_of
from written_draws import draw_of

from beam_dp.domain.files import parse_domain
from beam_dp.errors import InputError
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.releases.files.avro import HEADER, decode, encode, file_name
from beam_dp.releases.files.card import ReleaseError, card_text
from beam_dp.releases.kinds import read_release
from beam_dp.releases.synthetic_database import records as record_names
from beam_dp.releases.synthetic_database.describe import (
    describe_synthetic_database as describe,
)
from beam_dp.releases.synthetic_database.measured_tables import (
    IndependentTables,
    MeasuredTable,
    NoisyMeasurements,
    PairDistances,
)
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

RECORDS = record_names.records_file(DRAW)
HYPOTHESIS = file_name(DRAW, "hypothesis")
LINES = (
    '{"marginal": ["age", "hours"]}\n\n{"marginal": ["member"], "weight": 2.5}\n'
    '{"marginal": ["getting in/out of bed"]}\n'
)


@cache
def _good() -> tuple[SyntheticDatabase, dict[str, bytes]]:
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
    release = release_of(
        domain,
        num_records=40,
        noise=[each.to_json() for each in described],
        measurements=NoisyMeasurements(described, tables, False, distances),
    )
    return release, dict(draw_of(release).payload)


def _card_of(files: dict[str, bytes]) -> Any:
    """The card as parsed JSON; its checksums are those of the files, damaged or not."""
    return json.loads(card_text("synthetic_database", DRAW, _good()[0].card, stated(files)))


def _with_mutated_block(good: bytes, choices: Choices, *, deflate: bool = False) -> bytes:
    """A container whose header stands, and whose one block is damaged before it is packed."""
    file = io.BytesIO(good)
    sync = decode(HEADER, file)["sync"]
    header = good[: file.tell()]
    decode("long", file)
    block = decode("bytes", file)
    if deflate:
        block = zlib.decompress(block, wbits=-15)
    num_records = choices.one_of([40, 39, 41, 0, 1, -1, 2**40, 2**62])
    block = mutate_bytes(block, choices)
    if deflate:
        packer = zlib.compressobj(wbits=-15)
        block = packer.compress(block) + packer.flush()
    return header + encode("long", num_records) + encode("bytes", block) + sync


def read_release_target(data: bytes) -> None:
    """A valid release, damaged in its card, in a file, or inside a file; checksums made to fit."""
    choices = Choices(data)
    how = choices.number(7)
    files = dict(_good()[1])
    card: bytes | None = None
    if how == 0:
        card = choices.rest()
    elif how == 1:
        text = json.dumps(_card_of(files), ensure_ascii=False)
        card = mutate_bytes(text.encode(), choices)
    elif how == 2:
        name = choices.one_of(sorted(files))
        files[name] = mutate_bytes(files[name], choices)
    elif how == 3:
        files[RECORDS] = _with_mutated_block(files[RECORDS], choices, deflate=True)
    elif how == 4:
        files[HYPOTHESIS] = _with_mutated_block(files[HYPOTHESIS], choices)
    elif how >= 5:
        card = mutate_json(_card_of(files), choices).encode()
    if card is None:
        card = json.dumps(_card_of(files)).encode()
    folder = written_to_fuzz_folder({CARD: card, **files})
    raised_by(lambda: _use(read_release(folder)), ReleaseError)


def _use(release: SyntheticDatabase) -> None:
    """What was read is a release: it can be described, asked, and written again."""
    assert isinstance(release, SyntheticDatabase)
    for row in release.query().group_by(release.domain.names[0]).count().rows():
        assert math.isfinite(row["count"])
        assert row["reason"] if row["margin"] is None else math.isfinite(row["margin"])
    assert int(release.counts.sum()) == release.num_records
    repr(release)
    describe(release)
    card_text("synthetic_database", release.draw_id, release.card, {}).encode()
    draw_of(release)


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
    raised_by(lambda: _check_domain(text), InputError)


def _check_domain(text: str) -> None:
    domain = parse_domain(text)
    again = parse_domain(json.dumps(domain.to_json()))
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
    raised_by(lambda: _check_workload(spec), InputError)


def _check_workload(spec: str) -> None:
    workload = parse_workload(spec, DOMAIN)
    assert isinstance(workload, Workload)
    assert len(workload) == len(set(workload.marginals)) == len(workload.weights)
    assert workload.num_cells() >= len(workload)
    assert set(workload.maximal()) <= set(workload)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "read_release": read_release_target,
    "read_records": read_records_target,
    "read_sparse_release": read_sparse_release_target,
    "read_window": read_window_target,
    "read_horizon": read_horizon_target,
    "parse_domain": parse_domain_target,
    "parse_workload": parse_workload_target,
    "domain_draft": draft_target,
    "verify": verify_target,
}
