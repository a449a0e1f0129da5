"""The flags of `beam-dp plan`. No heavy imports: `beam-dp` reads them for every command."""

from __future__ import annotations

from beam_dp.flags.flag import Flag

# What plans sparse queries; the first three are then required.
OF_SPARSE = (
    Flag(
        "max_sparsity",
        "plan queries that name at most M keys each, of a column of keys, instead of a workload",
        "M",
    ),
    Flag("num_keys", "with --max_sparsity: about how many distinct keys; a public guess", "N"),
    Flag(
        "largest_count",
        "with --max_sparsity: about how many records the most frequent key has; a public guess",
        "N",
    ),
    Flag("size", "with --max_sparsity: the most numbers of the artifact (default: 2^20)", "N"),
    Flag("num_questions", "with --max_sparsity: queries asked one at a time", "K"),
    Flag("key", "with --max_sparsity: for the printed command line", "COLUMN"),
)
# Flags of workloads alone.
NOT_OF_SPARSE = ("domain", "workload", "max_error")
FLAGS = (
    Flag("domain", "JSON file that declares the attributes; not with --max_sparsity", "FILE", True),
    Flag(
        "workload", "what to answer: marginals:3, conjunctions:2, intervals:age, ...", "SPEC", True
    ),
    Flag("num_records", "how many records there are, or a guess where that is private", "N", True),
    Flag("epsilon", "privacy parameter, from 1e-300 to 1,000,000", "E", True),
    Flag("delta", "privacy parameter, from 0 (pure privacy) to 1e-5", "D", True),
    Flag(
        "neighboring",
        "add_or_remove_one or replace_one",
        "R",
        True,
        choices=("add_or_remove_one", "replace_one"),
    ),
    Flag("privacy_unit", "what is protected: a column, or the word record", "U", True),
    Flag("max_records_per_unit", "records kept of a unit; required unless that is the record", "K"),
    Flag("failure_probability", "of all bounds, > 0 and < 1 (default: 0.05)", "B"),
    Flag("max_error", "also say how many records make every error at most this share", "A"),
    *OF_SPARSE,
    Flag("input", "for the printed command line; nothing is read", "GLOB"),
    Flag("output", "for the printed command line; nothing is written", "DIR"),
    Flag("num_records_is_public", "N is public; always so under replace_one", is_switch=True),
    Flag("allow_large_delta", "admit a delta above 1e-5", is_switch=True),
)
