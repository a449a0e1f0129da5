"""Edges computed from a release: only the budget that paid for it may pay for what follows."""

from __future__ import annotations

import pathlib

import pytest

from beam_dp.domain.files import parse_domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.ledger import Ledger, check_edges_paid
from beam_dp.privacy.loss import Loss

DRAW = "0f" * 16
ORIGIN = {"ledger_release": "visits/1", "draw_id": DRAW}
SEX = {"name": "sex", "type": "categorical", "values": ["F", "M"]}
AGE = {"name": "age", "type": "numeric", "edges": [0, 20, 90], "edges_from": ORIGIN}
DOMAIN = parse_domain({"attributes": [SEX, AGE]})


def ledger_of(path: pathlib.Path, draw_id: str | None = DRAW) -> Ledger:
    """A ledger that paid for one release, and marked this draw of it."""
    ledger = Ledger(str(path))
    for name in ("visits", "others"):
        ledger.declare(name, 3.0, 1e-9, "record", "add_or_remove_one")
    guarantee = Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
    token = ledger.spend("visits", guarantee, Loss.pure(1.0), "tree")
    if draw_id is not None:
        ledger.mark_released(token, draw_id)
    return ledger


def test_the_budget_that_paid_for_the_edges_may_pay_again(tmp_path: pathlib.Path) -> None:
    check_edges_paid(DOMAIN, ledger_of(tmp_path / "l.sqlite"), "visits")


@pytest.mark.parametrize("dataset_id", ["", "visits"])
def test_a_domain_of_public_edges_needs_no_ledger(tmp_path: pathlib.Path, dataset_id: str) -> None:
    public = parse_domain({"attributes": [SEX, {**AGE, "edges_from": None}]})
    check_edges_paid(public, None, dataset_id)
    check_edges_paid(public, Ledger(str(tmp_path / "absent.sqlite")), dataset_id)


@pytest.mark.parametrize(
    ("draw_id", "dataset_id", "name", "condition"),
    [
        (DRAW, "others", "dataset_id", "must be 'visits': the edges of 'age' come from"),
        ("1f" * 16, "visits", "ledger", f"draw {DRAW}, not {'1f' * 16}"),
        (None, "visits", "ledger", r"must know which draw it paid for \(Ledger.mark_released\)"),
    ],
)
def test_another_budget_is_refused(
    tmp_path: pathlib.Path, draw_id: str | None, dataset_id: str, name: str, condition: str
) -> None:
    ledger = ledger_of(tmp_path / "l.sqlite", draw_id)
    with pytest.raises(InputError, match=condition) as caught:
        check_edges_paid(DOMAIN, ledger, dataset_id)
    assert caught.value.name == name and "visits/1" in str(caught.value)


def test_no_ledger_and_one_that_did_not_pay_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="ledger: None is refused; must be given, the one that"):
        check_edges_paid(DOMAIN, None, "")
    fresh = Ledger(str(tmp_path / "fresh.sqlite"))
    fresh.declare("visits", 3.0, 1e-9, "record", "add_or_remove_one")
    with pytest.raises(InputError, match="must be the one that paid before: the edges of 'age'"):
        check_edges_paid(DOMAIN, fresh, "visits")
