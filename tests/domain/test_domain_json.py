import copy
import json

import numpy as np
import pandas as pd
import pytest

import beam_dp as dp
from beam_dp.domain.files import determined_pairs, parse_domain, read_domain, read_open_domain
from beam_dp.mechanisms.marginals.selection import plan_selection

LONG = """
{"attributes": [
  {"name": "age",       "type": "numeric",     "edges": [17, 25, 35.5]},
  {"name": "hours",     "type": "integer",     "min": 0, "max": 99},
  {"name": "sex",       "type": "categorical", "values": ["Female", "Male"]},
  {"name": "education", "type": "categorical", "values": ["HS", 1], "other": true},
  {"name": "alive",     "type": "boolean",     "nullable": true}]}
"""


def test_reads_short_form_with_a_column_called_attributes():
    domain = parse_domain('{"attributes": 2, "getting in/out of bed": 3}')
    assert domain == dp.Domain(
        (
            dp.IntegerAttribute("attributes", 0, 1),
            dp.IntegerAttribute("getting in/out of bed", 0, 2),
        )
    )


def test_reads_file_with_or_without_a_byte_order_mark(tmp_path):
    path = tmp_path / "domain.json"
    path.write_text(LONG, encoding="utf-8-sig")
    assert read_domain(path) == read_domain(str(path)) == read_domain(LONG)


YES = {"type": "boolean", "true_values": ["yes"], "false_values": ["no"]}


def test_impossible_combinations_use_dates_and_words_as_users_write_them():
    domain = parse_domain(
        json.dumps(
            {
                "attributes": [
                    {"name": "smoker", **YES},
                    {"name": "visit", "type": "date",
                     "edges": ["2020-01-01", "2020-04-01", "2020-07-01"]},
                    {"name": "at", "type": "datetime",
                     "edges": ["2020-01-01T00:00Z", "2020-01-02T00:00Z", "2020-01-03T00:00Z"]},
                ],
                "impossible": [
                    {"smoker": ["yes"], "visit": [["2020-01-01", "2020-04-01"]]},
                    {"smoker": [False], "at": [["2020-01-01T01:00+01:00", "2020-01-02T00:00Z"]]},
                ],
            }
        )
    )  # fmt: skip
    ranges = [each.ranges for each in domain.impossible]
    assert ranges == [(((1, 2),), ((0, 1),)), (((0, 1),), ((0, 1),))]
    assert parse_domain(json.dumps(domain.to_json())) == domain


def test_reads_dict_like_its_json_text():
    long = json.loads(LONG)
    assert parse_domain(long) == read_domain(long) == parse_domain(LONG)
    assert parse_domain({"age": 85, "sex": 2}) == parse_domain('{"age": 85, "sex": 2}')
    in_tuples = {"attributes": tuple({**each} for each in long["attributes"])}
    assert parse_domain(in_tuples) == parse_domain(LONG)
    domain = parse_domain(LONG)
    assert parse_domain(domain.to_json()) == domain


ATTRIBUTES = [
    {"name": "state", "type": "categorical", "values": ["MA", "TX", "NY"]},
    {"name": "city", "type": "categorical", "values": ["Boston", "Salem", "Austin", 7]},
    {"name": "hours", "type": "integer", "min": 0, "max": 9},
    {"name": "works", "type": "boolean", "nullable": True},
    {"name": "age", "type": "numeric", "edges": [0, 18, 65]},
]
STATES = {"Boston": "MA", "Salem": "MA", "Austin": "TX", "7": "NY"}


def domain(determines, more=(), **keys):
    return {"attributes": [*ATTRIBUTES, *more], "determines": determines, **keys}


def possible(read, names):
    """The pairs of labels that a domain allows."""
    axes = read.axes(names)
    table = np.zeros([read.shape[axis] for axis in axes], bool)
    for each in read.impossible:
        if set(each.axes) == set(axes):
            mask = each.mask(read.shape)
            table |= mask if each.axes == axes else mask.T
    one, other = (read[name] for name in names)
    return {(one.label(i), other.label(j)) for i, j in np.argwhere(~table).tolist()}


