"""`beam-dp check-domain`: what becomes of each value of a sample.

What it prints of tables of text is in ``tests/printed.txt``.
"""

import datetime
import gzip
import itertools
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dp.domain.files import domain_from_json
from beam_dp.secret.encoding.check import DomainCheck
from beam_dp.secret.encoding.records import encode_records
from pipelines.check_domain import main

AGE: dict[str, Any] = {"name": "age", "type": "integer", "min": 0, "max": 99}


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
