"""Sparse queries and families of them: their values, and files that match Python."""

import json
import pickle
import subprocess
import sys
from itertools import product

import pytest

import beam_dp as dp
from beam_dp.queries.row_families import conjunction_of_text, parse_row_conjunctions
from beam_dp.queries.sparse_reader import read_sparse_query


def test_query_round_trips_through_json():
    query = dp.SparseQuery({"1": 1.0, b"1": 0.5, 1: 0.25})
    assert dp.SparseQuery.from_json(json.loads(json.dumps(query.to_json()))) == query


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


@pytest.mark.parametrize("form", ["conjunctions", "monotone_conjunctions"])
def test_family_matches_conjunctions_over_a_dense_domain(form):
    domain = dp.read_domain(json.dumps({f"a{bit}": 2 for bit in range(5)}))
    dense = {tuple(query.values()) for query in dp.parse_linear_workload(f"{form}:3", domain)}
    rows = list(map("".join, product("01", repeat=5)))
    family = parse_row_conjunctions(f"{form.replace('conj', 'row_conj')}:5,3")
    held = [set(conjunction_of_text(text).elements) for text in family]
    assert {tuple(float(row in each) for row in rows) for each in held} == dense
