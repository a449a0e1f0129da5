"""Families of conjunctions over rows of bits, each compared with a scan of all rows."""

import json
from itertools import product
from math import comb

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


@pytest.mark.parametrize("is_monotone", [True, False])
@pytest.mark.parametrize(("d", "w"), [(1, 1), (4, 1), (5, 3), (6, 4), (6, 6)])
def test_family_is_complete_and_each_conjunction_matches_its_rows(d, w, is_monotone):
    family = RowConjunctions(d, w, is_monotone)
    texts = list(family)
    every = {"".join(letters) for letters in product("1*" if is_monotone else "01*", repeat=d)}
    assert len(texts) == len(family) == comb(d, w) * (1 if is_monotone else 2**w)
    assert set(texts) == {text for text in every if d - text.count("*") == w}
    for text in texts:
        held = conjunction_of_text(text).elements
        rows = map("".join, product("01", repeat=d))
        fits = [row for row in rows if all(t in ("*", r) for t, r in zip(text, row, strict=True))]
        assert list(held) == fits and len(held) == family.sparsity == 2 ** (d - w)


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