def test_each_level_allows_the_level_it_is_mapped_to():
    read = read_domain(domain({"city": {"state": STATES}}))
    assert possible(read, ("city", "state")) == set(STATES.items())
    assert read_domain(read.to_json()) == read


@pytest.mark.parametrize(
    ("name", "mapping", "expected"),
    [
        (
            "hours",
            {"0": "MA", "[1, 8]": "TX", "9": "NY"},
            {(str(h), "MA" if h == 0 else "NY" if h == 9 else "TX") for h in range(10)},
        ),
        (
            "works",
            {"true": "MA", "false": "TX", "null": "NY"},
            {("true", "MA"), ("false", "TX"), ("null", "NY")},
        ),
    ],
)
def test_keys_of_other_types_are_json(name, mapping, expected):
    read = read_domain(domain({name: {"state": mapping}}))
    assert possible(read, (name, "state")) == expected


def test_keys_of_python_are_levels():
    mapping = {0: [0, 18], (1, 9): "[18, 65]"}
    read = read_domain(domain({"hours": {"age": mapping}}))
    assert possible(read, ("hours", "age")) == {
        (str(h), "[0, 18)" if h == 0 else "[18, 65]") for h in range(10)
    }


def test_joins_declared_combinations():
    other = {"state": ["MA"], "works": [True]}
    read = read_domain(domain({"city": {"state": STATES}}, impossible=[other]))
    assert read.impossible[0] == read_domain(domain_without(other)).impossible[0]
    assert len(read.impossible) == 4
    assert determined_pairs(read.shape, read.impossible) == {(0, 1)}


def domain_without(*combinations):
    return {"attributes": ATTRIBUTES, "impossible": list(combinations)}


def test_open_domain_keeps_mappings_of_declared_attributes():
    more = [{"name": "open", "type": "categorical", "discover": {"max_values": 3}}]
    declared = read_open_domain(domain({"city": {"state": STATES}}, more)).declared
    assert possible(declared, ("city", "state")) == set(STATES.items())


def test_determined_pair_is_not_a_candidate_and_costs_nothing():
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    pairs = {}
    for determines in ({"city": {"state": STATES}}, None):
        written = copy.deepcopy(domain(determines))
        if determines is None:
            del written["determines"]
        read = read_domain(written)
        plan = plan_selection(dp.marginals(read, ways=2), guarantee, 1000)
        pairs[determines is None] = set(plan.pairs)
    assert pairs[True] - pairs[False] == {(0, 1)}


def test_release_has_no_impossible_rows_and_leaves_out_records_that_break_the_mapping():
    """At epsilon 200 the noisy count is within 30 but for a case in 10^40."""
    generator = np.random.default_rng(1)
    cities = generator.choice(["Boston", "Salem", "Austin", "7"], 3000, p=[0.4, 0.1, 0.3, 0.2])
    rows = pd.DataFrame({"city": cities, "state": [STATES[city] for city in cities]})
    rows.loc[:499, "state"] = "NY"  # most of these have another city
    rows["works"] = (cities == "Boston") ^ (generator.random(3000) < 0.1)
    written = domain({"city": {"state": STATES}})
    written["attributes"] = [
        each for each in ATTRIBUTES if each["name"] in ("state", "city", "works")
    ]
    release = dp.release(
        rows,
        read_domain(written),
        dp.marginals(read_domain(written), ways=2),
        dp.Guarantee(200.0, 1e-9, "add_or_remove_one", "record", 1),
        count_left_out=True,
    )
    found = release.to_pandas()
    assert set(zip(found["city"].astype(str), found["state"], strict=True)) == set(STATES.items())
    kept = (rows["state"] == [STATES[city] for city in cities]).sum()
    assert abs(len(found) - kept) < 30
