"""`beam-dp check-domain`: what becomes of each value of a sample."""

import datetime
import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dp.domain.files import domain_from_json
from beam_dp.encoding.check import DomainCheck
from beam_dp.encoding.records import encode_records
from pipelines.check_domain import main

SMOKER: dict[str, Any] = {"name": "smoker", "type": "boolean"}
AGE: dict[str, Any] = {"name": "age", "type": "integer", "min": 0, "max": 99}


def check(folder: Path, text: str, *attributes: dict[str, Any], flags: Any = ()) -> int:
    (folder / "rows.csv").write_text(text)
    domain = json.dumps({"attributes": attributes})
    return main(["--domain", domain, "--sample", str(folder / "rows.csv"), *flags])


def kept(number: int, keys: str) -> str:
    return f"  {number} of these would be kept, if this is what the values mean, with\n    {keys}\n"


FARE: dict[str, Any] = {"name": "fare", "type": "numeric", "min": 0, "max": 30, "bins": 3}
BINS = {**FARE, "other": True, "nullable": True}
WORDS = (
    '"true_values": ["true", "1", "yes"], "false_values": ["false", "0", "no"], "case": "ignore"'
)
LENIENT = {**SMOKER, "true_values": ["yes"], "false_values": ["no"], "nullable": True,
           "null_values": ["NA"], "case": "ignore", "trim": True}  # fmt: skip
