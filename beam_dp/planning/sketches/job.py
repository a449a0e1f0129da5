"""Jobs of sparse queries to plan, and the options that a plan compares."""

from __future__ import annotations

import dataclasses
from typing import Any

from beam_dp.checks import check_is, checked_integer
from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import NumRecords, check_failure_probability
from beam_dp.mechanisms.online.sparse_mw import MAX_SPARSITY
from beam_dp.mechanisms.sketches.errors import KeyProfile
from beam_dp.mechanisms.sketches.plan import DEFAULT_SIZE
from beam_dp.planning.job import Option
from beam_dp.privacy.guarantee import Guarantee, Neighboring


@dataclasses.dataclass(frozen=True)
class SparsePlanningJob:
    """Sparse queries about the keys of records, under which promise.

    Args:
        guarantee: what is promised.
        profile: how many records and distinct keys there are, and how many records the most
            frequent key has; a guess where that is private. Never take it from the records then.
        max_sparsity: m, the most keys that a query may name.
        max_size: the most numbers that an artifact may hold.
        num_questions: K, different queries that bounds hold for at once; None where what answers
            one at a time is not planned, and bounds are of one.
        num_records_is_public: must be true under replace-one.
        failure_probability: beta of bounds, in (0, 1).

    Raises:
        InputError: if an argument is out of range.
    """

    guarantee: Guarantee
    profile: KeyProfile
    max_sparsity: int
    max_size: int = DEFAULT_SIZE
    num_questions: int | None = None
    num_records_is_public: bool = False
    failure_probability: float = 0.05

    def __post_init__(self) -> None:
        check_is("guarantee", self.guarantee, Guarantee)
        check_is("profile", self.profile, KeyProfile)
        if self.guarantee.neighboring is Neighboring.REPLACE_ONE and not self.num_records_is_public:
            condition = "must be True: it is public under replace_one"
            raise InputError("num_records_is_public", False, condition)
        checked_integer("max_sparsity", self.max_sparsity, 1, MAX_SPARSITY)
        check_failure_probability(self.failure_probability)

    @property
    def given_num_records(self) -> NumRecords:
        """What a mechanism is told: the public number, or that it must pay for a noisy one."""
        return self.profile.num_records if self.num_records_is_public else "noisy"

    @property
    def num_bounded(self) -> int:
        """Of how many queries at once a bound is stated: of one, if nothing else is asked."""
        return self.num_questions or 1

    def to_json(self) -> dict[str, Any]:
        """Returns the job as JSON values."""
        return {
            "guarantee": self.guarantee.to_json(),
            **dataclasses.asdict(self.profile),
            "max_sparsity": self.max_sparsity,
            "max_size": self.max_size,
            "num_questions": self.num_questions,
            "num_records_is_public": self.num_records_is_public,
            "failure_probability": self.failure_probability,
        }


@dataclasses.dataclass(frozen=True)
class SparseOption(Option):
    """What one mechanism would make of sparse queries.

    Its ``expected_error`` is of queries of m keys chosen at random among all distinct ones; memory
    and time are not planned.

    Args:
        error_of_one: the same of queries of one key; None where it depends on the data.
        size: numbers in the artifact; of a histogram as many as are expected.
        is_pure: whether delta would be left unspent.
    """

    error_of_one: float | None = None
    size: int | None = None
    is_pure: bool = False
