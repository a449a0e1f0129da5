"""The mechanism of `release-projection` from flags: named, or predicted to be best."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag, FlagError, check_applies
from beam_dp.flags.numbers import integer
from beam_dp.flags.options import flags_of, values_of
from beam_dp.mechanisms.registry import SKETCHES, options_of
from beam_dp.mechanisms.sketches.errors import KeyProfile
from beam_dp.mechanisms.sketches.mechanisms import CountSketch
from beam_dp.mechanisms.sketches.plan import DEFAULT_SIZE, SparseMechanism
from beam_dp.planning.sketches import SparseChoice, plan_sparse_release
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.filters import Account

AUTO = "auto"
MECHANISM = Flag(
    "mechanism",
    "auto takes what is predicted to be best for --num_records, --num_keys and --largest_count;"
    " see docs/sparse_queries.md for the others",
    default=CountSketch.name,
    choices=(AUTO, *SKETCHES),
)
_SIZE = flags_of(CountSketch)[0]
_PROFILE = flags_of(KeyProfile)
# What may be given beside each mechanism.
_OPTIONS = {AUTO: (_SIZE, *_PROFILE), **options_of(SKETCHES)}
MECHANISM_FLAGS = (
    MECHANISM,
    *dict.fromkeys(flag for flags in _OPTIONS.values() for flag in flags),
)


def choose(
    given: dict[str, str],
    guarantee: Guarantee,
    max_sparsity: int,
    max_weight: int,
    *,
    account: Account | None,
) -> tuple[SparseMechanism, list[SparseChoice]]:
    """Returns the mechanism that flags describe, and for ``auto`` all choices, best first.

    ``account``: that pays, where one does: ``auto`` then leaves out what does not fit it.
    """
    name = given["mechanism"]
    check_applies(given, name, _OPTIONS)
    try:
        if name != AUTO:
            values = values_of(SKETCHES[name], given)
            size = values.pop("projection_width", DEFAULT_SIZE)
            return SKETCHES[name](**values).within(size), []
        for flag in _PROFILE:
            if flag.name not in given:
                raise FlagError(f"--{flag.name}: missing; must be given with --mechanism auto")
        choices = plan_sparse_release(
            guarantee,
            KeyProfile(**values_of(KeyProfile, given)),
            max_sparsity=max_sparsity,
            max_size=integer("size", given["size"]) if "size" in given else DEFAULT_SIZE,
            max_weight=max_weight,
        )
    except InputError as error:
        if error.name in ("projection_width", "max_size"):
            raise InputError("size", error.value, error.condition) from None
        raise
    if account is not None:
        # Where nothing fits, the ledger says best why.
        choices = [choice for choice in choices if account.fits(choice.loss)] or choices
    return choices[0].mechanism, choices


def choices_json(choices: Sequence[SparseChoice]) -> list[dict[str, Any]]:
    """Returns the planner's table as JSON values."""
    return [
        {
            "mechanism": choice.mechanism.name,
            "parameters": dataclasses.asdict(choice.mechanism),
            "error": choice.error,
            "error_of_one": choice.error_of_one,
            "size": choice.size,
            "is_pure": choice.is_pure,
        }
        for choice in choices
    ]
