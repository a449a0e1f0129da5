import json
import sys

import pytest
from hypothesis import given, strategies as st
from refusals import refusal

from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.files import domain_from_json, parse_domain, read_domain
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError

LONG = """
{"attributes": [
  {"name": "age",       "type": "numeric",     "edges": [17, 25, 35.5]},
  {"name": "hours",     "type": "integer",     "min": 0, "max": 99},
  {"name": "sex",       "type": "categorical", "values": ["Female", "Male"]},
  {"name": "education", "type": "categorical", "values": ["HS", 1], "other": true},
  {"name": "alive",     "type": "boolean",     "nullable": true}]}
"""


def test_reads_long_form():
    assert parse_domain(LONG) == Domain(
        (
            NumericAttribute("age", (17.0, 25.0, 35.5)),
            IntegerAttribute("hours", 0, 99),
            CategoricalAttribute("sex", ("Female", "Male")),
            CategoricalAttribute("education", ("HS", 1), other=True),
            BooleanAttribute("alive", nullable=True),
        )
    )


def test_reads_short_form_with_a_column_called_attributes():
    domain = parse_domain('{"attributes": 2, "getting in/out of bed": 3}')
    assert domain == Domain(
        (IntegerAttribute("attributes", 0, 1), IntegerAttribute("getting in/out of bed", 0, 2))
    )


def test_reads_file_with_or_without_a_byte_order_mark(tmp_path):
    path = tmp_path / "domain.json"
    path.write_text(LONG, encoding="utf-8-sig")
    assert read_domain(path) == read_domain(str(path)) == read_domain(LONG)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ('{"age": 85,\n "sex" 2}', "is not JSON at line 2, column 8: Expecting ':' delimiter"),
        ("", "is not JSON at line 1, column 1"),
        ("[1]", "must be a JSON object"),
        ("{}", "at least one attribute"),
        ('{"attributes": []}', "at least one attribute"),
        ('{"age": 85, "age": 2}', "the key 'age' must appear once"),
        ('{"age": 0}', "of 'age' must be an integer >= 1"),
        ('{"age": -3}', "of 'age' must be an integer >= 1"),
        ('{"age": true}', "of 'age' must be an integer >= 1"),
        ('{"age": 8.5}', "of 'age' must be an integer >= 1"),
        ('{"age": "8"}', "of 'age' must be an integer >= 1"),
        ('{"age": NaN}', "NaN is not a JSON number"),
        ('{"": 3}', "non-empty"),
        (f'{{"age": {2**62 + 1}}}', "at most 2^62 codes"),
        (f'{{"age": {"9" * 5000}}}', "too long"),
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
        ('{"attributes": [], "extra": 1}', "the key 'extra' is unknown next to attributes"),
        ('{"attributes": [3]}', "attribute 1 must be a JSON object"),
        ('{"attributes": [{"type": "boolean"}]}', "attribute 1 must have a name"),
        (
            '{"attributes": [{"name": "a", "type": "boolean"}, {"name": "a", "type": "boolean"}]}',
            "attribute names must be distinct",
        ),
    ],
)
def test_rejects_text_that_is_not_a_domain(text, condition):
    message = refusal(parse_domain, text, "d.json")
    assert message.startswith("domain: 'd.json' ") and condition in message


def test_rejects_unreadable_domain_file(tmp_path):
    with pytest.raises(InputError, match=r"cannot be read as a file \(No such file"):
        read_domain(tmp_path / "absent.json")
    with pytest.raises(InputError, match=r"cannot be read as a file \(Is a directory"):
        read_domain(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_domain("nul\0byte")
    (tmp_path / "latin1.json").write_bytes(b'{"\xe9": 2}')
    with pytest.raises(InputError, match="is not UTF-8 at byte 2"):
        read_domain(tmp_path / "latin1.json")


names = st.text(min_size=1, max_size=5).filter(lambda s: s.isprintable())
flags = st.fixed_dictionaries({"other": st.booleans(), "nullable": st.booleans()})
integers = st.integers(-(2**40), 2**40)
attributes = st.one_of(
    st.builds(lambda n, f: BooleanAttribute(n, **f), names, flags),
    st.builds(
        lambda n, a, b, f: IntegerAttribute(n, min(a, b), max(a, b), **f),
        names,
        integers,
        integers,
        flags,
    ),
    st.builds(
        lambda n, e, f: NumericAttribute(n, tuple(sorted(e)), **f),
        names,
        st.sets(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=5),
        flags,
    ),
    st.builds(
        lambda n, v, f: CategoricalAttribute(n, tuple(v), **f),
        names,
        st.lists(names | integers, min_size=1, max_size=5, unique_by=str).filter(
            lambda v: "other" not in v
        ),
        flags,
    ),
)


@pytest.mark.slow
@given(st.lists(attributes, min_size=1, max_size=4, unique_by=lambda a: a.name))
def test_json_round_trips(entries):
    domain = Domain(tuple(entries))
    assert parse_domain(json.dumps(domain.to_json())) == domain
    assert domain_from_json(domain.to_json()) == domain


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(["attributes", "name", "type", "min", "a"]), x, max_size=3
            )
        ),
    )
)
def test_any_json_is_read_or_rejected(parsed):
    try:
        domain = domain_from_json(parsed)
    except InputError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert domain_from_json(domain.to_json()) == domain