COUNTED = "".join(
    f"  {count:>9}  {level}\n"
    for count, level in (
        *((2, "[0, 10)"), (0, "[10, 20)"), (1, "[20, 30]"), (1, "other"), (0, "null")),
    )
)
NO_RECORD = "age,name\n5,x\n\n"
# Rows, attributes, other flags, the exit code, what is printed and, after a None, what is not.
CASES: dict[str, tuple[str, tuple[dict[str, Any], ...], list[str], int, list[str | None]]] = {
    "words of booleans": (
        "smoker,age\n" + "Yes,30\n" * 3 + "no,30\n" * 2 + "true,130\n", (SMOKER, AGE), [], 1,
        ["Use only rows that are public or made up.", "3  'Yes' -> left out", "1  'true' -> true",
         # Words that are declared replace those that a boolean reads by itself: they are named.
         kept(5, WORDS), "1  '130' -> left out", kept(1, '"clip": true'),
         "6 of 6 rows are left out of a release"],
    ),
    "every row is kept": (
        "smoker,age\n yes,130\nNO,x\nna ,5\n,-1\n", (LENIENT, {**AGE, "clip": True, "other": True}),
        [], 0,
        ["' yes' -> yes", "'NO' -> no", "'na ' -> null", "null -> null", "'130' -> clipped to 99",
         "'-1' -> clipped to 0", "'x' -> other", "'5' -> 5", "0 of 4 rows are left out"],
    ),
    "words, case, blanks, nulls": (
        'smoker\nyes\n NO\nYes\nNA\n""\n?!\n', (SMOKER,), [], 1,
        [kept(5, '"true_values": ["yes"], "false_values": ["no"], "case": "ignore", "trim": true,'
                 ' "nullable": true, "null_values": ["", "NA"]'), None, '"other"'],
    ),
    "declared words": (
        "smoker\ntrue\nFALSE\n1\nyes\nno\n", (SMOKER,), [], 1, [kept(2, WORDS), None, '"other"'],
    ),
    "nulls and limits": (
        "age\nNA\n130\n5\n", (AGE,), [], 1,
        [kept(2, '"nullable": true, "null_values": ["NA"], "clip": true'), None, '"other"'],
    ),
    "only other": ("age\nmany\n", (AGE,), [], 1, [kept(1, '"other": true')]),
    "left out first": (
        "age\n" + "5\n" * 9 + "6\n" * 8 + "x\n", (AGE,), ["--limit", "1"], 1,
        ["1  'x' -> left out", None, "'5'"],
    ),
    "limit": (
        "age\n" + "".join(f"{age}\n" * (age + 1) for age in range(9)), (AGE,), ["--limit", "2"], 0,
        ["9  '8' -> 8", "and 7 more values", None, "'6'"],
    ),
    "missing column": (
        "smoke,age\ntrue,1\n", (SMOKER, AGE), [], 1,
        ["a release would refuse this input: smoker: must be a column of",
         "the nearest known is 'smoke'"],
    ),
    "missing column as JSON": (
        "agee\n1\n", (AGE,), ["--json"], 1, ['"refusals": ["age: must be a column of'],
    ),
    "rows by bin": (
        "fare,age\n1,1\n9.5,1\n30,1\n77,1\n", (BINS, AGE), [], 0, [f"  rows by bin\n{COUNTED}"],
    ),
    "rows of some bins": (
        "fare,age\n1,1\n9.5,1\n30,1\n77,1\n", (BINS, AGE), ["--limit", "2"], 0,
        ["[10, 20)\n  and 3 more bins; --limit shows more\n"],
    ),
    **{
        lines: (f"{NO_RECORD}{lines}", (AGE,), [], 1, [f"\n{fault}"])
        for lines, fault in (
            ("1,a\n2\n\n3,\n", "1 line is no record: 1 field in place of 2"),
            ("1,a,\n2,b,\n", "2 lines are no records: 3 fields in place of 2"),
            ('1,"a\nb"\n', "1 line is no record: a quote that does not close before a comma"),
            ('1,"a \\"b\\" c"\n', "1 line is no record: a backslash before a quote or comma (CSV"),
            ("1,a\\, b\n", "1 line is no record: a backslash before a quote or comma (CSV"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_shows_what_becomes_of_values_and_what_would_keep_them(tmp_path, capsys, case):
    rows, attributes, flags, code, words = CASES[case]
    assert check(tmp_path, rows, *attributes, flags=flags) == code
    printed, is_there = capsys.readouterr().out, True
    for word in words:
        if word is None:
            is_there = False
        else:
            assert (word in printed) == is_there, word
    assert printed.count("rows by bin") == (BINS in attributes)


def test_shows_times_as_written(tmp_path, capsys):
    times = pa.array([datetime.datetime(2024, 2, 3, 10), datetime.datetime(2024, 5, 1)])
    pq.write_table(pa.table({"at": times}), tmp_path / "times.parquet")
    at = {"name": "at", "type": "datetime", "edges": ["2024-01-01T00:00", "2024-06-01T00:00"]}
    domain = json.dumps({"attributes": [at]})
    assert main(["--domain", domain, "--sample", str(tmp_path / "times.parquet")]) == 0
    assert "  '2024-02-03T10:00:00' -> [2024-01-01" in capsys.readouterr().out


def test_damaged_file_is_named_in_one_line(tmp_path, capsys):
    digits = np.random.default_rng(1).integers(0, 99, 100_000)
    rows = "".join(f"{digit}\n" for digit in digits)
    sample = tmp_path / "rows.csv.gz"
    sample.write_bytes(gzip.compress(f"age\n{rows}".encode())[:-20])
    domain = json.dumps({"attributes": [AGE]})
    assert main(["--domain", domain, "--sample", str(sample)]) == 1
    printed = capsys.readouterr()
    reason = f"{sample}: must be whole: its compression ends too early"
    assert f"a release would refuse this input: {reason}\n" in printed.out
    assert "Traceback" not in printed.err


def test_json_counts_rows_of_each_level_and_value(tmp_path, capsys):
    rows = "fare,age,smoker\n1,1,yes\n30,1,true\n77,1,true\n"
    assert check(tmp_path, rows, FARE, AGE, SMOKER, flags=["--json", "--limit", "1"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["left_out"], found["impossible"]) == (3, 2, 0)
    fare, age, smoker = found["attributes"]
    assert fare["levels"] == [
        {"level": "[0, 10)", "rows": 1},
        {"level": "[10, 20)", "rows": 0},
        {"level": "[20, 30]", "rows": 1},
    ]
    assert fare["values"] == [{"value": "'77'", "becomes": "left out", "rows": 1}]
    assert (fare["num_values"], fare["left_out"]) == (3, 1)
    assert fare["suggestion"] == {"keys": {"clip": True}, "rows": 1}
    assert age["levels"] == [{"level": "1", "rows": 3}]
    assert age["suggestion"] == {"keys": {}, "rows": 0}
    assert smoker["left_out"] == 1 and found["refusals"] == []


OPTIONS = [
    {"type": "boolean"},
    {"type": "boolean", "true_values": ["yes", 1], "false_values": ["no"], "case": "ignore"},
    {"type": "boolean", "nullable": True, "null_values": ["x", 5]},
    {"type": "integer", "min": 0, "max": 3, "clip": True},
    {"type": "integer", "min": 0, "max": 3, "other": True, "nullable": True, "null_values": ["x"]},
    {"type": "numeric", "edges": [0, 1, 3], "clip": True},
    {"type": "categorical", "values": ["YES", "x"], "case": "ignore", "trim": True},
    {"type": "date", "edges": ["2020-01-01", "2020-01-03"], "clip": True},
    {"type": "datetime", "edges": ["2020-01-01T00:00Z", "2020-01-03T00:00Z"], "other": True},
]
COLUMNS = [
    pa.array(["yes", "Yes ", "no", "x", "5", "1", None, "2020-01-02", "2020-01-02T00:00Z", "0.5"]),
    pa.array([0, 1, 5, -7, None, 2**62, 3, 2, 1, 0]),
    pa.array([0.0, 0.5, float("nan"), float("inf"), -5.0, 1e300, None, 3.0, 1.0, 2.0]),
    pa.array([datetime.date(2020, 1, day) for day in range(1, 11)]),
    pa.array([datetime.datetime(2020, 1, day) for day in range(1, 11)], pa.timestamp("ns", "UTC")),
    pa.array([True, False, None, True, True, False, None, None, True, False]),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_check_agrees_with_release(options):
    domain = domain_from_json({"attributes": [{"name": "a", **options}]})
    (attribute,) = domain.attributes
    for column in COLUMNS:
        batch = pa.record_batch({"a": column})
        said = DomainCheck(domain)
        said.add(batch)
        cells = encode_records(domain, "record", True, batch).cells
        assert cells is not None
        assert said.num_rows - said.num_left_out == len(cells)
        told = {"other": 0, "null": 0, "left out": 0}
        for (_, fate), count in said.columns[0].fates.items():
            label = fate.removeprefix("clipped to ")
            told[label] = told.get(label, 0) + count
        found = {**dict.fromkeys(told, 0), "left out": len(column) - len(cells)}
        for cell in cells.tolist():
            found[attribute.label(cell)] += 1
        assert told == found


@pytest.mark.job
def test_every_suggestion_saves_its_stated_number_of_rows():
    for options, column in itertools.product(OPTIONS, COLUMNS):
        domain = domain_from_json({"attributes": [{"name": "a", **options}]})
        batch = pa.record_batch({"a": column})
        said = DomainCheck(domain)
        said.add(batch)
        cure = said.columns[0].suggestion()
        if cure is not None:
            entry = {"name": "a", **options} | cure[0]
            cured = DomainCheck(domain_from_json({"attributes": [entry]}))
            cured.add(batch)
            assert cured.num_left_out <= said.num_left_out - cure[1] or "true_values" in cure[0]


def test_impossible_combination_leaves_rows_out():
    parsed = {"attributes": [{"name": name, "type": "boolean"} for name in "ab"],
              "impossible": [{"a": [True], "b": [True]}]}  # fmt: skip
    said = DomainCheck(domain_from_json(parsed))
    said.add(pa.record_batch({"a": np.array([True, True]), "b": np.array([True, False])}))
    assert (said.num_left_out, said.num_impossible) == (1, 1)


def test_values_to_discover_are_other_and_made_up_bins_stand_for_those_to_find(tmp_path, capsys):
    city = {"name": "city", "type": "categorical", "discover": {"max_values": 2}}
    fare = {"name": "fare", "type": "numeric", "discover": {"bins": 2, "min": 0, "max": 10}}
    (tmp_path / "domain.json").write_text(json.dumps({"attributes": [city, fare]}))
    (tmp_path / "rows.csv").write_text("city,fare\nOslo,1\nRome,99\n")
    flags = [f"--domain={tmp_path}/domain.json", f"--sample={tmp_path}/rows.csv"]
    assert main(flags) == 0
    printed = capsys.readouterr().out
    assert "'Oslo' -> other" in printed
    assert "'99' -> clipped to [0.005499, 10]" in printed


DAY: dict[str, Any] = {"name": "day", "type": "date", "edges": ["2019-01-01", "2021-01-01"]}
TOWN: dict[str, Any] = {"name": "town", "type": "categorical", "values": ["Orl\xe9ans", "12,5"]}


@pytest.mark.parametrize(
    ("attribute", "value", "hint"),
    [
        (DAY, "31.12.2020", "'31.12.2020': write dates as 2020-12-31"),
        (DAY, "1/2/20", "'1/2/20': write dates as 2020-12-31"),
        (AGE, '"1,5"', "'1,5': write decimals with a point, such as 1.5"),
        (AGE, '"1,500"', "'1,500': write numbers without separators, such as 1000"),
        (AGE, "15 %", "'15 %': write percentages without the sign"),
        (AGE, "$15", "'$15': write amounts without the sign of the currency"),
        (TOWN, "Orle\u0301ans", "looks like 'Orl\xe9ans': differs in U+0065, U+00E9, U+0301"),
        (TOWN, "Orl\xe9ans\xa0", "looks like 'Orl\xe9ans': differs in U+00A0"),
        (TOWN, "Orl\xe9ans\u200b", "looks like 'Orl\xe9ans': differs in U+200B"),
        (TOWN, "15%", ""),
    ],
)
def test_names_how_left_out_values_differ(tmp_path, capsys, attribute, value, hint):
    rows = f"{attribute['name']}\n{value}\n"
    assert check(tmp_path, rows, attribute) == 1
    assert hint in capsys.readouterr().out
    check(tmp_path, rows, attribute, flags=["--json"])
    (found,) = json.loads(capsys.readouterr().out)["attributes"]
    assert [each.endswith(hint) for each in found["hints"]] == [True] * bool(hint)
