"""`beam-dp plan` refuses a bad flag in one line, for each kind of job."""

import pytest
from plan_words import KEYS, QUERIES, TABLE, WINDOWS, argv

from beam_dp.cli.main import main

MARGINALS = [
    ({"epsilon": "0"}, "--epsilon: 0.0 is not valid"),
    ({"epsilon": "nan"}, "--epsilon: nan is not valid"),
    ({"epsilon": "x"}, "--epsilon: 'x' is not valid: must be a number"),
    ({"epsilon": None}, "--epsilon is required"),
    (
        {"delta": "0.1"},
        "--delta: 0.1 is not valid: must be at most 1e-05, unless --allow_large_delta",
    ),
    ({"domain": "nowhere.json"}, "--domain: 'nowhere.json' is not valid"),
    ({"workload": "marginals:9"}, "--workload: 'marginals:9' is not valid"),
    ({"workload": "nothing:1"}, "--workload: 'nothing:1' cannot be read"),
    ({"num_records": "0"}, "--num_records: 0 is not valid"),
    (
        {"num_records": "noisy"},
        "--num_records: 'noisy' is not valid: must be a number: a public guess",
    ),
    ({"num_records": "1.5"}, "--num_records: '1.5' is not valid: must be a whole number"),
    ({"num_records": "inf"}, "--num_records: 'inf' is not valid"),
    ({"neighboring": "both"}, "--neighboring: 'both' is not valid"),
    ({"max_records_per_unit": None}, "--max_records_per_unit is required"),
    ({"privacy_unit": ""}, "--privacy_unit: '' is not valid"),
    (
        {"privacy_unit": "record", "max_records_per_unit": "2"},
        "--max_records_per_unit: 2 is not valid",
    ),
    ({"failure_probability": "1"}, "--failure_probability: 1.0 is not valid"),
    ({"max_error": "2"}, "--max_error: 2.0 is not valid: must be a number > 0 and <= 1"),
    ({"epsilon": "1", "target_error": "5"}, "--epsilon: '1' cannot be combined"),
    ({"target_bound": "1", "target_error": "5"}, "--target_bound: '1' cannot be combined"),
    ({"epsilon": None, "target_error": "0"}, "--target_error: 0.0 is not valid: must be a finite"),
    ({"epsilon": None, "target_error": "nan"}, "--target_error: nan is not valid: must be a fin"),
    ({"epsilon": None, "target_error": "few"}, "--target_error: 'few' is not valid: must be a n"),
    ({"epsilon": None, "target_error": "1e-12"}, "--target_error: 1e-12 is not valid: must be at"),
    ({"start": "now"}, "--start: 'now' needs --windows"),
    ({"block": "24"}, "--block: '24' needs --windows"),
    ({"num_keys": "3"}, "--num_keys: '3' needs --max_sparsity"),
]
COUNTS = [
    (
        {"num_cells": None},
        "--workload is required; or, to find how many queries keep --target_error, --epsilon",
    ),
    ({"epsilon": None}, "--epsilon is required without --workload"),
    ({"delta": None}, "--delta is required"),
    ({"num_records": None}, "--num_records is required"),
    ({"num_records": "noisy"}, "--num_records: 'noisy' is not valid: must be a number"),
    ({"num_records": "0"}, "--num_records: 0 is not valid: must be an integer from"),
    ({"target_error": "1e6"}, "--target_error: 1000000.0 is not valid: must be a nu"),
    ({"target_error": "nan"}, "--target_error: nan is not valid: must be a number"),
    ({"target_error": "few"}, "--target_error: 'few' is not valid: must be a number"),
    ({"failure_probability": "1"}, "--failure_probability: 1.0 is not valid: must b"),
    ({"target_bound": "5"}, "--target_bound: '5' needs -"),
    ({"max_error": "0.1"}, "--max_error: '0.1' needs --"),
    ({"output": "a"}, "--output: 'a' needs --workload"),
    ({"size": "5"}, "--size: '5' needs --workload"),
    ({"start": "5"}, "--start: '5' needs --workload"),
    ({"domain": '{"a": 4}'}, "--num_cells: '1024' cannot be combined"),
    ({"num_cells": "0"}, "--num_cells: 0 is not valid: must be an integer from 1 to 2^1000"),
    ({"num_cells": "1.5"}, "--num_cells: '1.5' is not valid: must be a whole number"),
    ({"num_cells": None, "domain": "no.json"}, "--domain: 'no.json' is not valid: "),
    (
        {"num_cells": None, "max_sparsity": "0"},
        "--max_sparsity: 0 is not valid: must be an integer from 1 to 2^31",
    ),
    (
        {"num_cells": None, "max_sparsity": "4", "num_keys": "9"},
        "--epsilon: '1' cannot be combined with --target_error",
    ),
    (
        {"workload": "marginals:1", "domain": '{"a": 4}', "epsilon": None},
        "--num_cells: '1024' needs --target_error, and no --w",
    ),
    (
        {"target_error": None},
        "--num_cells: '1024' needs --target_error, and no --w",
    ),
]
OF_WINDOWS = [
    ({"grace": None}, "--grace is required: "),
    ({"domain": None}, "--domain is required: "),
    ({"epsilon": None}, "--epsilon is required: "),
    ({"protected_windows": None}, "--protected_windows is required with"),
    ({"protected_windows": "169"}, "--protected_windows: 169 is not valid: must be at most"),
    ({"max_windows_per_unit": "x"}, "--max_windows_per_unit: 'x' is not valid: must be a wh"),
    ({"window": "1"}, "--window: '1' is not valid: must be a whole number with its unit"),
    ({"questions": "two"}, "--questions: 'two' is not valid: must be 'one', 'running' or"),
    ({"workload": "conjunctions:2"}, "--workload: 'conjunctions:2' is not valid"),
    ({"num_records": "5"}, "--num_records: '5' cannot be combined with --wind"),
    ({"max_sparsity": "5"}, "--max_sparsity: '5' cannot be combined with --wi"),
    ({"neighboring": "replace_one"}, "--neighboring: 'replace_one' is not valid: must be a"),
    ({"delta": "1e-4"}, "--delta: 0.0001 is not valid: must be at most 1e-05, unless --all"),
    (
        {"epsilon": None, "target_bound": "1"},
        "--target_bound: '1' cannot be combined wi",
    ),
]
OF_KEYS = [
    ({"domain": "x.json"}, "--domain: 'x.json' cannot be combined with"),
    ({"max_error": "0.1"}, "--max_error: '0.1' cannot be combined with"),
    ({"size": "63"}, "--size: 63 is not valid: must be at least 64"),
    ({"size": "1_000"}, "--size: '1_000' is not valid: must be a whole number"),
    ({"max_sparsity": "0"}, "--max_sparsity: 0 is not valid: must be an integer from 1 to 2^31"),
    ({"largest_count": "74"}, "--num_records: 100000 is not valid: must be from"),
    ({"num_keys": "many"}, "--num_keys: 'many' is not valid: must be a whole number"),
    ({"num_keys": None}, "--num_keys is required: with --max_sparsity: a pub"),
    ({"failure_probability": "1"}, "--failure_probability: 1.0 is not valid: must be"),
]


@pytest.mark.parametrize(
    ("given", "changed", "line"),
    [
        (given, changed, line)
        for given, cases in (
            ({**TABLE, "epsilon": "1"}, MARGINALS),
            (QUERIES, COUNTS),
            ({**WINDOWS, "epsilon": "1"}, OF_WINDOWS),
            ({**KEYS, "epsilon": "1"}, OF_KEYS),
        )
        for changed, line in cases
    ],
)
def test_invalid_flag_gives_a_one_line_error(capsys, given, changed, line):
    assert main(argv(given, **changed)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(f"error: {line}"), err
