"""Families of conjunctions over rows of bits, each compared with a scan of all rows."""

import json
from itertools import product

import pytest

from beam_dp.domain.files import read_domain
from beam_dp.hashing.keys import HashKey
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.queries.row_families import (
    RowConjunctions,
    conjunction_of_text,
    names_row_conjunctions,
    parse_row_conjunctions,
)
from beam_dp.queries.sparse_reader import SparseQueries


@pytest.mark.parametrize("form", ["conjunctions", "monotone_conjunctions"])
def test_family_matches_conjunctions_over_a_dense_domain(form):
    domain = read_domain(json.dumps({f"a{bit}": 2 for bit in range(5)}))
    dense = {tuple(query.values()) for query in parse_linear_workload(f"{form}:3", domain)}
    rows = list(map("".join, product("01", repeat=5)))
    family = parse_row_conjunctions(f"{form.replace('conj', 'row_conj')}:5,3")
    held = [set(conjunction_of_text(text).elements) for text in family]
    assert {tuple(float(row in each) for row in rows) for each in held} == dense


def test_file_name_is_not_taken_for_a_query_family():
    assert not any(map(names_row_conjunctions, ("row_conjunctions", "q.jsonl", "C:row.json")))


def test_reads_row_conjunctions_from_lines_of_a_file():
    reader = SparseQueries("text", 4, HashKey.draw(1))
    (first, *_) = RowConjunctions(5, 3).to_json()
    assert reader.from_json(first).elements == ("00000", "00001", "00010", "00011")
    as_bytes = SparseQueries("bytes", 4, HashKey.draw(1)).from_json({"row_conjunction": "1*"})
    assert as_bytes.elements == (b"10", b"11")
