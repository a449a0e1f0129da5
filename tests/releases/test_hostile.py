"""Malicious releases are rejected in one line, quickly and with little memory."""

import json
import tracemalloc

import pytest
from damaged_files import edited_card, refusal_line, replace_file
from executed_lines import lines_below
from release_examples import DRAW, release_of

from beam_dp.domain.files import domain_from_json, parse_domain
from beam_dp.errors import InputError, shown
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.releases.files.avro import file_name, write_blocks
from beam_dp.releases.kinds import read_release, write_release
from beam_dp.releases.synthetic_database import records, records_avro as avro
from beam_dp.releases.synthetic_database.describe import describe_synthetic_database as describe
from beam_dp.releases.synthetic_database.files import SCHEMAS


@pytest.fixture
def hostile(tmp_path):
    """Writes a release with a changed card, and returns the error line."""

    def refusal(change, raw=("", "")):
        write_release(release_of(), tmp_path)
        with edited_card(tmp_path) as card:
            change(card)
        path = tmp_path / "card.json"
        path.write_text(path.read_text().replace(*raw) if raw[0] else path.read_text())
        line = refusal_line(tmp_path, max_lines=10**8)
        line.encode()
        return line

    return refusal


@pytest.mark.parametrize("depth", [70, 300, 480, 700, 900, 3000, 10**5])
@pytest.mark.parametrize("place", ["parameters", "fit", "noise", "guarantee", "domain", "workload"])
def test_rejects_deep_nesting(hostile, place, depth):
    """Python's parser allows deeper nesting than Python's functions can follow."""

    def change(card):
        card[place] = ["@"] if place == "noise" else {"a": "@"}

    line = hostile(change, ('"@"', "[" * depth + "]" * depth))
    assert "nested" in line


def test_reads_domain_whose_size_python_cannot_print(tmp_path):
    """18 times 300 digits: more than Python prints of an integer. Such a release is valid."""
    write_release(release_of(num_records=0, potentials=[]), tmp_path)
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
    release = read_release(tmp_path)
    describe(release)
    with pytest.raises(InputError, match=r"at most 2\^28 cells") as caught:
        release.answer(Workload(release.domain, (tuple(names),)))
    assert len(str(caught.value)) < 3000


@pytest.mark.part
def test_impossible_combinations_take_little_work_and_memory(hostile):
    """Many combinations, over attributes with very many codes, each with many levels."""

    def change(card):
        integers = [{"name": f"a{i}", "type": "integer", "min": 0, "max": 2**61} for i in range(20)]
        values = {"name": "c", "type": "categorical", "values": list(range(20_000))}
        impossible = [
            {"c": [i], **{f"a{j}": [[i, 2**60 + i]] for j in range(20)}} for i in range(4096)
        ]
        card["domain"] = {"attributes": [*integers, values], "impossible": impossible}
        card |= {"workload": {"marginals": [["a0"]], "weights": [1]}, "errors": []}

    assert "hypothesis" in hostile(change)


def test_rejects_sparse_file_of_eight_tebibytes(tmp_path):
    """A sparse file takes no disk space."""
    write_release(release_of(), tmp_path)
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


def test_colliding_avro_names_are_made_unique_in_less_than_quadratic_time():
    names = tuple(chr(0x4E00 + number) for number in range(20_000))
    with lines_below(4_000_000):
        assert len(set(avro.avro_names(names))) == len(names)


def test_suggesting_a_similar_name_takes_little_work():
    domain = parse_domain(json.dumps({"x" * 10**5: 2, "y" * 10**5: 3}))
    refusal = pytest.raises(InputError, match="known are")
    with lines_below(1_000_000), refusal as caught:
        parse_workload("marginals:" + "xy" * 10**5, domain)
    assert len(str(caught.value)) < 3000


def test_any_value_is_shown_in_one_short_line():
    deep = []
    for _ in range(10**4):
        deep = [deep]
    for value in (deep, 10**5000, "x\n" * 10**6, [["a"] * 50] * 50, {str(n): n for n in range(99)}):
        line = shown(value)
        assert len(line) <= 400 and "\n" not in line
    while deep:  # freed from the outside in: Python's own way back is recursive
        deep = deep[0]
