"""Queries as lines of JSON, workloads of marginals, and sparse queries and their families."""

import json
import pickle
import subprocess
import sys
from itertools import combinations, product

import pytest
from hypothesis import given, settings, strategies as st

import beam_dp as dp
from beam_dp.domain.files import domain_from_json
from beam_dp.queries.reader import expand_line, read_line
from beam_dp.queries.sparse import conjunction_of_text, parse_row_conjunctions, read_sparse_query
from beam_dp.queries.workload import Workload, parse_workload, workload_from_json

DOMAIN = dp.parse_domain(
    '{"attributes": [{"name": "age", "type": "numeric", "edges": [0, 20, 40]},'
    ' {"name": "sex", "type": "categorical", "values": ["f", "m"]}]}',
    source="here",
)
QUERIES = dp.LinearQueries(DOMAIN)
FORMS = "conjunction disjunction not marginal interval prefix parity values codes numerators id"
FORMS = tuple(FORMS.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(FORMS),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FORMS) | st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(FORMS), JSON) | JSON)
def test_any_line_gives_a_query_or_an_error(held):
    for line in (held, json.dumps(held)):
        found = read_line(QUERIES, line)
        assert (found.query is None) != (found.error is None)
        for text in (found.id, found.text, found.error):
            assert text is None or len(text.encode()) <= 8000
        assert found.error is None or "\n" not in found.error


def test_valid_line_gives_a_query():
    found = read_line(QUERIES, '{"id": 5, "conjunction": {"sex": "f"}}')
    assert found.id == "5" and found.error is None
    assert found.query == QUERIES.conjunction({"sex": "f"})
    assert json.loads(found.text) == {"conjunction": {"sex": "f"}}


def test_marginal_has_at_most_as_many_cells_as_there_may_be_queries(monkeypatch):
    monkeypatch.setattr("beam_dp.queries.reader.MAX_QUERIES", 20)
    queries = dp.LinearQueries(dp.read_domain('{"a": 20, "b": 2}'))
    assert len(expand_line(queries, '{"marginal": ["a"]}')) == 20
    with pytest.raises(dp.InputError, match=r"^query: .* must have at most 20 cells$"):
        expand_line(queries, '{"marginal": ["a", "b"]}')


def test_expands_marginal_of_weight_one_and_rejects_other_weights():
    plain = expand_line(QUERIES, '{"marginal": ["sex"]}')
    assert len(plain) == 2
    assert expand_line(QUERIES, '{"marginal": ["sex"], "weight": 1.0}') == plain
    for weight in ("2", "true", '"1"', "null"):
        line = f'{{"marginal": ["sex"], "weight": {weight}}}'
        assert expand_line(QUERIES, line) == [line]
        assert read_line(QUERIES, line).query is None


# Workloads of marginals.


PEOPLE = domain_from_json({"age": 85, "sex": 2, "education": 16, "a,b; c": 3})


def test_reads_a_file_of_json_lines(tmp_path):
    path = tmp_path / "workload.jsonl"
    path.write_text('{"marginal": ["sex", "a,b; c"]}\n\n{"marginal": ["age"], "weight": 2}\r\n')
    workload = parse_workload(str(path), PEOPLE)
    assert workload.marginals == (("sex", "a,b; c"), ("age",))
    assert workload.weights == (1.0, 2.0)
    assert parse_workload(path.read_text(), PEOPLE) == workload  # the lines themselves


tables = st.lists(
    st.lists(st.sampled_from(PEOPLE.names), min_size=1, unique=True), min_size=1, max_size=8
).map(lambda lists: list({frozenset(names): names for names in lists}.values()))


@given(tables)
def test_closure_and_maximal_agree_with_their_definitions(names):
    workload = Workload(PEOPLE, tuple(names))
    sets = [frozenset(each) for each in workload.marginals]
    expected = {s for s in sets if not any(s < t for t in sets)}
    assert {frozenset(each) for each in workload.maximal()} == expected
    subsets = {frozenset(c) for s in sets for k in range(5) for c in combinations(s, k)}
    closure = workload.closure()
    assert len(closure) == len(subsets) and {frozenset(each) for each in closure} == subsets
    assert all(each == tuple(n for n in PEOPLE.names if n in each) for each in closure)
    assert list(map(len, closure)) == sorted(map(len, closure))


@given(tables, st.data())
def test_workload_round_trips_through_json(names, data):
    weight = st.floats(0.01, 100)
    weights = data.draw(st.lists(weight, min_size=len(names), max_size=len(names)))
    workload = Workload(PEOPLE, tuple(names), tuple(weights))
    assert workload_from_json(json.loads(json.dumps(workload.to_json())), PEOPLE) == workload


# Sparse queries and families of them: their values, and files that match Python.


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
