"""The flags of `beam-dp plan`. No heavy imports: `beam-dp` reads them for every command."""

from __future__ import annotations

import dataclasses

from beam_dp.flags import windows
from beam_dp.flags.flag import Flag

# What plans the windows of a stream; the first is a switch, and those of the horizon are required
# with it.
WINDOWS = Flag(
    "windows", "plan releases of the windows of a stream, for sums of them", is_switch=True
)
HORIZON = tuple(
    dataclasses.replace(flag, required=False, help=f"with --windows: {flag.help}")
    for flag in windows.HORIZON
)
OF_WINDOWS = (
    *HORIZON,
    *(
        dataclasses.replace(flag, help=f"with --windows: {flag.help}")
        for flag in (*windows.UNIT, windows.QUESTIONS, windows.BLOCK)
    ),
)
# What the printed command line of windows has besides.
TYPED_OF_WINDOWS = tuple(
    dataclasses.replace(flag, required=False, help="with --windows: for the printed command line")
    for flag in windows.TIMES
)
# What plans sparse queries; the first three are then required.
OF_SPARSE = (
    Flag(
        "max_sparsity",
        "plan queries that name at most M keys each, of a column of keys, instead of a workload",
        "M",
        form="integer",
    ),
    Flag(
        "num_keys",
        "with --max_sparsity: about how many distinct keys; a public guess",
        "N",
        form="integer",
    ),
    Flag(
        "largest_count",
        "with --max_sparsity: about how many records the most frequent key has; a public guess",
        "N",
        form="integer",
    ),
    Flag(
        "size",
        "with --max_sparsity: the most numbers of the artifact (default: 2^20)",
        "N",
        form="integer",
    ),
    Flag(
        "num_questions",
        "with --max_sparsity: queries that a bound is of; also plan what answers one at a time",
        "K",
        form="integer",
    ),
    Flag("key", "with --max_sparsity: for the printed command line", "COLUMN"),
)
# Flags of workloads alone.
NOT_OF_SPARSE = ("domain", "workload", "max_error")
# What asks for the least epsilon, which must not be given then.
TARGET_ERROR = Flag(
    "target_error",
    "instead of --epsilon: find the least one with which the expected error of an answer (root mean"
    " squared, over the workload) is at most A records. With --epsilon, instead of --workload: find"
    " how many queries may be asked so that no answer is wrong by more than A records",
    "A",
    form="number",
)
TARGET_BOUND = Flag(
    "target_bound",
    "instead of --epsilon: find the least one with which no answer at all is wrong by more than A"
    " records, except with --failure_probability",
    "A",
    form="number",
)
# What is known of the universe where the number of queries is asked for, besides --max_sparsity.
NUM_CELLS = Flag(
    "num_cells",
    "with --target_error, instead of --workload and --domain: how many cells the universe has",
    "U",
    form="integer",
)
# Flags that help to find how many queries may be asked.
OF_QUERIES = (
    "domain",
    "num_records",
    "epsilon",
    "delta",
    "neighboring",
    "privacy_unit",
    "max_records_per_unit",
    "failure_probability",
    TARGET_ERROR.name,
    NUM_CELLS.name,
    "max_sparsity",
    "all",
    "num_records_is_public",
    "allow_large_delta",
)
# What no window has: a public number of records, or a bound that it is compared by.
NOT_OF_WINDOWS = (
    "num_records",
    "num_records_is_public",
    "failure_probability",
    "max_error",
    TARGET_BOUND.name,
    NUM_CELLS.name,
    *(flag.name for flag in OF_SPARSE),
)
FLAGS = (
    Flag(
        "domain",
        "JSON file that declares the attributes; not with --max_sparsity",
        "FILE",
        True,
        form="file",
    ),
    Flag(
        "workload",
        "what to answer: marginals:3, conjunctions:2, intervals:age, ..., or a file of JSON lines",
        "SPEC",
        True,
        form="file",
    ),
    Flag(
        "num_records",
        "how many records there are, or a guess where that is private",
        "N",
        True,
        form="integer",
    ),
    Flag("epsilon", "privacy parameter, from 1e-300 to 1,000,000", "E", True, form="number"),
    Flag("delta", "privacy parameter, from 0 (pure privacy) to 1e-5", "D", True, form="number"),
    Flag(
        "neighboring",
        "add_or_remove_one or replace_one",
        "R",
        True,
        choices=("add_or_remove_one", "replace_one"),
    ),
    Flag("privacy_unit", "what is protected: a column, or the word record", "U", True),
    Flag(
        "max_records_per_unit",
        "records kept of a unit; required unless that is the record",
        "K",
        form="integer",
    ),
    Flag("failure_probability", "of all bounds, > 0 and < 1 (default: 0.05)", "B", form="number"),
    Flag(
        "max_error",
        "also say how many records make every error at most this share",
        "A",
        form="number",
    ),
    TARGET_ERROR,
    TARGET_BOUND,
    NUM_CELLS,
    *OF_SPARSE,
    WINDOWS,
    *OF_WINDOWS,
    *TYPED_OF_WINDOWS,
    Flag("input", "for the printed command line; nothing is read", "GLOB"),
    Flag("output", "for the printed command line; nothing is written", "DIR"),
    Flag("all", "also say why each of the other mechanisms cannot do the job", is_switch=True),
    Flag("num_records_is_public", "N is public; always so under replace_one", is_switch=True),
    Flag("allow_large_delta", "admit a delta above 1e-5", is_switch=True),
)
