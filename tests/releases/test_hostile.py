"""Malicious releases are rejected in one line, quickly and with little memory."""

import bz2
import io
import json
import os
import pathlib
import tracemalloc
import zlib
from typing import Any

import pytest
from damaged_files import edited_card, refusal_line, replace_file
from executed_lines import lines_below
from kind_examples import EXAMPLES, drawn, unpack
from release_examples import DRAW, release_of

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.files import domain_from_json
from beam_dp.errors import shown
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.files.commit import probe_output
from beam_dp.releases.synthetic_database import records, records_avro as avro
from beam_dp.releases.synthetic_database.files import SCHEMAS
from beam_dp.storage.avro import HEADER, decode, encode, file_name, write_blocks
from beam_dp.views.synthetic_database import describe


def test_reads_domain_whose_size_python_cannot_print(tmp_path):
    """18 times 300 digits: more than Python prints of an integer. Such a release is valid."""
    dp.write_release(release_of(num_records=0, potentials=[]), tmp_path)
    names = [f"a{number}" for number in range(300)]
    with edited_card(tmp_path) as card:
        card["domain"] = dict.fromkeys(names, 2**62)
        card |= {"workload": {"marginals": [["a0"]], "weights": [1]}, "errors": []}
    for name, schema in (
        (records.records_file(DRAW), avro.records_schema(domain_from_json(card["domain"]))),
        (file_name(DRAW, "hypothesis"), SCHEMAS["hypothesis"]),
    ):
        purpose = name.partition("-")[0]
        data = write_blocks(schema, DRAW, purpose, [], deflate=purpose == "records")
        replace_file(tmp_path / name, data)
    release = dp.read_release(tmp_path)
    describe(release)
    with pytest.raises(dp.InputError, match=r"at most 2\^28 cells") as caught:
        release.answer(dp.Workload(release.domain, (tuple(names),)))
    assert len(str(caught.value)) < 3000


@pytest.mark.part
def test_impossible_combinations_take_little_work_and_memory(tmp_path):
    """Many combinations, over attributes with very many codes, each with many levels."""
    dp.write_release(release_of(), tmp_path)
    with edited_card(tmp_path) as card:
        integers = [{"name": f"a{i}", "type": "integer", "min": 0, "max": 2**61} for i in range(20)]
        values = {"name": "c", "type": "categorical", "values": list(range(20_000))}
        impossible = [
            {"c": [i], **{f"a{j}": [[i, 2**60 + i]] for j in range(20)}} for i in range(4096)
        ]
        card["domain"] = {"attributes": [*integers, values], "impossible": impossible}
        card |= {"workload": {"marginals": [["a0"]], "weights": [1]}, "errors": []}
    assert "hypothesis" in refusal_line(tmp_path, max_lines=10**8)


def test_rejects_sparse_file_of_eight_tebibytes(tmp_path):
    """A sparse file takes no disk space."""
    dp.write_release(release_of(), tmp_path)
    name = records.records_file(DRAW)
    try:
        with open(tmp_path / name, "r+b") as file:
            file.truncate(2**43)
    except OSError:
        pytest.skip("this filesystem holds no file of 8 TiB")
    with edited_card(tmp_path) as card:
        card["files"][name]["bytes"] = 2**43
    tracemalloc.start()
    assert "larger than the memory" in refusal_line(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_long_names_take_little_work_and_any_value_one_line():
    names = tuple(chr(0x4E00 + number) for number in range(20_000))
    with lines_below(4_000_000):
        assert len(set(avro.avro_names(names))) == len(names)
    domain = dp.parse_domain(json.dumps({"x" * 10**5: 2, "y" * 10**5: 3}))
    refusal = pytest.raises(dp.InputError, match="known are")
    with lines_below(1_000_000), refusal as caught:
        dp.parse_workload("marginals:" + "xy" * 10**5, domain)
    assert len(str(caught.value)) < 3000
    deep = []
    for _ in range(10**4):
        deep = [deep]
    for value in (deep, 10**5000, "x\n" * 10**6, [["a"] * 50] * 50, {str(n): n for n in range(99)}):
        line = shown(value)
        assert len(line) <= 400 and "\n" not in line
    while deep:  # freed from the outside in: Python's own way back is recursive
        deep = deep[0]


PROMISE = dp.Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
EXPANDED, ALLOWED = 2**27, 2**25
ROW = {"id": "1", "query": "{}", "value": 1.5, "standard_error": None, "bound": 2.0}
ROW |= {"route": "update", "updates_left": 3, "questions_left": None, "error": None}


def write_answers_of(folder: pathlib.Path, rows: int = 3) -> None:
    release = AnswersRelease(draw_id="a" * 32, guarantee=PROMISE, rows=[ROW] * rows, stated={})
    dp.write_release(release, folder)


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


@pytest.mark.parametrize("number", [1, 2**20])
@pytest.mark.parametrize("kind", EXAMPLES)
def test_rejects_endlessly_expanding_block_in_little_memory(tmp_path, bomb, kind, number):
    unpack(drawn(kind), tmp_path)
    dp.read_release(tmp_path)
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
    release: Any = dp.read_release(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(release.rows) == 10_000
    assert peak < 2**20


HOURS_AGO = 1.7e9


@pytest.fixture
def trials(tmp_path):
    """The folders of a trial that was killed long ago, and of one that runs."""
    old, new = tmp_path / ".draft-trial-old", tmp_path / ".draft-trial-new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "payload").write_bytes(b"payload")
    os.utime(old, (HOURS_AGO, HOURS_AGO))
    return old, new


def test_next_probe_removes_old_trials_and_leaves_running_ones(tmp_path, trials):
    probe_output(tmp_path / "out")
    assert [folder.exists() for folder in trials] == [False, True]


def test_finish_removes_old_trials_although_nothing_was_released(tmp_path, trials, capsys):
    assert main(["finish", str(tmp_path / "out")]) == 2
    assert "must be a directory that exists" in capsys.readouterr().err
    assert [folder.exists() for folder in trials] == [False, True]