def test_reading_a_domain_does_not_need_beam_or_arrow():
    import subprocess

    program = (
        "import sys, beam_dp.domain.files; "
        "print([m for m in ('apache_beam', 'pyarrow') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert output.stdout.strip() == "[]", output.stderr


def entry(**fields):
    return json.dumps({"attributes": [{"name": "a", **fields}]})


YES = {"type": "boolean", "true_values": ["yes"], "false_values": ["no"]}
DATES = {"type": "date", "edges": ["2020-01-01", "2020-02-01"]}
AGES = {"type": "integer", "min": 0, "max": 9}
ORIGIN = {"ledger_release": "visits, 2026/3", "draw_id": "0f" * 16}


EQUAL = {"type": "numeric", "min": 0, "max": 9, "bins": 3}
OPEN = {"open": "the smallest value that is possible"}
NUMERIC = {"type": "numeric", "edges": [0, 1]}


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({}, "attribute 'a' must have a type"),
        ({"type": "bool"}, "'a' has the unknown type 'bool'; the nearest known is 'boolean'"),
        ({**YES, "nulable": True}, "'a' has the unknown key 'nulable'; the nearest known is 'null"),
        ({"type": "integer", "min": 0}, "'a' must have 'max'"),
        ({**AGES, "max": -1}, "attribute 'a', maximum = -1: must be >= the minimum 0"),
        ({**NUMERIC, "edges": [2, 1]}, "'a', edges = 1: must be > the edge before it, 2.0"),
        ({**NUMERIC, "edges": 2}, "attribute 'a', edges = 2: must be a list of numbers"),
        ({"type": "categorical", "values": ["x", "x"]}, "'a', values = 'x': must be listed once"),
        ({"type": "categorical", "values": {"x": 1}}, "must be a list of strings or integers"),
        ({**YES, "other": 1}, "attribute 'a', other = 1: must be true or false"),
        ({**AGES, "true_values": ["1"]}, "'a' is integer; true_values applies only to boolean"),
        ({**YES, "clip": True}, "clip applies only to date, datetime, integer, numeric"),
        ({**YES, "true_value": ["y"]}, "the nearest known is 'true_values'"),
        ({**YES, "null_value": ["y"]}, "the nearest known is 'null_values'"),
        ({"type": "dates", "edges": []}, "the nearest known is 'date'"),
        ({**YES, "true_values": []}, "true_values = []: must list at least one value, as false"),
        ({"type": "boolean", "true_values": ["y"]}, "false_values = (): must list at least one"),
        ({**YES, "true_values": "yes"}, "'yes': must be a list of strings or integers"),
        ({**YES, "true_values": [True]}, "true_values = True: must be a string or an integer"),
        (
            {**YES, "true_values": ["no"]},
            "true_values = 'no': must differ from 'no' of false_values",
        ),
        (
            {**YES, "true_values": ["NO "], "case": "ignore", "trim": True},
            "'NO ': must differ from 'no' of false_values: case is ignored and blanks are trimmed",
        ),
        ({**YES, "nullable": True, "null_values": ["no"]}, "must differ from 'no' of false_values"),
        ({**YES, "true_values": ["other"], "other": True}, "'other': must not be a value if"),
        ({**YES, "case": "ignored"}, "case = 'ignored': must be 'exact' or 'ignore'"),
        ({**YES, "case": []}, "case = []: must be 'exact' or 'ignore'"),
        ({**YES, "trim": 1}, "trim = 1: must be true or false"),
        ({**YES, "null_values": [""]}, "null_values = ['']: must come with nullable: true"),
        (
            {"type": "categorical", "values": ["a", "A"], "case": "ignore"},
            "values = 'A': must differ from 'a' of values: case is ignored",
        ),
        ({"type": "categorical", "values": ["ß", "SS"], "case": "ignore"}, "must differ from 'ß'"),
        ({"type": "boolean", "nullable": True, "null_values": ["TRUE "]}, "must not be one of the"),
        ({**AGES, "nullable": True, "null_values": ["07"]}, "'07': must not be one of the levels"),
        ({**AGES, "nullable": True, "null_values": [0.5]}, "0.5: must be a string or an integer"),
        ({**AGES, "nullable": True, "null_values": [2**63]}, "must fit in 64 bits"),
        ({**AGES, "clip": 1}, "clip = 1: must be true or false"),
        (
            {"type": "numeric", "edges": [0, 1], "nullable": True, "null_values": ["5e-1"]},
            "'5e-1': must not be one of the levels",
        ),
        ({**DATES, "edges": ["2020-02-30", "2021-01-01"]}, "'2020-02-30': must be a date, such as"),
        ({**DATES, "edges": ["2020-02-03T00:00", "2021"]}, "must be a date, such as 2020-01-31"),
        ({**DATES, "edges": [18262, 18263]}, "18262: must be a date, such as 2020-01-31"),
        ({**DATES, "edges": ["2020-01-02", "2020-01-01"]}, "> the edge before it, '2020-01-02'"),
        ({**DATES, "edges": "2020-01-02"}, "must be a list of dates"),
        ({**DATES, "edges": ["2020-01-02"]}, "must list at least two edges"),
        ({**DATES, "nullable": True, "null_values": [-9]}, "-9: must be a string"),
        ({**DATES, "nullable": True, "null_values": ["2020-02-01T23:00"]}, "must not be one of"),
        (
            {"type": "datetime", "edges": ["2020-01-01", "2020-01-01T08:00Z"]},
            "must have a zone like the other edges",
        ),
        ({"type": "datetime", "edges": ["2020-01-01T00:00:00.0000001"]}, "must be a datetime"),
        ({"type": "datetime", "edges": ["0001-01-01T00:00+01:00", "x"]}, "must be a datetime"),
        ({"type": "date", "edges": ["\ud800020-01-0", "x"]}, "must be a date"),
        ({**AGES, "edges_from": ORIGIN}, "edges_from applies only to date, datetime, numeric"),
        ({**DATES, "edges_from": "visits/3"}, 'must be {"ledger_release": "NAME/NUMBER"'),
        ({**DATES, "edges_from": {**ORIGIN, "draw_id": "0F" * 16}}, "32 hexadecimal digits"),
        ({**DATES, "edges_from": {**ORIGIN, "ledger_release": "visits"}}, "NAME/NUMBER"),
        ({**DATES, "edges_from": {**ORIGIN, "more": 1}}, "NAME/NUMBER"),
        ({**EQUAL, "edges": [0, 3, 6, 9]}, "'a' must have either edges, or min, max and bins"),
        ({**EQUAL, "edges_from": ORIGIN}, "'a' must have either edges_from, or min, max and bins"),
        ({**NUMERIC, "min": 0}, "must have either edges, or min, max"),
        ({"type": "numeric", "min": 0, "max": 9}, "attribute 'a' must have 'bins'"),
        ({"type": "numeric", "bins": 3, "max": 9}, "attribute 'a' must have 'min'"),
        ({**EQUAL, "bins": 0}, "bins = 0: must be an integer from 1 to 1,000,000"),
        ({**EQUAL, "bins": 2.0}, "bins = 2.0: must be an integer from 1"),
        ({**EQUAL, "bins": 10**9}, "must be an integer from 1 to 1,000,000"),
        ({**EQUAL, "bins": True}, "bins = True: must be an integer from 1"),
        ({**EQUAL, "max": 0}, "max = 0: must be > the min 0"),
        ({**EQUAL, "min": "0"}, "min = '0': must be a finite number"),
        ({**EQUAL, "max": 10**400}, "must be a finite number"),
        ({**EQUAL, "max": 1e-323}, "must be > the edge before it"),
        ({**EQUAL, "whole": True, "bins": 30}, "must have a whole number in each bin"),
        ({**AGES, "bins": 3}, "'a' is integer; bins applies only to numeric"),
        ({**DATES, "bins": 3}, "'a' is date; bins applies only to numeric"),
        ({**AGES, "min": OPEN}, "attribute 'a', min is open: 'the smallest value that is poss"),
        ({**AGES, "min": OPEN, "max": OPEN, "nullable": True}, "; and 1 more"),
        (
            {"type": "categorical", "values": {"confirm": ["F", "M"]}},
            "attribute 'a', values is not confirmed: write ['F', 'M'] itself if it is public",
        ),
        ({**NUMERIC, "edges": {"open": "a\nb" * 1000}}, "edges is open: 'a"),
        ({"type": {"open": "x"}, "name": ["a\n"]}, "attribute ['a\\n'], type is open"),
        ({"type": "numeric", "a\nb": OPEN}, "attribute 'a', 'a\\nb' is open"),
    ],
)
def test_rejects_contradictory_or_open_entry_in_one_line(fields, condition):
    message = refusal(parse_domain, entry(**fields), "d.json")
    assert message.startswith("domain: 'd.json' ") and condition in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("fields", "edges"),
    [
        ({"min": 0, "max": 512, "bins": 4}, [0, 128, 256, 384, 512]),
        ({"min": 0.1, "max": 0.7, "bins": 6}, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
        ({"min": -1e-5, "max": 1, "bins": 1}, [-1e-5, 1]),
        ({"min": 0, "max": 1, "bins": 3}, [0, 1 / 3, 2 / 3, 1]),
        ({"min": -1.7e308, "max": 1.7e308, "bins": 2}, [-1.7e308, 0, 1.7e308]),
        ({"min": 0, "max": 9, "bins": 3, "whole": True, "clip": True}, [0, 3, 6, 9]),
    ],
)
def test_bins_of_equal_width_have_exact_edges(fields, edges):
    (attribute,) = parse_domain(entry(type="numeric", **fields)).attributes
    assert attribute.edges == tuple(map(float, edges))
    assert attribute.clip == fields.get("clip", False)
    domain = parse_domain(entry(type="numeric", **fields))
    assert domain_from_json(domain.to_json()) == domain
    assert "bins" not in domain.to_json()["attributes"][0]


