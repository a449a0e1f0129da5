"""The mechanism of `release-projection` from flags: named, or predicted to be best."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError
from beam_dp.mechanisms import (
    CountSketch,
    HybridSketch,
    SparseMechanism,
    SparseProject,
    StabilityHistogram,
)
from beam_dp.mechanisms.sketches.key_profile import KeyProfile
from beam_dp.planning.sketches.choices import SparseChoice, plan_sparse_release
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.filters import Account
from beam_dp.summaries.projection import MAX_PROJECTION_WIDTH

from .flags import CALIBRATION, Flag, FlagError, integer, number

AUTO, HYBRID = "auto", "hybrid"
_DEFAULT_SIZE = 2**20

MECHANISM = Flag(
    "mechanism",
    "auto takes what is predicted to be best for --num_records, --num_keys and --largest_count;"
    " see docs/sparse_queries.md for the others",
    default="count_sketch",
    choices=(AUTO, "sparse_project", "count_sketch", "stability_histogram", HYBRID),
)
SIZE = Flag("size", "the most numbers that the artifact holds; by default 2^20", "N")
NUM_RECORDS = Flag("num_records", "auto: about how many records there are; a public guess", "N")
NUM_KEYS = Flag("num_keys", "auto: about how many distinct keys; a public guess", "N")
LARGEST_COUNT = Flag(
    "largest_count", "auto: about how many records the most frequent key has; a public guess", "N"
)
NUM_ROWS = Flag("num_rows", "count_sketch and hybrid: rows of the sketch, odd", "S")
NOISE = Flag("noise", "count_sketch: laplace by default", choices=("laplace", "gaussian"))
UNIT_NORM = Flag(
    "unit_norm", "count_sketch with gaussian noise: bound of the norm of a unit's sketch", "C"
)
HISTOGRAM_SHARE = Flag("histogram_share", "hybrid: of epsilon, > 0 and < 1", "A")
FAMILY = Flag("family", "sparse_project: blocks by default", choices=("blocks", "dense"))

MECHANISM_FLAGS = (
    MECHANISM,
    SIZE,
    NUM_RECORDS,
    NUM_KEYS,
    LARGEST_COUNT,
    NUM_ROWS,
    NOISE,
    UNIT_NORM,
    HISTOGRAM_SHARE,
    FAMILY,
    CALIBRATION,
)
_PROFILE = (NUM_RECORDS, NUM_KEYS, LARGEST_COUNT)
# What may be given beside each mechanism.
_OF = {
    AUTO: (SIZE, *_PROFILE),
    "sparse_project": (SIZE, FAMILY),
    "count_sketch": (SIZE, NUM_ROWS, NOISE, UNIT_NORM),
    "stability_histogram": (),
    HYBRID: (SIZE, NUM_ROWS, HISTOGRAM_SHARE),
}


def choose(
    given: dict[str, str],
    guarantee: Guarantee,
    max_sparsity: int,
    max_weight: int,
    *,
    account: Account | None,
) -> tuple[SparseMechanism, list[SparseChoice]]:
    """Returns the mechanism that flags describe, and for ``auto`` all choices, best first.

    Args:
        given: the texts of the flags that were given.
        guarantee: what is promised.
        max_sparsity: the most keys that a query may name.
        max_weight: the most that a record weighs.
        account: that pays, where one does: ``auto`` then leaves out what does not fit it.

    Raises:
        FlagError: a flag that ``auto`` needs is missing.
        InputError: a value is refused, or a flag is of another mechanism.
    """
    name = given["mechanism"]
    for flag in (SIZE, *_PROFILE, NUM_ROWS, NOISE, UNIT_NORM, HISTOGRAM_SHARE, FAMILY):
        if flag.name in given and flag not in _OF[name]:
            raise InputError(flag.name, given[flag.name], f"must not be given for {name}")
    if given["calibration"] != "tight" and name != "sparse_project":
        raise InputError("calibration", given["calibration"], f"must be 'tight' for {name}")
    try:
        if name == AUTO:
            return _best(given, guarantee, max_sparsity, max_weight, account)
        return _named(name, given), []
    except InputError as error:
        if error.name in ("projection_width", "max_size"):
            raise InputError("size", error.value, error.condition) from None
        raise


def choices_json(choices: Sequence[SparseChoice]) -> list[dict[str, Any]]:
    """Returns the planner's table as JSON values."""
    return [
        {
            "mechanism": choice.mechanism.name,
            "parameters": _parameters(choice.mechanism),
            "error": choice.error,
            "error_of_one": choice.error_of_one,
            "size": choice.size,
            "is_pure": choice.is_pure,
        }
        for choice in choices
    ]


def _parameters(mechanism: Any) -> dict[str, Any]:
    return dataclasses.asdict(mechanism)


def _size(given: dict[str, str]) -> int:
    if "size" not in given:
        return _DEFAULT_SIZE
    return checked_integer("size", integer("size", given["size"]), 1, MAX_PROJECTION_WIDTH)


def _best(
    given: dict[str, str],
    guarantee: Guarantee,
    max_sparsity: int,
    max_weight: int,
    account: Account | None,
) -> tuple[SparseMechanism, list[SparseChoice]]:
    for flag in _PROFILE:
        if flag.name not in given:
            raise FlagError(f"--{flag.name}: missing; must be given with --mechanism auto")
    num_records, num_keys, largest = (integer(flag.name, given[flag.name]) for flag in _PROFILE)
    choices = plan_sparse_release(
        guarantee,
        KeyProfile(num_records, num_keys, largest),
        max_sparsity=max_sparsity,
        max_size=_size(given),
        max_weight=max_weight,
    )
    if account is not None:
        affordable = [choice for choice in choices if account.fits(choice.loss)]
        # Where nothing fits, the ledger says best why.
        choices = affordable or choices
    return choices[0].mechanism, choices


def _named(name: str, given: dict[str, str]) -> SparseMechanism:
    size = _size(given)
    if name == "stability_histogram":
        return StabilityHistogram()
    if name == "sparse_project":
        is_dense = given.get("family") == "dense"
        calibration: Literal["tight", "textbook"]
        calibration = "textbook" if given["calibration"] == "textbook" else "tight"
        width = _multiple(size, 64 if is_dense else 8)
        return SparseProject(width, "dense" if is_dense else "blocks", calibration=calibration)
    if name == HYBRID:
        num_rows = integer("num_rows", given["num_rows"]) if "num_rows" in given else 1
        share = number("histogram_share", given.get("histogram_share", "0.3"))
        return HybridSketch(_multiple(size, num_rows), num_rows, histogram_share=share)
    num_rows = integer("num_rows", given["num_rows"]) if "num_rows" in given else 3
    return CountSketch(
        _multiple(size, num_rows),
        num_rows,
        noise="gaussian" if given.get("noise") == "gaussian" else "laplace",
        unit_norm=number("unit_norm", given["unit_norm"]) if "unit_norm" in given else None,
    )


def _multiple(size: int, num_rows: int) -> int:
    """The largest multiple that fits; the mechanism refuses rows that are none."""
    if size < num_rows:
        raise FlagError(f"--size: {size} is refused; must be at least {num_rows}, for its rows")
    return size // num_rows * num_rows if num_rows > 0 else size
