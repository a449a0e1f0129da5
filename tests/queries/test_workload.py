import json
import math
from itertools import combinations

import pytest
from hypothesis import given, strategies as st
from refusals import refusal

from beam_dp.domain.files import domain_from_json
from beam_dp.errors import InputError
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


@pytest.mark.parametrize(
    ("spec", "condition"),
    [
        ("marginals:agee", "'agee' is not an attribute; the nearest known is 'age'"),
        ("marginals:", "'' is not an attribute; known are 'age', 'sex'"),
        ("marginals:age,age", "'age,age' is not valid: a marginal must name an attribute once"),
        ("marginals:age,sex;sex,age", "'age,sex' is not valid: must list each marginal once"),
        ("marginals:0", "must be an integer from 1 to 4"),
        ("marginals:5", "must be an integer from 1 to 4"),
        ("marginals:-1", "must be an integer from 1 to 4"),
        ("marginals:" + "9" * 5000, "is too long a number"),
        ("conjunctions:2", "must be of marginals; known are 'marginals:3'"),
        ("intervals:age", "must be of marginals; known are 'marginals:3'"),
        ("marginal:3", "cannot be read as a file (No such file or directory); known are"),
        ("nul\0byte", "cannot be read as a file"),
    ],
)
def test_unknown_specification_gives_a_one_line_error(spec, condition):
    message = refusal(parse_workload, spec, DOMAIN)
    assert message.startswith("workload: ") and condition in message


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("", "must contain at least one marginal"),
        (b"\xff\xff\xff", "is not UTF-8 at byte 0"),
        ('{"marginal": ["age"]}\n{"marginal": ["sex"', "is not JSON at line 2, column 20"),
        ("[" * 100_000, "is nested too deeply at line 1"),
        ('["age"]', "line 1 must be an object such as"),
        ('{"conjunction": {"sex": 1}}', "line 1 must be an object such as"),
        ('{"marginal": ["age"], "wieght": 2}', "line 1 has the unknown key 'wieght'"),
        ('{"marginal": ["age"], "weight": 0}', "must be a finite number > 0, as a weight"),
        (
            f'{{"marginal": ["age"], "weight": 1{"0" * 400}}}',
            "must be a finite number > 0, as a weight",
        ),
        ('{"marginal": ["age"], "weight": NaN}', "NaN is not a JSON number at line 1"),
        ('{"marginal": ["age"], "weight": true}', "must be a finite number > 0, as a weight"),
        (
            '\n{"marginal": ["agee"]}',
            "line 2: 'agee': is not an attribute; the nearest known is 'age'",
        ),
        ('{"marginal": []}', "line 1: []: a marginal must name at least one attribute"),
        ('{"marginal": "age"}', "line 1: 'age': a marginal must be a list"),
        ('{"marginal": [3]}', "line 1: [3]: a marginal must be a list"),
        ('{"marginal": ["age"]}\n{"marginal": ["age"]}', "must list each marginal once"),
    ],
)
def test_invalid_file_is_rejected_with_the_reason(tmp_path, text, condition):
    path = tmp_path / "w.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert condition in refusal(parse_workload, str(path), DOMAIN)


@pytest.mark.parametrize("weights", [(0.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (1.0,)])
def test_rejects_weights_that_are_not_positive_and_finite(weights):
    with pytest.raises(InputError, match="weights"):
        Workload(DOMAIN, (("age",), ("sex",)), weights)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"attributes": []},
        {"attributes": "age"},
        {"ways": True},
        {"ways": 2.0},
        {"ways": 1, "attributes": [["age"]]},
        {"ways": 3, "attributes": ["age", "sex"]},
        {"attributes": [["age"], "sex"]},
    ],
)
def test_marginals_rejects_invalid_choice_of_attributes(arguments):
    with pytest.raises(InputError):
        marginals(DOMAIN, **arguments)


def test_rejects_too_many_marginals_before_listing_them():
    wide = domain_from_json({f"a{i}": 2 for i in range(60)})
    with pytest.raises(InputError, match="makes 88004802264174740 marginals"):
        marginals(wide, ways=27)


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


@pytest.mark.parametrize(
    "parsed",
    [
        None,
        {},
        {"marginals": 3, "weights": []},
        {"marginals": [["age"]], "weights": ["1"]},
        {"marginals": [["age"]], "weights": 1},
        {"marginals": [["agee"]], "weights": [1]},
        {"marginals": ["age"], "weights": [1]},
    ],
)
def test_rejects_json_that_is_not_a_workload(parsed):
    with pytest.raises(InputError):
        workload_from_json(parsed, DOMAIN)
