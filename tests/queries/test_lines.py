"""Queries as lines of JSON and as conditions, and workloads of marginals."""

import json
from itertools import combinations

import pytest
from hypothesis import given, settings, strategies as st

import beam_dp as dp
from beam_dp.domain.files import domain_from_json
from beam_dp.queries.lines import expand_line, read_line
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


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("", "is not JSON at line 1, column 1"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"id": true, "parity": {}}', "id: True is not valid"),
        ('{"values": [0, 0, 2, 0]}', "every value must be from 0 to 1"),
        ('{"values": [NaN, 0, 0, 0]}', "NaN is not a JSON number"),
        ('{"prefix": {}, "prefix": {}}', "the key 'prefix' must appear once"),
        ('{"conjunction": {"sx": "f"}}', "'sx' is not an attribute"),
        ('{"conjunction": {"sex": "x"}}', "'x' is not one of its levels"),
        ('{"conjunction": {}, "parity": {}}', "must be an object with one of"),
        ('{"id": "\\ud800", "prefix": {}}', "prefix must have attribute, high"),
    ],
)
def test_invalid_line_gives_an_error(line, error):
    found = read_line(QUERIES, line)
    assert found.query is None and error in found.error


def test_valid_line_gives_a_query():
    found = read_line(QUERIES, '{"id": 5, "conjunction": {"sex": "f"}}')
    assert found.id == "5" and found.error is None
    assert found.query == QUERIES.conjunction({"sex": "f"})
    assert json.loads(found.text) == {"conjunction": {"sex": "f"}}


def test_marginal_has_at_most_as_many_cells_as_there_may_be_queries(monkeypatch):
    monkeypatch.setattr("beam_dp.queries.lines.MAX_QUERIES", 20)
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
