"""A program with a ledger: paid before it runs, marked when complete, refused when it can't pay."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import apache_beam as beam
import pytest
from jobs import damage_pages, job_flags, people, refused_line

import beam_dp as dp
from beam_dp.privacy.ledger.entries import LaterToken, Origin, Token
from beam_dp.privacy.loss import Loss
from pipelines.release_synthetic_database import main


def declared(url: str, epsilon: float = 1000.0, delta: float = 1e-9) -> dp.Ledger:
    ledger = dp.Ledger(url)
    ledger.declare("visits", epsilon, delta, "record", "add_or_remove_one")
    return ledger


def paid_flags(folder: Path, url: str, **overrides: str | None) -> list[str]:
    return job_flags(folder, ledger=url, dataset_id="visits", **overrides)


@pytest.mark.slow
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


@pytest.mark.slow
def test_refuses_second_release_of_the_whole_budget_before_it_runs(tmp_path, ledger_url, capfd):
    ledger = declared(ledger_url)
    assert main(paid_flags(tmp_path, ledger_url)) == 0
    argv = paid_flags(tmp_path, ledger_url, output=str(tmp_path / "other"))
    told = r"^error: --epsilon: 1000\.0 is not valid: must fit 'visits', which leaves nothing"
    refused_line(main, argv, capfd, told, r"visits/1 \(mwem, epsilon 1000\)", folder=tmp_path)
    assert len(ledger.entries("visits")) == 1


@pytest.mark.slow
def test_failed_job_has_spent_its_budget(tmp_path, capfd):
    url = str(tmp_path / "ledger.sqlite")
    ledger = declared(url)
    argv = paid_flags(tmp_path, url, num_records="500")
    damage_pages(tmp_path / "people.parquet")
    assert main(argv) == 1
    (entry,) = ledger.entries("visits")
    assert entry.state == "spent"


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("epsilon", "0"),
        ("output", "hdfs://host/folder"),
        ("input", "nobody*.parquet"),
        ("num_rounds", "0"),
        ("runner", "NoSuchRunner"),
        ("epsilom", "1"),
    ],
)
def test_refused_jobs_spend_no_budget(tmp_path, capfd, flag, value):
    url = str(tmp_path / "ledger.sqlite")
    ledger = declared(url)
    refused_line(main, paid_flags(tmp_path, url, **{flag: value}), capfd)
    assert ledger.entries("visits") == []


def test_validation_shows_the_remaining_budget_and_spends_nothing(tmp_path, ledger_url, capfd):
    ledger = declared(ledger_url, 2000.0)
    assert main([*paid_flags(tmp_path, ledger_url), "--validate_only", "--json"]) == 0
    card = json.loads(capfd.readouterr().out)
    assert card["ledger"]["dataset_id"] == "visits"
    assert card["ledger"]["budget"] == {"epsilon": 2000.0, "delta": 1e-9}
    assert card["ledger"]["remaining_epsilon"] == 2000.0
    assert ledger.entries("visits") == []


def test_validation_refuses_release_that_exceeds_the_budget(tmp_path, capfd):
    url = str(tmp_path / "ledger.sqlite")
    ledger = declared(url, 1.0)
    argv = [*paid_flags(tmp_path, url), "--validate_only", "--json"]
    err = refused_line(main, argv, capfd)
    assert (
        "--epsilon: 1000.0 is not valid: must fit 'visits', which leaves at most epsilon 1," in err
    )
    assert ledger.entries("visits") == []


@pytest.mark.mostly_slow(one_in=2, start=1)
@pytest.mark.parametrize(
    ("overrides", "pattern"),
    [
        ({"dataset_id": "flights"}, "--dataset_id: 'flights' is not valid: must be declared"),
        ({"dataset_id": None}, "--dataset_id is required with --ledger"),
        ({"ledger": None}, "--ledger is required with --dataset_id"),
        (
            {"ledger": None, "dataset_id": None, "purpose": "a report"},
            "--ledger is required with --purpose",
        ),
        (
            {"ledger": None, "dataset_id": None, "who": "Zoë"},
            "--ledger is required with --who",
        ),
        ({"purpose": "two\nlines"}, "--purpose: 'two\\nlines' is not valid: must be 1 to 500 pri"),
        ({"who": 201 * "a"}, "is not valid: must be 1 to 200 printable characters"),
        ({"ledger": "mysql://host/db"}, "--ledger: 'mysql://host/db' is not valid"),
        ({"ledger": "nowhere.sqlite"}, "--ledger: 'sqlite:///nowhere.sqlite' is not valid"),
        (
            {"privacy_unit": "household", "max_records_per_unit": "2"},
            "--privacy_unit: 'household' is not valid: must be 'record', as declared for 'visits'",
        ),
        (
            {"neighboring": "replace_one", "num_records": "500"},
            "--neighboring: 'replace_one' is not valid: must be 'add_or_remove_one', as declared",
        ),
    ],
)
def test_refuses_bad_ledger_flags_in_one_line(tmp_path, capfd, overrides, pattern):
    url = str(tmp_path / "ledger.sqlite")
    ledger = declared(url)
    argv = job_flags(tmp_path, **{"ledger": url, "dataset_id": "visits", **overrides})
    assert pattern in refused_line(main, argv, capfd)
    assert ledger.entries("visits") == []
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
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
