"""Small files that would fill the memory: every kind of release rejects them in one line."""

from __future__ import annotations

import bz2
import io
import pathlib
import re
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pytest
from damaged_files import edited_card, refusal_line, replace_file
from noise_sources import Seeded
from open_domains import domain_release
from release_examples import release_of
from window_examples import window_of

from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.intervals.plan import plan_intervals, release_intervals
from beam_dp.mechanisms.sketches.mechanisms import CountSketch
from beam_dp.mechanisms.sketches.plan import SparseSummary, release_sparse
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.answers.files import read_rows
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.files.avro import HEADER, decode, encode
from beam_dp.releases.kinds import read_release, write_release
from beam_dp.storage.store import DamagedFileError
from beam_dp.summaries.projection import Projection

PROMISE = Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
EXPANDED, ALLOWED = 2**27, 2**25
ROW = {"id": "1", "query": "{}", "value": 1.5, "standard_error": None, "bound": 2.0}
ROW |= {"route": "update", "updates_left": 3, "questions_left": None, "error": None}


def write_answers_of(folder: pathlib.Path, rows: int = 3) -> None:
    release = AnswersRelease(draw_id="a" * 32, guarantee=PROMISE, rows=[ROW] * rows, stated={})
    write_release(release, folder)


def write_intervals(folder: pathlib.Path) -> None:
    counts = np.arange(8)
    write_release(release_intervals(plan_intervals(8, PROMISE), counts, Seeded(1)), folder)


def write_sketch(folder: pathlib.Path) -> None:
    plan = CountSketch(63, 3).plan(PROMISE, max_sparsity=2, hash_key=HashKey.draw(8))
    assert plan.sketch is not None
    sums = np.zeros(plan.sketch.signs(plan.hash_key).projection_width, np.int64)
    write_release(release_sparse(plan, SparseSummary(Projection(sums)), Seeded(1)), folder)


WRITERS: dict[str, Callable[[pathlib.Path], object]] = {
    "synthetic_database": lambda folder: write_release(release_of(), folder),
    "intervals": write_intervals,
    "sparse_release": write_sketch,
    "answers": write_answers_of,
    "window_tables": lambda folder: write_release(window_of(), folder),
    "domain": lambda folder: write_release(domain_release(), folder),
}


@pytest.fixture(scope="module", params=["deflate", "bzip2"])
def bomb(request) -> tuple[bytes, bytes]:
    """A codec, and a small block that expands to ``EXPANDED`` bytes."""
    is_deflate = request.param == "deflate"
    compressor: Any = zlib.compressobj(1, wbits=-15) if is_deflate else bz2.BZ2Compressor()
    zeros = bytes(2**20)
    parts = [compressor.compress(zeros) for _ in range(EXPANDED // len(zeros))]
    return request.param.encode(), b"".join([*parts, compressor.flush()])


def with_block(data: bytes, number: int, block: bytes, codec: bytes = b"deflate") -> bytes:
    """Returns the header of a file, with another codec, and one block."""
    header = decode(HEADER, io.BytesIO(data))
    header["meta"]["avro.codec"] = codec
    return encode(HEADER, header) + encode("long", number) + encode("bytes", block) + header["sync"]


def test_every_kind_of_release_has_a_test_writer(tmp_path):
    write_release(release_of(), tmp_path)
    with edited_card(tmp_path) as card:
        card["kind"] = "other"
    known = set(re.findall("'([a-z_]+)'", refusal_line(tmp_path).partition("card.json")[2])) - {
        "other"
    }
    assert known == set(WRITERS)


@pytest.mark.parametrize("number", [1, 2**20])
@pytest.mark.parametrize("kind", WRITERS)
def test_rejects_endlessly_expanding_block_in_little_memory(tmp_path, bomb, kind, number):
    WRITERS[kind](tmp_path)
    read_release(tmp_path)
    for path in sorted(tmp_path.glob("*.avro")):
        original = path.read_bytes()
        good = (tmp_path / "card.json").read_bytes()
        replace_file(path, with_block(original, number, bomb[1], bomb[0]))
        with edited_card(tmp_path) as card:
            card |= {"num_answers": number} if kind == "answers" else {}
        tracemalloc.start()
        refusal_line(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < ALLOWED
        path.write_bytes(original)
        (tmp_path / "card.json").write_bytes(good)


def test_answers_use_memory_in_proportion_to_their_file(tmp_path):
    write_answers_of(tmp_path, 2)
    (path,) = tmp_path.glob("answers-*.avro")
    null = bytes(9)  # of nine fields
    replace_file(path, with_block(path.read_bytes(), 10_000, null * 10_000, b"null"))
    with edited_card(tmp_path) as card:
        card["num_answers"] = 10_000
    tracemalloc.start()
    release: Any = read_release(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(release.rows) == 10_000
    assert peak < 2**20


def test_any_avro_reader_reads_answers(tmp_path):
    write_answers_of(tmp_path, 12_000)
    (path,) = tmp_path.glob("answers-*.avro")
    with path.open("rb") as file:
        assert list(fastavro.reader(file)) == [ROW] * 12_000
    assert list(read_rows(path.read_bytes())) == [ROW] * 12_000


@pytest.mark.parametrize("number", [2, 4, True, -1, "3", None])
def test_rejects_answers_whose_number_differs_from_the_card(tmp_path, number):
    write_answers_of(tmp_path)
    with edited_card(tmp_path) as card:
        card["num_answers"] = number
    refusal_line(tmp_path)


def test_damaged_answers_raise_damaged_file_error_or_keep_their_number(tmp_path):
    write_answers_of(tmp_path)
    (path,) = tmp_path.glob("answers-*.avro")
    original = path.read_bytes()
    for place in range(len(original)):
        for value in (0, 0x7F, 0xFF):
            try:
                rows = read_rows(original[:place] + bytes([value]) + original[place + 1 :], 3)
            except DamagedFileError:
                continue
            assert len(list(rows)) == 3
    for length in range(len(original)):
        with pytest.raises(DamagedFileError):
            read_rows(original[:length], 3)
