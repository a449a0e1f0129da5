"""All conjunctions of a family in one release: what is asked, what is paid, and how right it is."""

from __future__ import annotations

import pytest
from noise_sources import NoNoise, Seeded
from tiny import ADD, REPLACE, promise

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.mechanisms.online import sparse_mw as module
from beam_dp.mechanisms.online.sparse_mw import SparseMW
from beam_dp.privacy.ledger.entries import LedgerError
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.queries.row_families import RowConjunctions, conjunction_of_text
from beam_dp.summaries.element_counts import KeyCounts

FAMILY = RowConjunctions(6, 5, is_monotone=True)
ROWS = ["111111"] * 40_000 + ["011111"] * 9_000 + ["110000", "", "1x1111"]


def test_conjunctions_are_asked_in_order() -> None:
    released = dp.release_conjunctions(
        ROWS, FAMILY, promise(ADD, 1e-9, 1.0), "noisy", noise=Seeded(3)
    )
    plan = dp.plan_conjunctions(FAMILY, promise(ADD, 1e-9, 1.0), "noisy")
    assert (plan.num_questions, plan.max_sparsity) == (len(FAMILY), 2) == (6, 2)
    run = SparseMW(plan, KeyCounts.of(ROWS), Seeded(3))
    assert released.plan == plan and released.settings == run.settings
    expected = [(text, run.answer(conjunction_of_text(text))) for text in FAMILY]
    assert list(released.items()) == expected and len(released) == 6


@pytest.mark.parametrize("rows", [[], ROWS, ["000000"] * 9])
def test_conjunctions_asked_do_not_depend_on_the_rows(rows, monkeypatch) -> None:
    asked = []

    class Watched(SparseMW):
        def answer(self, query):
            asked.append(query)
            return super().answer(query)

    monkeypatch.setattr(module, "SparseMW", Watched)
    dp.release_conjunctions(rows, FAMILY, promise(REPLACE, 0, 1.0), 50_000, noise=NoNoise())
    assert asked == [conjunction_of_text(text) for text in FAMILY]


@pytest.mark.parametrize("delta", [0, 1e-9])
@pytest.mark.parametrize("family", [FAMILY, RowConjunctions(5, 4), RowConjunctions(6, 6)])
def test_without_noise_every_answer_is_within_its_bound(family, delta) -> None:
    rows = [row[: family.num_bits] for row in ROWS]
    released = dp.release_conjunctions(
        rows, family, promise(REPLACE, delta, 4.0), len(rows), noise=NoNoise()
    )
    counts = KeyCounts.of(rows).counts
    for text, answer in released.items():
        exact = conjunction_of_text(text).count(counts) / 2**16
        assert abs(answer.value - exact) <= answer.bound < len(rows)
        assert answer.questions_left >= 0


def test_ledger_pays_once_before_noise_is_drawn(tmp_path) -> None:
    guarantee = promise(REPLACE, 0, 1.0)
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("visits", 1.5, 0.0, guarantee.privacy_unit, REPLACE)
    given = {"ledger": ledger, "dataset_id": "visits"}
    with pytest.raises(InputError, match="must be given with a ledger"):
        dp.release_conjunctions(ROWS, FAMILY, guarantee, 49_003, ledger=ledger)
    dp.release_conjunctions(ROWS, FAMILY, guarantee, 49_003, **given)
    drawn = NoNoise()
    with pytest.raises(LedgerError):
        dp.release_conjunctions(ROWS, FAMILY, guarantee, 49_003, **given, noise=drawn)
    assert drawn.draws == []
