"""The file ``horizon.json``: what is promised of all windows of a horizon, read without trust."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from beam_dp.checks import check_choice
from beam_dp.domain.files import domain_from_json
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload, workload_from_json
from beam_dp.releases.files.card import (
    HORIZON,
    SCHEMA_VERSION,
    check_fields,
    check_types,
    parsed_card,
)
from beam_dp.releases.plain import library_versions, plain_json
from beam_dp.windows.blocks import Blocks
from beam_dp.windows.horizon import Horizon
from beam_dp.windows.promise import MECHANISM, stated_horizon, stated_promise, whole_promise
from beam_dp.windows.unit import WindowUnit

KIND = "horizon"
_HORIZON = ("start", "window", "num_windows", "grace")
_UNIT = ("privacy_unit", "max_records_per_unit", "max_windows_per_unit", "protected_windows")
_TYPES = {
    "kind": str,
    "horizon_id": str,
    "mechanism": str,
    "privacy_unit": str,
    "max_records_per_unit": int,
    "max_windows_per_unit": int,
    "protected_windows": int,
    "promise": str,
    "worst_case": dict,
    "horizon": dict,
    "guarantee": dict,
    "domain": dict,
    "workload": dict,
    "plan": dict,
    "source": dict,
    "replayable": bool,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class HorizonCard:
    """What is promised of a horizon, and by which parameters a job keeps it: all of it public.

    Args:
        horizon: the windows.
        unit: whom the promise protects.
        guarantee: of any ``protected_windows`` windows together.
        workload: the marginals of each window; it holds the domain.
        plan: of the noise, as JSON values: ``public`` of a plan of windows.
        source: of the records, as JSON values: whatever must be the same after a restart, such as
            the columns of times.
        replayable: whether the source can be read again from the start.

    Raises:
        InputError: if the guarantee is not of these windows and this unit, or a field holds no
            JSON values.
    """

    horizon: Horizon
    unit: WindowUnit
    guarantee: Guarantee
    workload: Workload
    plan: Mapping[str, Any]
    replayable: bool
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        epsilon, delta = self.guarantee.epsilon, self.guarantee.delta
        if self.guarantee != whole_promise(self.horizon, self.unit, epsilon, delta, True):
            condition = "must be of any protected_windows windows of this unit"
            raise InputError("guarantee", self.guarantee.to_json(), condition)
        if not isinstance(self.replayable, bool):
            raise InputError("replayable", self.replayable, "must be True or False")
        stated = self._stated()
        plan = {name: each for name, each in self.plan.items() if name not in stated}
        object.__setattr__(self, "plan", plain_json(plan))
        object.__setattr__(self, "source", plain_json(dict(self.source)))
        if self.block is not None:
            Blocks(self.horizon.num_windows, self.block)

    @property
    def block(self) -> int | None:
        """How many windows a block has; None where no blocks are measured."""
        return self.plan.get("block")

    @property
    def num_blocks(self) -> int:
        """How many blocks are measured."""
        return 0 if self.block is None else len(Blocks(self.horizon.num_windows, self.block))

    @property
    def needs_same_records(self) -> bool:
        """Whether a job that goes on must find the records that the job before it found.

        Which windows of a unit are kept follows from all its records since the start. Only windows
        that are promised each for itself need no others.
        """
        of_each = (self.unit.protected_windows, self.unit.max_windows_per_unit) == (1, 1)
        return self.block is not None or not of_each

    def promised(self) -> dict[str, Any]:
        """Returns what tells two horizons apart, as JSON values."""
        return {
            "mechanism": MECHANISM,
            **self._stated(),
            "guarantee": self.guarantee.to_json(),
            "domain": self.workload.domain.to_json(),
            "workload": self.workload.to_json(),
            "plan": dict(self.plan),
            "source": dict(self.source),
            "replayable": self.replayable,
        }

    def ledger_parameters(self, horizon_id: str) -> dict[str, Any]:
        """Returns what an entry of a ledger says of this horizon, as JSON values."""
        return {"horizon_id": horizon_id, **self._stated(), "plan": dict(self.plan)}

    def text(self, horizon_id: str) -> str:
        """Returns the text of ``horizon.json``."""
        card = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "horizon_id": horizon_id,
            **self.promised(),
            "versions": library_versions(),
        }
        return json.dumps(card, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_text(cls, text: str) -> tuple[str, Self]:
        """Returns the id of a horizon, and what its ``horizon.json`` says.

        Raises:
            InputError: if it is none, or says two things that don't agree.
        """
        parsed = parsed_card(text)
        check_fields(parsed, _TYPES)
        check_choice("kind", parsed["kind"], (KIND,))
        check_choice("mechanism", parsed["mechanism"], (MECHANISM,))
        horizon_id = parsed["horizon_id"]
        if not re.fullmatch("[0-9a-f]{32}", horizon_id):
            raise InputError("horizon_id", horizon_id, "must be 32 hexadecimal digits")
        check_types(parsed["horizon"], dict.fromkeys(_HORIZON, int))
        domain = domain_from_json(parsed["domain"], "card")
        card = cls(
            horizon=Horizon(**{name: parsed["horizon"][name] for name in _HORIZON}),
            unit=WindowUnit(**{name: parsed[name] for name in _UNIT}),
            guarantee=Guarantee.from_json(parsed["guarantee"]),
            workload=workload_from_json(parsed["workload"], domain),
            **{name: parsed[name] for name in ("plan", "source", "replayable")},
        )
        stated = card._stated()
        unknown = set(parsed) - {*card.promised(), *_TYPES, "schema_version", "versions"}
        for name in sorted(unknown):
            raise InputError(
                name, parsed[name], f"must not be in {HORIZON}: nothing is known of it"
            )
        # Words may change with a version: whoever shows them makes them of the numbers.
        for name in ("worst_case", "horizon"):
            if parsed[name] != stated[name]:
                raise InputError(name, parsed[name], "must follow from the other fields")
        return horizon_id, card

    def _stated(self) -> dict[str, Any]:
        return {
            "horizon": stated_horizon(self.horizon),
            "privacy_unit": self.unit.privacy_unit,
            **stated_promise(self.horizon, self.unit, self.guarantee),
        }