MAPPED = [
    {**DATES, "edges_from": ORIGIN},
    {"type": "numeric", "edges": [0.0, 1.0], "clip": True, "edges_from": ORIGIN},
    {**YES, "null_values": ["", "NA"], "nullable": True, "case": "ignore", "trim": True},
    {**YES, "true_values": ["Y", "yes", 1]},
    {**AGES, "clip": True, "nullable": True, "null_values": [-9, "x"], "other": True},
    {"type": "numeric", "edges": [0.0, 1.0], "clip": True, "nullable": True, "null_values": [-0.5]},
    {"type": "categorical", "values": ["a", 1], "case": "ignore"},
    DATES,
    {"type": "datetime", "edges": ["2020-01-01T00:00:00", "2020-01-01T00:00:00.000001"]},
    {"type": "datetime", "edges": ["2020-01-01T00:00:00+00:00", "9999-12-31T00:00:00+00:00"]},
]


@pytest.mark.parametrize("fields", MAPPED)
def test_json_contains_declarations_as_written(fields):
    domain = parse_domain(entry(**fields))
    assert domain.to_json()["attributes"] == [{"name": "a", **fields}]
    assert domain_from_json(domain.to_json()) == domain


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
    with pytest.raises(InputError, match="known are pairs of its edges, each a list in the list"):
        domain.with_impossible([{"smoker": ["yes"], "visit": ["2020-01-01", "2020-04-01"]}])
    with pytest.raises(InputError, match="is not one of its levels; known are pairs of its edges"):
        domain.with_impossible([{"smoker": ["yes"], "at": [["2020-01-01", "2020-01-02"]]}])


