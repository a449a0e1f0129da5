"""Sparse queries and families of them: their values, and files that match Python."""

import json
import pickle
import subprocess
import sys
from itertools import product

import pytest

import beam_dp as dp
from beam_dp.hashing.keys import HashKey
from beam_dp.queries.row_families import (
    conjunction_of_text,
    names_row_conjunctions,
    parse_row_conjunctions,
)
from beam_dp.queries.sparse_reader import SparseQueries, read_sparse_query, with_plain_keys


def value_at(query: dp.SparseQuery, element) -> float:
    return query.count({element: 1}) / 2**16


def test_values_are_on_the_grid_and_zeros_are_dropped():
    query = dp.SparseQuery({"a": 0.3, "b": 0, "c": 1, "d": 2**-17, "e": 2**-16})
    assert query.elements == ("a", "c", "e")
    assert query.numerators == (round(0.3 * 2**16), 2**16, 1)
    assert value_at(query, "b") == value_at(query, "d") == value_at(query, "z") == 0


def test_keys_of_different_types_are_distinct():
    query = dp.SparseQuery({"1": 1.0, b"1": 0.5, 1: 0.25})
    assert [value_at(query, each) for each in ("1", b"1", 1)] == [1.0, 0.5, 0.25]
    assert dp.SparseQuery({"1": 1}) != dp.SparseQuery({1: 1})
    assert dp.SparseQuery.from_json(json.loads(json.dumps(query.to_json()))) == query


def test_queries_with_the_same_values_are_equal_and_have_equal_hashes():
    one = dp.SparseQuery({"a": 1, "b": 0.5, "c": 0})
    other = dp.SparseQuery([("b", 0.5), ("a", 1.0)])
    assert one == other and hash(one) == hash(other) and len({one, other}) == 1
    assert one != dp.SparseQuery({"a": 1, "b": 0.25}) and one != {"a": 1, "b": 0.5}
    assert dp.SparseQuery({}).sparsity == 0 == dp.SparseQuery({}).count({"a": 3})


def test_sums_are_exact():
    query = dp.SparseQuery({"a": 1, "b": 2**-16})
    big = 2**46 + 1
    assert query.count({"a": big, "b": 3}) == big * 2**16 + 3
    assert dp.SparseQuery.of_list("ab").count({"a": big, "c": 5}) == big * 2**16
    assert query.weigh({"a": 0.5}, 0.25) == 0.5 + 0.25 / 2**16
    assert dp.SparseQuery.of_list("ab").weigh({"a": 0.5}, 0.25) == 0.75


@pytest.mark.job
def test_queries_are_immutable_and_picklable():
    query = dp.SparseQuery({"a": 1, b"b": 0.5, 3: 0.25})
    with pytest.raises(AttributeError):
        query.elements = ()
    # Another process hashes text differently.
    code = (
        "import pickle, sys; query = pickle.loads(bytes.fromhex(sys.argv[1]));"
        "from beam_dp.queries.sparse import SparseQuery;"
        "print(query in {SparseQuery({'a': 1, b'b': 0.5, 3: 0.25}): 0})"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, pickle.dumps(query).hex()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "True"


def test_reads_keys_and_values_from_files(tmp_path):
    lines = tmp_path / "keys.tsv"
    lines.write_text("alice@example.org\nbob@example.org\t0.5\nodd\tkey\t1\n", encoding="utf-8")
    expected = dp.SparseQuery({"alice@example.org": 1, "bob@example.org": 0.5, "odd\tkey": 1})
    assert read_sparse_query(lines) == expected
    lines.write_bytes("\ufeffa\r\nb\u2028c\t0.25\r\n".encode())
    assert read_sparse_query(str(lines)) == dp.SparseQuery({"a": 1, "b\u2028c": 0.25})
    lines.write_bytes(b"a\r\nb")
    assert read_sparse_query(lines) == dp.SparseQuery({"a": 1, "b": 1})
    # A carriage return is part of a key unless all lines end with one.
    lines.write_bytes(b"a\rb\nc\r\n")
    assert read_sparse_query(lines) == dp.SparseQuery({"a\rb": 1, "c\r": 1})
    lines.write_text("17\n-3\t0\n4\t1e-1\n5.0", encoding="utf-8")
    assert read_sparse_query(lines, keys="integer") == dp.SparseQuery({17: 1, 4: 0.1, 5: 1})
    written = tmp_path / "query.json"
    written.write_text(json.dumps(expected.to_json()), encoding="utf-8")
    assert read_sparse_query(written) == expected
    lines.write_text("")
    assert read_sparse_query(lines).sparsity == 0


def test_keys_of_queries_are_read_like_keys_of_records():
    query = dp.SparseQuery({"7.0": 1, "07.0": 0.5, b"-8.0": 0.25, 9: 1, "a.0": 1})
    plain = dp.SparseQuery({"7": 1, "07.0": 0.5, b"-8": 0.25, 9: 1, "a.0": 1})
    assert with_plain_keys(query) == plain
    assert with_plain_keys(plain) is plain
    reader = SparseQueries("text", 2, HashKey.draw(1))
    assert reader.from_json({"sparse": {"7.0": 1}}) == dp.SparseQuery({"7": 1})


@pytest.mark.parametrize("form", ["conjunctions", "monotone_conjunctions"])
def test_family_matches_conjunctions_over_a_dense_domain(form):
    domain = dp.read_domain(json.dumps({f"a{bit}": 2 for bit in range(5)}))
    dense = {tuple(query.values()) for query in dp.parse_linear_workload(f"{form}:3", domain)}
    rows = list(map("".join, product("01", repeat=5)))
    family = parse_row_conjunctions(f"{form.replace('conj', 'row_conj')}:5,3")
    held = [set(conjunction_of_text(text).elements) for text in family]
    assert {tuple(float(row in each) for row in rows) for each in held} == dense


def test_file_name_is_not_taken_for_a_query_family():
    assert not any(map(names_row_conjunctions, ("row_conjunctions", "q.jsonl", "C:row.json")))


def test_reads_row_conjunctions_from_lines_of_a_file():
    reader = SparseQueries("text", 4, HashKey.draw(1))
    (first, *_) = dp.RowConjunctions(5, 3).to_json()
    assert reader.from_json(first).elements == ("00000", "00001", "00010", "00011")
    as_bytes = SparseQueries("bytes", 4, HashKey.draw(1)).from_json({"row_conjunction": "1*"})
    assert as_bytes.elements == (b"10", b"11")
