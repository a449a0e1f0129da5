"""The flags of `beam-dp plan`. No heavy imports: `beam-dp` reads them for every command."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class PlanFlag:
    """One flag of the command."""

    name: str
    metavar: str
    help: str
    required: bool = False


# What plans sparse queries; the first three are then required.
OF_SPARSE = (
    PlanFlag(
        "max_sparsity",
        "M",
        "plan queries that name at most M keys each, of a column of keys, instead of a workload",
    ),
    PlanFlag("num_keys", "N", "with --max_sparsity: about how many distinct keys; a public guess"),
    PlanFlag(
        "largest_count",
        "N",
        "with --max_sparsity: about how many records the most frequent key has; a public guess",
    ),
    PlanFlag("size", "N", "with --max_sparsity: the most numbers of the artifact (default: 2^20)"),
    PlanFlag("num_questions", "K", "with --max_sparsity: queries asked one at a time"),
    PlanFlag("key", "COLUMN", "with --max_sparsity: for the printed command line"),
)
# Flags of workloads alone.
NOT_OF_SPARSE = ("domain", "workload", "max_error")
FLAGS = (
    PlanFlag(
        "domain", "FILE", "JSON file that declares the attributes; not with --max_sparsity", True
    ),
    PlanFlag(
        "workload", "SPEC", "what to answer: marginals:3, conjunctions:2, intervals:age, ...", True
    ),
    PlanFlag(
        "num_records", "N", "how many records there are, or a guess where that is private", True
    ),
    PlanFlag("epsilon", "E", "privacy parameter, > 0", True),
    PlanFlag("delta", "D", "privacy parameter, 0 <= delta <= 1e-5; 0 is pure privacy", True),
    PlanFlag("neighboring", "R", "add_or_remove_one or replace_one", True),
    PlanFlag("privacy_unit", "U", "what is protected: a column, or the word record", True),
    PlanFlag(
        "max_records_per_unit", "K", "records kept of a unit; required unless that is the record"
    ),
    PlanFlag("failure_probability", "B", "of all bounds, > 0 and < 1 (default: 0.05)"),
    PlanFlag("max_error", "A", "also say how many records make every error at most this share"),
    *OF_SPARSE,
    PlanFlag("input", "GLOB", "for the printed command line; nothing is read"),
    PlanFlag("output", "DIR", "for the printed command line; nothing is written"),
)
SWITCHES = (
    PlanFlag("num_records_is_public", "", "N is public; always so under replace_one"),
    PlanFlag("allow_large_delta", "", "admit a delta above 1e-5"),
)