def test_reads_dict_like_its_json_text():
    long = json.loads(LONG)
    assert parse_domain(long) == read_domain(long) == parse_domain(LONG)
    assert parse_domain({"age": 85, "sex": 2}) == parse_domain('{"age": 85, "sex": 2}')
    in_tuples = {"attributes": tuple({**each} for each in long["attributes"])}
    assert parse_domain(in_tuples) == parse_domain(LONG)
    domain = parse_domain(LONG)
    assert parse_domain(domain.to_json()) == domain


@pytest.mark.parametrize(
    ("given", "condition"),
    [
        ({}, "at least one attribute"),
        ({"age": 8.5}, "of 'age' must be an integer >= 1"),
        ({1: 5}, "attribute name = 1: must be a non-empty Unicode string"),
        ({"attributes": [{"name": "a", "type": "boolean", 3: True}]}, "the unknown key '3'"),
        ({"attributes": [{"name": "a", "type": "boolean"}], 4: 1}, "the key 4 is unknown"),
        ({"attributes": "a"}, "the size 'a' of 'attributes' must be an integer"),
        (5, "must be JSON text, or a dict of its form"),
        (b"{}", "must be JSON text, or a dict of its form"),
        ([{"name": "a"}], "must be JSON text, or a dict of its form"),
    ],
)
def test_rejects_dict_that_is_not_a_domain(given, condition):
    message = refusal(parse_domain, given)
    assert message.startswith("domain: ") and condition in message


def test_rejects_dict_that_contains_itself():
    endless = {"type": "categorical", "name": "a"}
    endless["values"] = [endless]
    with pytest.raises(InputError):
        parse_domain({"attributes": [endless]})
