"""What every kind of release keeps: it is read as it was written, described, and refused damaged.

A kind of ``releases/parts.py`` without a release here fails the first test.
"""

import copy
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import fastavro
import numpy as np
import pytest
from forgeries import at, places
from intervals import all_intervals
from kind_examples import EXAMPLES, IMPOSSIBLE, drawn, intervals_of, listed_keys, sketch_of, unpack
from kinds_of_releases import RELEASES, released
from release_examples import release_of
from rich.console import Console
from window_examples import block_of, window_of
from written_draws import draw_of

import beam_dp as dp
from beam_dp.domain.files import domain_from_json
from beam_dp.mechanisms.intervals import GAUSSIAN, PURE
from beam_dp.releases.files.card import fingerprint
from beam_dp.releases.files.commit import Draw
from beam_dp.releases.kinds import release_from_bytes, release_to_bytes
from beam_dp.releases.parts import KINDS, view_of

# What a release of each kind is asked before and after it is read.
ASK: dict[str, Callable[[Any], Any]] = {
    "synthetic_database": lambda release: release.answer(release.workload),
    "intervals": lambda release: release.answer(*all_intervals(min(release.num_leaves, 1100))),
    "sparse_release": lambda release: release.answer(np.arange(8, dtype=np.uint64), np.ones(8)),
    "answers": lambda release: list(release.rows),
    "window_tables": lambda release: release.answer(release.workload),
    "domain": lambda release: (release.result, release.found),
}
RELATION = ", add_or_remove_one"
CASES: dict[str, Callable[[], Any]] = {
    **{f"example of {name}": make for name, make in EXAMPLES.items()},
    **{name: functools.partial(released, name) for name in RELEASES if RELATION in name},
    **{
        f"intervals {'/'.join(choice)} {each}": functools.partial(intervals_of, choice, 23, each)
        for choice in PURE + GAUSSIAN
        for each in dp.Neighboring
    },
    "windows above trees": functools.partial(intervals_of, PURE[0], 1100),
    "intervals in several blocks": functools.partial(
        intervals_of, ("histogram", "discrete_laplace"), 2**17 + 5
    ),
    "cells in several rows": sketch_of,
    "only a sketch": functools.partial(sketch_of, 300, histogram=False),
    "only listed counts": functools.partial(sketch_of, 300, sketch=False),
    "listed bytes": functools.partial(listed_keys, "bytes"),
    "no records": functools.partial(release_of, num_records=0, potentials=[]),
    "one record": functools.partial(release_of, num_records=1),
    "impossible combinations": functools.partial(release_of, IMPOSSIBLE),
    "public number": functools.partial(release_of, num_records_is_public=True),
    "one attribute": functools.partial(release_of, domain_from_json({"a": 3})),
    "window with one table": window_of,
    "block": functools.partial(block_of, 2),
}


def assert_equal(one: Any, other: Any) -> None:
    """Equal in every field: of dataclasses, too, whose arrays cannot be compared at once."""
    assert type(one) is type(other)
    if dataclasses.is_dataclass(one):
        assert_equal(vars(one), vars(other))
    elif isinstance(one, Mapping):
        assert list(one) == list(other)
        assert_equal(list(one.values()), list(other.values()))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_equal(mine, theirs)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


def test_every_kind_has_a_case():
    assert set(ASK) == set(KINDS)
    assert {make().KIND for make in EXAMPLES.values()} == set(KINDS)


@pytest.mark.parametrize("name", CASES)
def test_a_release_is_read_as_it_was_written(name, tmp_path):
    release = CASES[name]()
    before, ask = draw_of(release), ASK[release.KIND]
    dp.write_release(release, tmp_path / "out")
    for found in (
        dp.read_release(tmp_path / "out", kind=type(release)),
        release_from_bytes(release_to_bytes(release)),
        pickle.loads(pickle.dumps(release)),
    ):
        after = draw_of(found)
        assert (after.text, after.payload) == (before.text, before.payload)
        assert_equal(ask(found), ask(release))


def as_another_writer(schema: Any) -> Any:
    """Returns an equivalent schema: types as objects, attributes in another order."""
    if isinstance(schema, list):
        return [as_another_writer(each) for each in schema]
    if isinstance(schema, str):
        return {"other": 1, "type": schema}
    if schema["type"] == "record":
        fields = [
            {"doc": "d", "type": as_another_writer(each["type"]), "name": each["name"]}
            for each in schema["fields"]
        ]
        return {"fields": fields, "name": "a.Row", "type": "record"}
    return schema


