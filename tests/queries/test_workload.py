import json
from itertools import combinations

from hypothesis import given, strategies as st

from beam_dp.domain.files import domain_from_json
from beam_dp.queries.workload import Workload, marginals, parse_workload, workload_from_json

DOMAIN = domain_from_json({"age": 85, "sex": 2, "education": 16, "a,b; c": 3})


def test_lists_every_set_of_k_attributes():
    workload = parse_workload("marginals:2", DOMAIN)
    assert workload.marginals == tuple(combinations(DOMAIN.names, 2))
    assert workload == marginals(DOMAIN, ways=2)
    assert workload.num_cells() == 85 * 2 + 85 * 16 + 85 * 3 + 2 * 16 + 2 * 3 + 16 * 3
    assert len(workload) == 6 and workload.weights == (1.0,) * 6


def test_listed_marginals_are_put_in_domain_order():
    workload = parse_workload("marginals:sex, age;education", DOMAIN)
    assert workload.marginals == (("age", "sex"), ("education",))
    assert workload == marginals(DOMAIN, attributes=[["age", "sex"], ["education"]])
    assert marginals(DOMAIN, attributes=["sex", "age"]).marginals == (("age", "sex"),)
    assert marginals(DOMAIN, ways=1, attributes=["sex", "age"]).marginals == (("age",), ("sex",))


def test_reads_a_file_of_json_lines(tmp_path):
    path = tmp_path / "workload.jsonl"
    path.write_text('{"marginal": ["sex", "a,b; c"]}\n\n{"marginal": ["age"], "weight": 2}\r\n')
    workload = parse_workload(str(path), DOMAIN)
    assert workload.marginals == (("sex", "a,b; c"), ("age",))
    assert workload.weights == (1.0, 2.0)
    assert parse_workload(path.read_text(), DOMAIN) == workload  # the lines themselves


tables = st.lists(
    st.lists(st.sampled_from(DOMAIN.names), min_size=1, unique=True), min_size=1, max_size=8
).map(lambda lists: list({frozenset(names): names for names in lists}.values()))


@given(tables)
def test_closure_and_maximal_agree_with_their_definitions(names):
    workload = Workload(DOMAIN, tuple(names))
    sets = [frozenset(each) for each in workload.marginals]
    expected = {s for s in sets if not any(s < t for t in sets)}
    assert {frozenset(each) for each in workload.maximal()} == expected
    subsets = {frozenset(c) for s in sets for k in range(5) for c in combinations(s, k)}
    closure = workload.closure()
    assert len(closure) == len(subsets) and {frozenset(each) for each in closure} == subsets
    assert all(each == tuple(n for n in DOMAIN.names if n in each) for each in closure)
    assert list(map(len, closure)) == sorted(map(len, closure))


@given(tables, st.data())
def test_workload_round_trips_through_json(names, data):
    weight = st.floats(0.01, 100)
    weights = data.draw(st.lists(weight, min_size=len(names), max_size=len(names)))
    workload = Workload(DOMAIN, tuple(names), tuple(weights))
    assert workload_from_json(json.loads(json.dumps(workload.to_json())), DOMAIN) == workload
