"""Types, flags and parameter checks that mechanisms share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.flags import shared
from beam_dp.flags.flag import number, option, option_of
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.noise.bound import LEAST_FAILURE_PROBABILITY
from beam_dp.privacy.noise.source import MAX_SCALE

Progress = Callable[[str, int, int], None]
NumRecords = int | Literal["noisy"]
Calibration = Literal["tight", "textbook"]

# The flags for plan fields with these names.
CALIBRATION = option_of(shared.CALIBRATION)
_PROBABILITIES: dict[str, Any] = {"least": LEAST_FAILURE_PROBABILITY, "below": 1}
FAILURE_PROBABILITY = option(
    "the probability that a stated bound fails, > 0 and < 1",
    "B",
    number,
    default="0.05",
    limits=_PROBABILITIES,
)
MAX_SPARSITY = 2**31  # keys in a query


def check_num_records(num_records: NumRecords, guarantee: Guarantee) -> None:
    """Refuses an invalid number of records, and ``"noisy"`` under ``replace_one``."""
    if num_records != "noisy":
        checked_integer("num_records", num_records, 1, shared.MAX_RECORDS, note=" or 'noisy'")
    elif guarantee.neighboring is Neighboring.REPLACE_ONE:
        condition = "must be a number: it is public under replace_one"
        raise InputError("num_records", num_records, condition)


def check_noise(guarantee: Guarantee, scales: Iterable[float]) -> None:
    """Refuses a guarantee whose noise would not fit 64-bit integers, before any noise is drawn."""
    if not max(scales, default=0.0) <= MAX_SCALE:
        raise InputError(
            "epsilon",
            guarantee.epsilon,
            "is too small for this workload and max_records_per_unit:"
            " noise must have a scale of at most 2^50",
        )


def check_failure_probability(failure_probability: float) -> None:
    """Refuses a probability outside (0, 1), or too small for floating-point sums."""
    checked_number("failure_probability", failure_probability, **_PROBABILITIES)


def check_calibration(calibration: str) -> None:
    """Refuses an unknown calibration."""
    check_choice("calibration", calibration, ("tight", "textbook"))
