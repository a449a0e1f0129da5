"""The ledger: what it records, what it refuses, and in which words."""

import concurrent.futures
import dataclasses
import json
import threading

import pytest
import sqlalchemy as sa
from ledger_workers import AR, TENTH, declared, one_line, spend
from patience import HANG_SECONDS

import beam_dp as dp
from beam_dp.privacy.ledger.entries import LedgerError, OverBudgetError
from beam_dp.privacy.loss import Loss


def test_payment_is_visible_to_another_connection(ledger_url):
    token = spend(declared(ledger_url), {"scale": 30.0, "name": "Zoë"})
    (entry,) = dp.Ledger(ledger_url).entries("visits")
    assert token.release_id == entry.release_id == "visits/1"
    assert (entry.guarantee, entry.loss, entry.mechanism) == (
        TENTH,
        Loss.pure(0.1).in_doubles(),
        "laplace",
    )
    assert entry.parameters == {"scale": 30.0, "name": "Zoë"}
    assert (entry.state, entry.released_at, entry.draw_id) == ("spent", None, None)
    assert entry.spent_at.endswith("+00:00")
    assert json.loads(json.dumps(entry.to_json()))["release_id"] == "visits/1"


def test_submission_is_marked_once_and_is_no_saved_state(ledger_url):
    ledger = declared(ledger_url)
    token, _ = (spend(ledger) for _ in range(2))
    ledger.mark_submitted(token)
    (first, second) = ledger.entries("visits")
    assert (first.state, second.state, second.submitted_at) == ("submitted", "spent", None)
    ledger.mark_submitted(token)
    assert ledger.entries("visits") == [first, second]
    ledger.use_state(token, 1)
    ledger.use_state(token, 2)
    assert ledger.entries("visits") == [first, second]
    ledger.mark_released(token)
    assert [entry.state for entry in ledger.entries("visits")] == ["released", "spent"]
    with pytest.raises(LedgerError, match=r"^token: 'visits/9' is not valid: must come from this"):
        ledger.mark_submitted(dataclasses.replace(token, number=9))


@pytest.mark.parametrize("first", [None, "a" * 32])
def test_draw_of_a_payment_cannot_change_after_the_first_mark(ledger_url, first):
    """Also one that says nothing: whoever names a draw later may have drawn again."""
    ledger = declared(ledger_url)
    token = spend(ledger)
    ledger.mark_released(token, first)
    condition = "be 'a+': 'visits/1' paid" if first else "not be given: 'visits/1' was marked"
    for draw_id in ("b" * 32, "c" * 32):
        with pytest.raises(
            LedgerError, match=rf"^draw_id: '[bc]+' is not valid: must {condition}"
        ) as e:
            ledger.mark_released(token, draw_id)
        one_line(e)
    ledger.mark_released(token, first)
    ledger.mark_released(token)
    assert ledger.entries("visits")[0].draw_id == first


def test_only_one_of_several_concurrent_marks_succeeds(ledger_url):
    token = spend(declared(ledger_url))
    start = threading.Barrier(4)

    def mark(draw_id: str) -> str | None:
        ledger = dp.Ledger(ledger_url, wait_seconds=HANG_SECONDS)
        start.wait()
        try:
            ledger.mark_released(token, draw_id)
        except LedgerError as error:
            assert error.name == "draw_id", error
            return None
        return draw_id

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        marked = [each for each in pool.map(mark, ["a", "b", "c", "d"]) if each is not None]
    assert marked == [dp.Ledger(ledger_url).entries("visits")[0].draw_id]


def test_budget_allows_ten_releases_of_a_tenth_and_no_eleventh(ledger_url):
    ledger = declared(ledger_url)
    for number in range(10):
        assert ledger.remaining("visits") == pytest.approx(1 - number / 10)
        assert ledger.total("visits") == pytest.approx(number / 10)
        spend(ledger)
    with pytest.raises(OverBudgetError, match=r"which leaves nothing; .* remaining 0;"):
        spend(ledger)
    assert len(ledger.entries("visits")) == 10
    assert ledger.remaining("visits") <= 1e-12


def test_refusal_names_remaining_delta(ledger_url):
    ledger = dp.Ledger(ledger_url)
    ledger.declare("visits", 1.0, 2e-9, "person", AR)
    guarantee, loss = dp.Guarantee(0.1, 4e-10, AR, "person", 3), Loss.approximate(0.1, 4e-10)
    for _ in range(2):
        ledger.spend("visits", guarantee, loss, "stability_histogram")
    with pytest.raises(OverBudgetError) as error:
        ledger.spend("visits", guarantee, loss, "stability_histogram")
    assert one_line(error) == (
        "delta: 4e-10 is not valid: must fit 'visits', which leaves at most epsilon 0.8, delta"
        " 2e-10 for a release that is private except with some probability; largest releases:"
        " visits/1 (stability_histogram, epsilon 0.1), visits/2 (stability_histogram, epsilon 0.1)"
    )
    last = dp.Guarantee(0.1, 2e-10, AR, "person", 3)
    ledger.spend("visits", last, Loss.approximate(0.1, 2e-10), "hybrid_sketch")
    with pytest.raises(OverBudgetError, match=r"at most epsilon 0\.7, delta 0"):
        ledger.check("visits", guarantee, loss)
    ledger.check("visits", TENTH, Loss.pure(0.7))
    with pytest.raises(OverBudgetError, match=r"at most epsilon 0\.7, delta 0;"):
        ledger.check("visits", TENTH, Loss.pure(0.8))


def test_dataset_ids_have_separate_budgets(ledger_url):
    ledger = declared(ledger_url)
    declared(ledger_url)  # the same again changes nothing
    ledger.declare("a 'quoted' name; DROP TABLE", 0.1, 0.0, "person", AR)
    ledger.spend("a 'quoted' name; DROP TABLE", TENTH, Loss.pure(0.1), "laplace")
    assert ledger.remaining("visits") == 1.0
    assert [dataset.dataset_id for dataset in ledger.datasets()] == [
        "a 'quoted' name; DROP TABLE",
        "visits",
    ]


def test_rejects_name_with_lone_surrogate(ledger_url):
    ledger = declared(ledger_url)
    with pytest.raises(LedgerError, match="must be given text that UTF-8 can encode") as error:
        ledger.spend("visits", TENTH, Loss.pure(0.1), "\ud800")
    one_line(error)
    assert ledger.entries("visits") == []


def test_later_calls_do_not_change_stored_rows(ledger_url):
    """What is in the tables stays as it is, whatever is done next."""
    ledger = declared(ledger_url)

    def rows() -> set[tuple[object, ...]]:
        with ledger._storage.reading() as connection:
            return {
                (name, *row)
                for name in ("datasets", "releases", "completions", "ledger")
                for row in connection.execute(sa.text(f"SELECT * FROM beam_dp_{name}"))
            }

    before = rows()
    for _ in range(3):
        token = spend(ledger)
        assert before < rows()
        before = rows()
        ledger.mark_released(token)
        assert before < rows()
        before = rows()
