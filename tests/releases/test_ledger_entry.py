"""A card is compared with the entry of the ledger that paid for it."""

import json
import pathlib
import shutil

import pyarrow as pa
import pytest

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.privacy.loss import Loss
from beam_dp.releases.kinds import read_any
from beam_dp.releases.verdict import proved_losses

DOMAIN = dp.parse_domain('{"age": 4, "sex": 2}')
OPEN = dp.read_open_domain(
    '{"attributes": [{"name": "sex", "type": "categorical", "discover": {"max_values": 3}}]}'
)
CODES = pa.table({"person_id": [*range(60)], "age": [1, 2, 3] * 20, "sex": [0, 1, 1] * 20})
UNTYPED = dp.read_open_domain('{"attributes": [{"name": "sex", "type": "discover"}]}')
TEXTS = pa.table({"person_id": [*range(60)], "sex": ["F", "M", "M"] * 20})


def paid_release(folder: pathlib.Path, *, is_open: bool = False) -> list[str]:
    """Writes a paid release, and returns the command that compares it with the ledger."""
    ledger = dp.Ledger(str(folder / "ledger.sqlite"))
    ledger.declare("people", 100.0, 1e-6, "person_id", "add_or_remove_one")
    promise = dp.Guarantee(5.0, 1e-9, "add_or_remove_one", "person_id", 1)
    table, domain = (TEXTS, OPEN) if is_open else (CODES, DOMAIN)
    paid = {"ledger": ledger, "dataset_id": "people", "output": folder / "out"}
    dp.release(table, domain, dp.marginals(domain, ways=1), promise, **paid)
    return ["verify", str(folder / "out"), "--ledger", ledger.name]


@pytest.mark.parametrize("is_open", [False, True])
def test_release_agrees_with_the_entry_that_paid(tmp_path, capsys, is_open):
    command = paid_release(tmp_path, is_open=is_open)
    assert main(command) == 0, capsys.readouterr()
    if is_open:
        assert main([command[0], f"{command[1]}/domain", *command[2:]]) == 0, capsys.readouterr()


@pytest.mark.parametrize("domain", [DOMAIN, OPEN, UNTYPED])
def test_each_stage_agrees_with_the_entry_that_paid_for_all(tmp_path, capsys, domain):
    """Laplace noise after Gaussian noise is paid as pure, except with probability delta."""
    ledger = dp.Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 100.0, 1e-6, "person_id", "add_or_remove_one")
    promise = dp.Guarantee(5.0, 1e-9, "add_or_remove_one", "person_id", 3)
    table, workload = CODES if domain is DOMAIN else TEXTS, dp.marginals(domain, ways=1)
    paid = {"ledger": ledger, "dataset_id": "people", "output": tmp_path / "out"}
    choice = {"max_records_per_unit": "discover", "mechanism": dp.Laplace()}
    dp.release(table, domain, workload, promise, **choice, **paid)
    cards = [path.parent for path in (tmp_path / "out").rglob("card.json")]
    assert len(cards) == 2 + (domain is not DOMAIN) + (domain is UNTYPED)
    for folder in cards:
        assert main(["verify", str(folder), "--ledger", ledger.name]) == 0, capsys.readouterr()
    losses = [*proved_losses(dp.verify_release(read_any(tmp_path / "out")))]
    assert not any(Loss.approximate(4.5, 1e-9).covers(loss) for loss in losses)


def change(folder: pathlib.Path, **fields: object) -> None:
    path = folder / "out/card.json"
    card = json.loads(path.read_text("utf-8"))
    assert card.keys() >= fields.keys() - {"privacy_unit"}
    if "privacy_unit" in fields:
        card["guarantee"] |= fields
    else:
        card |= fields
    path.write_text(json.dumps(card), "utf-8")


def test_card_with_another_unit_than_was_paid_for_does_not_hold(tmp_path, capsys):
    command = paid_release(tmp_path)
    change(tmp_path, privacy_unit="record")
    assert main(command[:2]) == 0  # the card alone cannot show it
    assert main([*command, "--json"]) == 1
    (fault,) = json.loads(capsys.readouterr().out.partition("\n{")[2].join("{ "))["faults"]
    assert "guarantee.privacy_unit is 'record'; must be 'person_id'" in fault


def test_card_that_hides_the_domain_it_was_paid_with_does_not_hold(tmp_path, capsys):
    command = paid_release(tmp_path, is_open=True)
    path = tmp_path / "out/card.json"
    card = json.loads(path.read_text("utf-8"))
    del card["discovered"]
    path.write_text(json.dumps(card), "utf-8")
    for _ in range(2):  # with the domain below it, and without
        assert main(command[:2]) == 1, capsys.readouterr()
        shutil.rmtree(tmp_path / "out/domain", ignore_errors=True)


def test_release_that_another_entry_paid_for_does_not_hold(tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    paid_release(first)
    command = paid_release(second)
    # Both ledgers have an entry people/1, and only one of them is that of this draw.
    assert main(["verify", str(first / "out"), "--ledger", command[-1]]) == 1
    assert "it paid for draw" in " ".join(capsys.readouterr().out.split())


def test_report_shows_that_card_and_ledger_differ(tmp_path, capsys):
    command = paid_release(tmp_path)
    change(tmp_path, privacy_unit="record")
    page = tmp_path / "page.html"
    assert main(["report", command[1], "--ledger", command[-1], "--output", str(page)]) == 0
    assert "must be 'person_id'" in page.read_text("utf-8").replace("&#x27;", "'")
