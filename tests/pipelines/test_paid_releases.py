"""A program with a ledger: paid before it runs, marked when complete, refused when it can't pay."""

from __future__ import annotations

import pickle
from pathlib import Path

import apache_beam as beam
import pytest
from jobs import damage_pages, job_flags, people

import beam_dp as dp
from beam_dp.privacy.ledger.entries import LaterToken, LedgerError, Origin, Token
from beam_dp.privacy.loss import Loss
from pipelines.release_synthetic_database import main


def declared(url: str, epsilon: float = 1000.0, delta: float = 1e-9) -> dp.Ledger:
    ledger = dp.Ledger(url)
    ledger.declare("visits", epsilon, delta, "record", "add_or_remove_one")
    return ledger


def paid_flags(folder: Path, url: str, **overrides: str | None) -> list[str]:
    return job_flags(folder, ledger=url, dataset_id="visits", **overrides)


@pytest.mark.job
def test_release_is_paid_for_and_marked_complete(tmp_path, ledger_url):
    ledger = declared(ledger_url)
    said = {"purpose": "the monthly report", "who": "Zoë"}
    assert main(paid_flags(tmp_path, ledger_url, **said)) == 0
    (entry,) = ledger.entries("visits")
    assert entry.origin == Origin("Zoë", "the monthly report", str(tmp_path / "out"))
    release = dp.read_release(str(tmp_path / "out"))
    assert (entry.state, entry.draw_id) == ("released", release.draw_id)
    assert release.plan["ledger_release"] == entry.release_id == "visits/1"
    assert (entry.mechanism, entry.guarantee) == ("mwem", release.guarantee)
    assert entry.parameters["num_records"] == "noisy"
    assert ledger.total("visits") == pytest.approx(1000.0)


@pytest.mark.job
def test_failed_job_has_spent_its_budget(tmp_path, capfd):
    url = str(tmp_path / "ledger.sqlite")
    ledger = declared(url)
    argv = paid_flags(tmp_path, url, num_records="500")
    damage_pages(tmp_path / "people.parquet")
    assert main(argv) == 1
    (entry,) = ledger.entries("visits")
    assert entry.state == "submitted"


@pytest.mark.job
def test_job_that_cannot_be_marked_draws_nothing(tmp_path, capfd, monkeypatch):
    """Otherwise an entry that says `spent` would not say that nothing was drawn."""
    url = str(tmp_path / "ledger.sqlite")
    ledger = declared(url)

    def full(*_: object) -> None:
        raise LedgerError("ledger", url, "must be on a disk with room left")

    monkeypatch.setattr(dp.Ledger, "mark_submitted", full)
    assert main(paid_flags(tmp_path, url)) == 1
    err = capfd.readouterr().err
    assert f"error: visits/1 was paid, but its job was not submitted: ledger: {url!r}" in err
    assert [entry.state for entry in ledger.entries("visits")] == ["spent"]
    assert not (tmp_path / "out").exists()


@pytest.mark.job
def test_records_nothing_without_a_ledger(tmp_path):
    assert main(job_flags(tmp_path)) == 0
    assert "ledger" not in (tmp_path / "out" / "card.json").read_text()


DOMAIN = dp.Domain((dp.IntegerAttribute("age", 0, 100),))


def transform(guarantee: dp.Guarantee, token: Token) -> dp.ReleaseSyntheticDatabase:
    workload = dp.marginals(DOMAIN, ways=1)
    return dp.ReleaseSyntheticDatabase(
        DOMAIN, workload, guarantee, dp.Laplace(), ledger_token=token
    )


def promise(epsilon: float) -> dp.Guarantee:
    return dp.Guarantee(epsilon, 0.0, "add_or_remove_one", "record", 1)  # type: ignore[arg-type]


def add_release(pipeline: beam.Pipeline, token: Token, output: Path) -> None:
    rows = pipeline | beam.Create(people().select(["age"]).to_pylist())
    _ = rows | transform(promise(1.0), token) | dp.WriteRelease(str(output))


@pytest.mark.job
@pytest.mark.parametrize("is_paid_later", [False, True])
def test_card_names_the_entry_of_the_token(tmp_path, is_paid_later):
    ledger = declared(str(tmp_path / "ledger.sqlite"))
    stated = "laplace", promise(1.0), Loss.pure(1.0)
    token: Token = LaterToken("visits", *stated)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        if is_paid_later:
            add_release(pipeline, token, tmp_path / "out")
        paid = ledger.spend("visits", promise(1.0), Loss.pure(1.0), "laplace")
        if is_paid_later:
            assert isinstance(token, LaterToken)
            token.pay(paid)
        else:
            token = paid
            add_release(pipeline, token, tmp_path / "out")
    release = dp.read_release(str(tmp_path / "out"))
    assert release.plan["ledger_release"] == "visits/1"
    ledger.mark_released(token, release.draw_id)
    assert ledger.entries("visits")[0].draw_id == release.draw_id


@pytest.mark.parametrize(
    ("epsilon", "loss", "mechanism"),
    [
        (0.5, Loss.pure(0.5), "laplace"),
        (1.0, Loss.pure(0.5), "laplace"),
        (1.0, Loss.pure(1.0), "gaussian"),
    ],
)
def test_refuses_token_for_another_release(epsilon, loss, mechanism):
    token = Token("visits", 1, mechanism, promise(epsilon), loss)
    with pytest.raises(dp.InputError, match="ledger_token: 'visits/1' is not valid"):
        transform(promise(1.0), token)
    later = LaterToken("visits", "laplace", promise(1.0), Loss.pure(1.0))
    with pytest.raises(dp.InputError, match="ledger_token: 'visits/1' is not valid"):
        later.pay(token)


@pytest.mark.job
def test_unpaid_job_writes_no_release(tmp_path):
    token = LaterToken("visits", "laplace", promise(1.0), Loss.pure(1.0))
    pipeline = beam.Pipeline(runner="FnApiRunner")
    add_release(pipeline, token, tmp_path / "out")
    with pytest.raises(RuntimeError):
        pipeline.run()
    assert not (tmp_path / "out" / "card.json").exists()


def test_later_token_contains_its_entry_once_it_is_paid_for():
    token = LaterToken("visits", "laplace", promise(1.0), Loss.pure(1.0))
    assert pickle.loads(pickle.dumps(token)) is token
    with pytest.raises(RuntimeError, match="was not paid for"):
        _ = token.release_id
    paid = Token("visits", 7, "laplace", promise(1.0), Loss.pure(1.0))
    token.pay(paid)
    assert token.release_id == "visits/7"
    assert pickle.loads(pickle.dumps(token)) == paid
