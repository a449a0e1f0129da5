"""The flags that several programs share."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from beam_dp.flags.flag import Flag, FlagError, integer, integer_flag, number, number_flag
from beam_dp.privacy import guarantee
from beam_dp.privacy.guarantee import RECORD, Guarantee, Neighboring
from beam_dp.privacy.ledger.entries import Origin, place_text

if TYPE_CHECKING:
    from beam_dp.privacy.ledger.ledger import Ledger

MAX_RECORDS = 2**40

INPUT = Flag(
    "input",
    "the files to read: a glob on any filesystem that Beam supports",
    "GLOB",
    True,
    form="files",
)
INPUT_FORMAT = Flag(
    "input_format",
    "the format of the files (default: by file extension)",
    choices=("avro", "parquet", "csv"),
)
FILE_TIME = "file_time"  # not a column, but the time when a record's file was last changed
DOMAIN = Flag(
    "domain",
    "the domain: a JSON file that declares the attributes and their values, or the JSON itself; or"
    " the folder of a domain that a release has found",
    "FILE",
    True,
    form="file",
)
WORKLOAD = Flag(
    "workload",
    "queries: marginals:2 for all pairs, marginals:age,sex;age,education, or a file of JSON lines",
    "SPEC",
    True,
    form="file",
)
EPSILON = number_flag(
    "epsilon",
    "the privacy loss, from 1e-300 to 1,000,000; smaller protects more",
    "E",
    True,
)
DELTA = number_flag(
    "delta",
    "how much a probability may exceed the bound of epsilon: 0 to 1e-5, far below 1 / (number of"
    " people)",
    "D",
    True,
)
ALLOW_LARGE_DELTA = Flag("allow_large_delta", "allow a delta above 1e-5", is_switch=True)
NEIGHBORING = Flag(
    "neighboring",
    "what a guarantee compares: data with and without one unit, or with one unit replaced",
    required=True,
    choices=("add_or_remove_one", "replace_one"),
)
PRIVACY_UNIT = Flag(
    "privacy_unit",
    "who is protected: the COLUMN that identifies a person (or another unit); or the word"
    " 'record', which protects only one row, not a person",
    "COLUMN|record",
    True,
)
MAX_RECORDS_PER_UNIT = integer_flag(
    "max_records_per_unit",
    "the largest number of records of a unit that are used, from 1 to 2^40; required unless"
    " the unit is the record",
    "K",
)
# A word for a number that a release chooses, up to a public one.
DISCOVER = "discover"
MOST_RECORDS_PER_UNIT = integer_flag(
    "most_records_per_unit",
    f"the largest number that --{MAX_RECORDS_PER_UNIT.name} {DISCOVER} may choose, from 2 to 2^40",
    "M",
    limits={"least": 2, "most": guarantee.MAX_RECORDS_PER_UNIT},
)
NUM_RECORDS = integer_flag(
    "num_records",
    "the number of records, if it is public; otherwise noisy, which uses part of the budget",
    "N|noisy",
    True,
    word="noisy",
    limits={"least": 1, "most": MAX_RECORDS, "note": " or 'noisy'"},
)
CALIBRATION = Flag(
    "calibration",
    "tight uses the best proven analysis; textbook is the mechanism as published",
    default="tight",
    choices=("tight", "textbook"),
)
KEY = Flag("key", "the column of keys", "COLUMN", True)
KEY_TYPE = Flag(
    "key_type",
    "the type of keys: text and bytes treat a number as its digits; integer treats a string of"
    " digits as a number. Records with other keys are left out",
    default="text",
    choices=("text", "bytes", "integer"),
)
MAX_SPARSITY = integer_flag("max_sparsity", "the maximum number of keys in a query", "M", True)
VALIDATE_ONLY = Flag(
    "validate_only",
    "check everything and print what would be released; reads no record and writes nothing",
    is_switch=True,
)
JSON = Flag(
    "json",
    "with --validate_only: print the public part of the card as JSON",
    is_switch=True,
)
LEDGER = Flag(
    "ledger",
    "the ledger that keeps budgets: a SQLite file, or postgresql://...; needs --dataset_id",
    "URL",
)
DATASET_ID = Flag("dataset_id", "the dataset whose budget pays for this release", "NAME")
PURPOSE = Flag(
    "purpose",
    "the purpose of the release, 1 to 500 characters, for readers of the ledger; needs --ledger",
    "TEXT",
)
WHO = Flag(
    "who",
    "the author of the release, for readers of the ledger (default: the operating system's user);"
    " needs --ledger",
    "NAME",
)
COUNT_LEFT_OUT = Flag(
    "count_left_out",
    "also release noisy counts of the records outside the domain, by the first attribute that"
    " does not fit; this takes a twentieth of epsilon",
    is_switch=True,
)
WITHOUT_BIN_SUMS = Flag(
    "without_bin_sums",
    "do not measure where the numbers of each bin lie on average, which takes a fiftieth of the"
    " budget; means then rest on the middles of bins",
    is_switch=True,
)
WITHIN_BINS = Flag(
    "within_bins",
    "the released values of binned columns: density draws a value within the bin, more often on"
    " the side of a fuller bin; uniform draws it anywhere in the bin; midpoint uses its middle. No"
    " choice costs budget",
    default="density",
    choices=("density", "uniform", "midpoint"),
)
RECORDS_FORMAT = Flag(
    "records_format",
    "the format of released records; parquet and csv store a column of several types as text",
    default="avro",
    choices=("avro", "parquet", "csv"),
)
NUM_SYNTHETIC_RECORDS = integer_flag(
    "num_synthetic_records",
    "the number of records to release, if it is not the number of records in the data; answers are"
    " scaled to the data",
    "N",
    limits={"least": 1, "most": MAX_RECORDS},
)
EXPECT_RECORDS = integer_flag(
    "expect_records",
    "roughly how many records you expect: if the released number is far from it, a warning"
    " appears on this terminal only",
    "N",
    limits={"least": 1, "most": MAX_RECORDS},
)
OUTPUT = Flag(
    "output",
    "the directory for the release: local, gs:// or s3://; it must not contain a release yet",
    "DIR",
    True,
)

# Each flag with another one that it needs.
_PAYMENT = {"ledger": "dataset_id", "dataset_id": "ledger", "purpose": "ledger", "who": "ledger"}
PAIRS = {**_PAYMENT, "weight": "max_weight", "max_weight": "weight", "json": "validate_only"}
COMMON = (
    INPUT,
    INPUT_FORMAT,
    DOMAIN,
    WORKLOAD,
    EPSILON,
    DELTA,
    ALLOW_LARGE_DELTA,
    NEIGHBORING,
    PRIVACY_UNIT,
    MAX_RECORDS_PER_UNIT,
    NUM_RECORDS,
    CALIBRATION,
    LEDGER,
    DATASET_ID,
    PURPOSE,
    WHO,
    VALIDATE_ONLY,
    JSON,
    OUTPUT,
)
# Flags of `beam-dp plan` that ask for the smallest epsilon, and exclude --epsilon.
TARGET_ERROR = number_flag(
    "target_error",
    "without --epsilon: find the smallest epsilon for which the expected error (root mean"
    " square) is at most A records; with --epsilon, but without --workload: find the number of"
    " queries for which no answer is off by more than A records",
    "A",
    limits={"above": 0},
)
TARGET_BOUND = number_flag(
    "target_bound",
    "without --epsilon: find the smallest epsilon for which all answers are off by at most A"
    " records, with probability 1 - --failure_probability",
    "A",
    limits={"above": 0},
)


def read_guarantee(given: Mapping[str, str]) -> Guarantee:
    """Returns the guarantee that the flags describe."""
    return Guarantee(
        epsilon=number("epsilon", given["epsilon"]),
        delta=number("delta", given["delta"]),
        neighboring=Neighboring(given["neighboring"]),
        privacy_unit=given["privacy_unit"],
        max_records_per_unit=read_limit_of_unit(MAX_RECORDS_PER_UNIT, given),
        allow_large_delta="allow_large_delta" in given,
    )


def read_limit_of_unit(flag: Flag, given: Mapping[str, str]) -> int:
    """Returns the limit on records or windows of a unit: 1 if the unit is the record.

    If a release is to choose the limit, this is the largest limit that it may choose.
    """
    limit = MOST_RECORDS_PER_UNIT
    if given.get(flag.name) == DISCOVER:
        if given["privacy_unit"] == RECORD:
            raise FlagError(f"--{flag.name} {DISCOVER} needs a column as --privacy_unit")
        if limit.name not in given:
            condition = f"is required with --{flag.name} {DISCOVER}: {limit.help}"
            raise FlagError(f"--{limit.name} {condition}")
        return integer(limit.name, given[limit.name])
    if limit.name in given:
        raise FlagError(f"--{limit.name} needs --{flag.name} {DISCOVER}")
    if flag.name in given:
        return integer(flag.name, given[flag.name])
    unit = given["privacy_unit"]
    if unit == RECORD:
        return 1
    hint = f" (did you mean {RECORD}?)" if difflib.get_close_matches(unit, [RECORD]) else ""
    raise FlagError(f"--{flag.name} is required with --privacy_unit {unit}{hint}: {flag.help}")


def read_num_records(given: Mapping[str, str]) -> int | Literal["noisy"]:
    """Returns the number of records, or ``"noisy"``."""
    if given["num_records"] == "noisy":
        return "noisy"
    return integer("num_records", given["num_records"], "or 'noisy'")


def read_ledger(given: Mapping[str, str]) -> Ledger | None:
    """Returns the ledger that the flags name; None if they name no ledger."""
    if "ledger" not in given:
        return None
    from beam_dp.privacy.ledger.ledger import Ledger  # loads slowly

    return Ledger(given["ledger"])


def read_origin(given: Mapping[str, str]) -> Origin | None:
    """Returns a release's author, purpose and output for the ledger; None without a ledger."""
    if "ledger" not in given:
        return None
    said = {name: given[name] for name in ("who", "purpose") if name in given}
    return Origin(**said, output=place_text(given["output"]))
