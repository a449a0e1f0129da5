"""Flags of `beam-dp plan` that ask for an error instead of giving an epsilon."""

from __future__ import annotations

from beam_dp.flags.flag import Flag

# Flags that ask for the smallest epsilon; --epsilon must not be given with these flags.
TARGET_ERROR = Flag(
    "target_error",
    "without --epsilon: find the smallest epsilon for which the expected error (root mean"
    " square) is at most A records; with --epsilon, but without --workload: find the number of"
    " queries for which no answer is off by more than A records",
    "A",
    form="number",
)
TARGET_BOUND = Flag(
    "target_bound",
    "without --epsilon: find the smallest epsilon for which all answers are off by at most A"
    " records, with probability 1 - --failure_probability",
    "A",
    form="number",
)
