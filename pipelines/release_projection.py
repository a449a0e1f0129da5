"""Count many keys, such as e-mail addresses, in one small file that answers any sparse query.

    beam-dp release-projection \
        --input 'visits/*.parquet' --key email --max_sparsity 1000 \
        --epsilon 1 --delta 1e-9 --neighboring add_or_remove_one \
        --privacy_unit person_id --max_records_per_unit 1 --output out/visits

The keys need not be declared: the universe contains all strings, all byte strings, or all integers
from 0 to 2^64 - 1.
`beam-dp release-projection --help` lists the flags.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from beam_dp.domain.texts import KeyType
from beam_dp.errors import InputError
from beam_dp.flags import shared
from beam_dp.flags.flag import (
    Flag,
    check_mechanism,
    flags_of,
    integer,
    integer_flag,
    values_of,
)
from beam_dp.mechanisms.registry import SKETCHES, options_of
from beam_dp.mechanisms.sketches import plan as plans
from beam_dp.mechanisms.sketches.errors import KeyProfile
from beam_dp.mechanisms.sketches.mechanisms import CountSketch
from beam_dp.mechanisms.sketches.plan import DEFAULT_SIZE, SparseMechanism, SparsePlan
from beam_dp.planning.sketches import SparseChoice, plan_sparse_release
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.ledger.filters import Account
from beam_dp.secret.encoding.keys import KeyColumns
from beam_dp.views.terminal import counted, short, surely

from . import program

AUTO = "auto"
MECHANISM = Flag(
    "mechanism",
    "auto chooses the best predicted mechanism for --num_records, --num_keys and"
    " --largest_count; docs/sparse_queries.md explains the others",
    default=CountSketch.name,
    choices=(AUTO, *SKETCHES),
)
_SIZE = flags_of(CountSketch)[0]
_PROFILE = flags_of(KeyProfile)
LIST_KEYS = Flag(
    "list_keys",
    "stability_histogram and hybrid: also release the keys themselves, as text, wherever a key's"
    " own count is released",
    is_switch=True,
)
# The flags that each mechanism accepts.
OPTIONS = {AUTO: (_SIZE, *_PROFILE), **options_of(SKETCHES)}
for _counts_keys in ("stability_histogram", "hybrid"):
    OPTIONS[_counts_keys] += (LIST_KEYS,)
NEEDED = {AUTO: [(flag.name,) for flag in _PROFILE]}
MECHANISM_FLAGS = (
    MECHANISM,
    *dict.fromkeys(flag for flags in OPTIONS.values() for flag in flags),
)
WEIGHT = Flag("weight", "a column of whole weights; by default each record weighs 1", "COLUMN")
MAX_WEIGHT = integer_flag(
    "max_weight",
    "with --weight: the largest weight; larger weights are clipped to it, and negative weights"
    " to 0",
    "W",
    limits={"least": 1, "most": plans.MAX_WEIGHT},
)
_UNUSED = (shared.DOMAIN, shared.WORKLOAD, shared.NUM_RECORDS, shared.CALIBRATION)
FLAGS = (
    *(flag for flag in shared.COMMON if flag not in _UNUSED),
    shared.KEY,
    shared.KEY_TYPE,
    WEIGHT,
    MAX_WEIGHT,
    dataclasses.replace(shared.MAX_SPARSITY, limits={"least": 1, "most": plans.MAX_SPARSITY}),
    *MECHANISM_FLAGS,
)


@dataclass(frozen=True, kw_only=True)
class Job(program.ReleaseJob):
    """A job that releases an artifact; the hash key of its plan is drawn."""

    columns: KeyColumns
    plan: SparsePlan
    choices: list[dict[str, Any]]

    def release(self, token: Token | None) -> program.Transform:
        """Returns the transform that creates the release."""
        from beam_dp.transforms.sketches import ReleaseProjection

        return ReleaseProjection(self.plan, self.columns, token)

    def card(self) -> dict[str, Any]:
        """Returns the part of the card that is known before reading, with the planner's table."""
        return {**super().card(), **({"choices": self.choices} if self.choices else {})}

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview."""
        error = "each answer comes with its own standard error"
        if self.choices:
            error = f"{short(self.choices[0]['error'])} expected for that many keys; {error}"
        bounds = self.plan.bounds()
        proved = {}
        if bounds is not None:
            chance = surely(bounds.failure_probability / 2)
            proved["noise"] = f"adds at most {short(bounds.noise)} to an answer, {chance}"
        return {
            "key": f"{self.columns.key}, read as {self.columns.key_type}",
            "queries": f"of up to {counted(self.plan.max_sparsity, 'key')}",
            "error": error,
            **proved,
        }

    def headline(self) -> str:
        """Returns a short description of the job."""
        sketch = self.plan.sketch
        if sketch is None:
            size = "all keys above the threshold"
        else:
            size = f"{sketch.projection_width:,} cells"
        return f"{self.plan.mechanism}, {size}"

    def advice(self) -> tuple[str, str]:
        """Returns a remark about the release, and example flags of ``beam-dp answer``."""
        return "Look at it, and ask it, with a key on each line", "--sparse keys.txt"


def _read_job(given: dict[str, str], fields: dict[str, Any]) -> Job:
    """Returns the job that the flags describe; draws the hash key of its plan."""
    guarantee, ledger = shared.read_guarantee(given), fields["ledger"]
    max_sparsity = integer("max_sparsity", given["max_sparsity"])
    max_weight = integer("max_weight", given["max_weight"]) if "max_weight" in given else 1
    account = None
    if ledger is not None and given["mechanism"] == AUTO:
        account = ledger.account(given["dataset_id"])
    mechanism, choices = choose(given, guarantee, max_sparsity, max_weight, account=account)
    columns = KeyColumns(
        given["key"],
        cast(KeyType, given["key_type"]),
        given.get("weight"),
        list_keys="list_keys" in given,
    )
    plan = mechanism.plan(guarantee, max_sparsity=max_sparsity, max_weight=max_weight)
    return Job(
        **fields,
        columns=columns,
        plan=dataclasses.replace(plan, key=columns.stated()),
        choices=choices_json(choices),
    )


def choose(
    given: dict[str, str],
    guarantee: Guarantee,
    max_sparsity: int,
    max_weight: int,
    *,
    account: Account | None,
) -> tuple[SparseMechanism, list[SparseChoice]]:
    """Returns the mechanism; with ``auto``, also all affordable mechanisms, best first."""
    name = given["mechanism"]
    check_mechanism(given, OPTIONS, NEEDED)
    try:
        if name != AUTO:
            values = values_of(SKETCHES[name], given)
            size = values.pop("projection_width", DEFAULT_SIZE)
            return SKETCHES[name](**values).within(size), []
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
        # If no mechanism is affordable, the ledger's error gives the reason.
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


PROGRAM = program.Program("release_projection", FLAGS, __doc__, _read_job)
parse_arguments, main = PROGRAM.parse_arguments, PROGRAM.main

if __name__ == "__main__":
    raise SystemExit(main())