@pytest.mark.parametrize("name", EXAMPLES)
def test_another_library_reads_the_files_and_writes_files_that_are_read(name):
    draw, payload = drawn(name), {}
    card, codecs = json.loads(draw.text), itertools.cycle(["bzip2", "null", "deflate"])
    for file, data in draw.payload.items():
        payload[file] = data
        if file.endswith(".avro"):
            rows, written = fastavro.reader(io.BytesIO(data)), io.BytesIO()
            schema, held = as_another_writer(rows.writer_schema), [*rows]
            about = {"metadata": rows.metadata, "sync_interval": 300}
            fastavro.writer(written, schema, held, next(codecs), **about)
            payload[file] = written.getvalue()
            stated = fingerprint(payload[file])
            card["files"][file] = {"sha256": stated.sha256, "bytes": stated.num_bytes}
    found = release_from_bytes(Draw(json.dumps(card).encode(), payload).to_bytes())
    assert draw_of(found).payload == draw.payload


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_card_states_the_promise_and_the_checksum_of_each_file(name, tmp_path):
    release = EXAMPLES[name]()
    dp.write_release(release, tmp_path)
    card = json.loads((tmp_path / "card.json").read_text())
    assert (card["schema_version"], card["kind"]) == (2, release.KIND)
    assert (card["draw_id"], card["guarantee"]) == (release.draw_id, release.guarantee.to_json())
    assert {"python", "numpy", "opendp", "beam_dp"} <= set(card["versions"])
    assert {path.name for path in tmp_path.iterdir()} == {"card.json", *card["files"]}
    for file, entry in card["files"].items():
        data = (tmp_path / file).read_bytes()
        assert entry == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_release_is_described_in_80_columns_with_its_promise(name):
    release = EXAMPLES[name]()
    console = Console(file=io.StringIO(), width=80)
    console.print(view_of(release.KIND).describe(release))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, shown.splitlines())) <= 80
    assert f"epsilon {release.guarantee.epsilon:g}" in " ".join(shown.split())
    assert release.draw_id in shown
    assert view_of(release.KIND).report(release, None).sections
    assert "\n" not in repr(release)
    assert len(repr(release)) < 300 or release.KIND == "answers"  # which shows its rows


@pytest.mark.parametrize("name", [*EXAMPLES, *(name for name in RELEASES if RELATION in name)])
def test_a_release_holds_no_object_that_knows_the_records(name):
    """Of what a pipeline passes from step to step, and what anybody may pickle."""
    release = EXAMPLES[name]() if name in EXAMPLES else released(name)
    data = pickle.dumps(release)
    for private in ("summaries", "encoding", "noise", "transforms"):
        assert f"beam_dp.{private}".encode() not in data


def damages(data: bytes) -> Iterator[bytes | None]:
    """A file that is damaged in several ways, or missing."""
    yield from (data[:10], data[:-1], data + b"x", b"", None)
    for place in (0, len(data) // 3, len(data) // 2, len(data) - 20):
        yield data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("name", EXAMPLES)
def test_any_damage_to_a_file_is_refused_in_one_line(name, tmp_path):
    draw = drawn(name)
    unpack(draw, tmp_path)
    dp.read_release(tmp_path)
    for file, good in draw.payload.items():
        for damaged in damages(good):
            (tmp_path / file).unlink(missing_ok=True)
            if damaged is not None:
                (tmp_path / file).write_bytes(damaged)
            assert_refused(lambda: dp.read_release(tmp_path))
        (tmp_path / file).write_bytes(good)
    whole = draw.to_bytes()
    for damaged in damages(whole):
        if damaged is not None and damaged[8 : 8 + len(draw.text)] != whole[8 : 8 + len(draw.text)]:
            continue  # a letter of the card, whose values are tried below
        if damaged is not None:
            assert_refused(lambda damaged=damaged: release_from_bytes(damaged))


def assert_refused(read: Callable[[], Any]) -> None:
    with pytest.raises(dp.ReleaseError) as caught:
        read()
    line = str(caught.value)
    assert "\n" not in line and len(line) < 1000


VALUES: list[Any] = [None, True, -1, 0, 2**80, 1.5, 1e999, "", "x" * 100, [], {}, [[]], {"a": 1}]


@pytest.mark.parametrize("name", EXAMPLES)
def test_any_value_in_a_field_of_a_card_is_read_or_refused_in_one_line(name):
    """Each field gets three of these values, in turn; ``fuzz`` tries more."""
    draw, values = drawn(name), itertools.cycle(VALUES)
    card, num_refused = json.loads(draw.text), 0
    for path in places(card):
        for value in itertools.islice(values, 3):
            changed = copy.deepcopy(card)
            *above, last = path
            at(changed, tuple(above))[last] = value
            text = json.dumps(changed).encode()
            try:
                release_from_bytes(Draw(text, draw.payload).to_bytes())
            except dp.ReleaseError as error:
                assert "\n" not in str(error) and len(str(error)) < 1500
                num_refused += 1
    assert num_refused > 20
