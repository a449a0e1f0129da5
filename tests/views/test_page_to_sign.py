"""The page of a decision, which people sign, and sums of what a ledger says was spent."""

import functools
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import Parsed
from seeded_releases import seeded_releases  # noqa: F401

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.privacy.ledger.entries import Origin, spent_by
from beam_dp.privacy.loss import Loss

DOMAIN = dp.Domain((dp.IntegerAttribute("age", 0, 9),))
TABLE = pa.table({"age": np.arange(300) % 10, "person": np.arange(300)})


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> dp.Ledger:
    """A ledger with a release in the folder "out", and three entries without a release."""
    ledger = dp.Ledger(f"sqlite:///{tmp_path}/budgets.sqlite")
    declare = functools.partial(ledger.declare, epsilon=2.0, delta=1e-8, privacy_unit="person")
    for name in ("visits", "staff"):
        declare(name, neighboring="add_or_remove_one")
    guarantee = dp.Guarantee(0.1, 1e-9, "add_or_remove_one", "person", 1)
    paid = {"ledger": ledger, "dataset_id": "visits", "purpose": "a <report>"}
    dp.release(
        TABLE, DOMAIN, dp.marginals(DOMAIN, ways=1), guarantee, output=tmp_path / "out", **paid
    )
    for name, who, purpose in (
        ("visits", "Zoë", "a <report>"),
        ("visits", "Zoë", None),
        ("staff", "Zoë", None),
    ):
        ledger.spend(name, guarantee, Loss.pure(0.1), "laplace", {}, Origin(who, purpose))
    return ledger


def signed(directory: pathlib.Path, *more: str) -> Parsed:
    page = directory.with_suffix(".html")
    argv = ["report", str(directory), "--decision", "We publish <it>.\nUntil 2030.", *more]
    assert main([*argv, "--output", str(page)]) == 0
    return Parsed(page.read_text("utf-8"))


def test_page_has_the_decision_the_loss_and_what_was_spent(tmp_path, ledger, capfd):
    page = signed(tmp_path / "out", "--ledger", ledger.name)
    assert page.faults == []
    assert "as public as the ledger" in capfd.readouterr().out
    assert {"We publish <it>.", "Until 2030."} <= {*page.texts["p"]}
    assert not [name for name, _ in page.elements if name == "details"]
    assert {"name", "date", "signature", "who", "purpose"} <= {*page.texts["th"]}
    assert {"a <report>", "visits/2", "Zoë"} <= {*page.texts["td"]}
    assert page.texts["td"].count("visits/3") == 1 and "staff/1" not in page.texts["td"]
    year = page.texts["h2"][2].removeprefix("Spent in ")
    (when,) = {text for text in page.texts["dd"] if text.endswith("UTC, by beam_dp 0.1.0")}
    assert when.startswith(year)
    assert num_alarms(page) == 0


def num_alarms(page: Parsed) -> int:
    return sum(each.get("class") == "private" for _, each in page.elements)


def test_unit_that_is_no_person_and_missing_ledger_are_shown_as_alarms(tmp_path):
    workload = dp.marginals(DOMAIN, ways=1)
    for unit, number in (("record", 3), ("person", 2)):
        guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", unit, 1)
        dp.release(TABLE, DOMAIN, workload, guarantee, output=tmp_path / unit)
        page = signed(tmp_path / unit)
        assert num_alarms(page) == number
        text = "No column identifies people: what is protected is one row, not a person."
        assert (text in page.texts["p"]) == (unit == "record")


def test_sums_by_any_fields_add_up_to_all(ledger):
    entries = [paid for name in ("visits", "staff") for paid in ledger.entries(name)]
    assert spent_by(entries, ["who"])[0][:3] == ("staff", "Zoë", 1)
    assert ("visits", "", 1, 0.1, 1e-9) in spent_by(entries, ["purpose"])
    assert ("visits", "a <report>", 2, 0.2, 2e-9) in spent_by(entries, ["purpose"])
    for names in ([], ["year"], ["date", "release"], ["who", "purpose", "year"]):
        rows = spent_by(entries, names)
        assert sum(row[-3] for row in rows) == 4
        assert sum(row[-2] for row in rows) == pytest.approx(0.4)


def test_sums_in_csv_have_each_column_once_and_no_formula(ledger, capfd):
    guarantee = dp.Guarantee(0.1, 1e-9, "add_or_remove_one", "person", 1)
    ledger.spend("staff", guarantee, Loss.pure(0.1), "laplace", {}, Origin("Zoë", "=1+1"))
    assert main(["ledger", ledger.name, "--by", "purpose, purpose", "--csv"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "dataset,purpose,releases,epsilon,delta"
    assert lines[2] == "staff,'=1+1,1,0.1,1e-09"


def test_private_page_is_refused_in_any_release(tmp_path, capfd):
    workload = dp.marginals(DOMAIN, ways=1)
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    for name in ("whole", "other"):
        dp.release(TABLE, DOMAIN, workload, guarantee, output=tmp_path / name)
    (tmp_path / "whole" / "part").mkdir()
    rows = str(tmp_path / "rows.parquet")
    pq.write_table(TABLE, rows)
    for command in ("report", "attack"):
        for place in ("whole/part/page.html", "whole/page.html"):
            argv = [command, str(tmp_path / "other"), "--against", rows]
            assert main([*argv, "--output", str(tmp_path / place)]) == 2
            assert "must not be in a release" in capfd.readouterr().err
            assert not (tmp_path / place).exists()
