"""`beam-dp plan --target_error` without a workload: how many queries may be asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plan_words import QUERIES, argv
from tiny import ADD

from beam_dp.cli.main import main
from beam_dp.cli.plan_tables import counted_queries
from beam_dp.theorems.synthesis import MAX_QUERIES


def planned(capsys: pytest.CaptureFixture[str], **given: str | None) -> dict[str, Any]:
    assert main(argv(QUERIES, "--json", **given)) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.part
@pytest.mark.parametrize(
    "given",
    [
        {"max_sparsity": "16"},
        {"num_cells": "1e300", "max_sparsity": "2147483648", "num_records": "1099511627776"},
        {"num_cells": "1", "num_records": "1e9"},
        {"num_cells": None, "max_sparsity": "1", "target_error": "1e-9"},
        {"num_cells": None, "domain": '{"a": 4, "b": 3}', "delta": "1e-9", "neighboring": ADD},
    ],
)
def test_table_of_query_counts_fits_80_columns(capsys, monkeypatch, given):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(argv(QUERIES, "--all", **given)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    start = next(n for n, line in enumerate(lines) if line.startswith("mechanism "))
    table = lines[start + 1 : lines.index("", start)]
    options = [each for each in planned(capsys, **given)["options"] if each["refusal"] is None]
    assert [line.split(" [")[0] for line in table] == [
        f"{each['mechanism']}, {each['calibration']}" for each in options
    ]
    for line, each in zip(table, options, strict=True):
        queries = line.split("]")[1].strip()
        if each["num_queries"] is not None:
            assert queries == (f"{each['num_queries']:,}" if each["num_queries"] else "none")
        else:
            assert f"10^{each['log10_num_queries']:,.0f}" in queries
    text = " ".join("\n".join(lines).split())
    assert ("the error for no query" in text) == any(each["num_queries"] == 0 for each in options)
    assert all(each["theorem"] in text and each["assumes"] in text for each in options)


def test_domain_flag_gives_the_same_plan_as_its_number_of_cells(capsys):
    domain = planned(capsys, num_cells=None, domain='{"a": 32, "b": 32}')
    assert domain == planned(capsys)
    found = {(each["mechanism"], each["calibration"]): each for each in domain["options"]}
    assert found["small_db", "textbook"]["num_queries"] == 7396
    assert found["private_mw", "tight"]["num_queries"] == 126
    assert "1,024 cells" in found["small_db", "textbook"]["assumes"]
    assert found["sparse_mw", "tight"]["refusal"] == "max_sparsity must be given"


def test_private_number_of_records_lowers_query_counts(capsys):
    public = planned(capsys)["options"]
    private = planned(capsys, neighboring=ADD)["options"]
    of = [{(o["mechanism"], o["calibration"]): o for o in each} for each in (public, private)]
    for key, option in of[1].items():
        if option["refusal"] is None and key[0] in ("small_db", "mwem"):
            assert "a public number of records" in option["assumes"]
    tight = "private_mw", "tight"
    assert of[1][tight]["num_queries"] < of[0][tight]["num_queries"]


def test_large_query_counts_are_printed_as_powers_of_ten():
    assert counted_queries(10**15 - 1) == "999,999,999,999,999"
    assert counted_queries(10**15) == "about 10^15"
    assert counted_queries(MAX_QUERIES) == "10^10,000 or more"
