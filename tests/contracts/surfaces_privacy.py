"""Guarantees, losses, and ledgers with two payments in them."""
# ruff: noqa: F401

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
from typing import Any

from ledger_workers import AR, TENTH, declared, spend
from surfaces import Surface
from surfaces_values import guarantee

from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import LONGEST, Origin, Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.loss import Loss
from beam_dp.releases.domain.earlier import check_edges_paid

NESTED = functools.reduce(lambda inner, _: [inner], range(10**5), list[Any]())
LARGE = 10**400  # no float is so large


def declare(folder: pathlib.Path, **changed: Any) -> None:
    """Declares a valid budget, but for what is changed."""
    valid: dict[str, Any] = {
        "dataset_id": "visits",
        "epsilon": 1.0,
        "delta": 1e-9,
        "privacy_unit": "person",
        "neighboring": AR,
    }
    Ledger(f"{folder}/l.sqlite").declare(**{**valid, **changed})


@dataclasses.dataclass(frozen=True)
class Paid:
    """A ledger that paid two tenths of a budget, one by the id "ab" of a horizon."""

    ledger: Ledger
    token: Token

    @classmethod
    def of(cls, folder: pathlib.Path) -> Paid:
        ledger = declared(f"{folder}/l.sqlite", delta=1e-9)
        token = spend(ledger)
        paid = cls(ledger, token)
        paid.once("ab")
        return paid

    def once(self, name: Any, **changed: Any) -> None:
        given = {"guarantee": TENTH, "loss": Loss.pure(0.1), "mechanism": "windows"}
        dataset = changed.pop("dataset_id", "visits")
        parameters = {"horizon_id": name}
        self.ledger.spend_once(
            dataset, parameters=parameters, key="horizon_id", **{**given, **changed}
        )

    def spend(self, **changed: Any) -> None:
        valid: dict[str, Any] = {
            "dataset_id": "visits",
            "guarantee": TENTH,
            "loss": Loss.pure(0.1),
            "mechanism": "laplace",
        }
        self.ledger.spend(**{**valid, **changed})


def edges(release_id: str) -> Domain:
    """A domain whose edges come from a release of that name."""
    origin = PaidRelease(release_id, "0123456789abcdef" * 2)
    return Domain((NumericAttribute("age", (0, 5, 9), edges_from=origin),))


def drawn(folder: pathlib.Path) -> Ledger:
    """A ledger that paid for another draw than that of the edges."""
    paid = Paid.of(folder)
    paid.ledger.mark_released(paid.token, "f" * 32)
    return paid.ledger


paid = Paid.of
nan, inf = math.nan, math.inf
SURFACES: dict[str, Surface] = {
    "guarantees and losses": globals(),
    "ledger": globals(),
}
