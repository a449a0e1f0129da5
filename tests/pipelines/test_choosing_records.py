"""One command that chooses the records per unit, perhaps finds a domain, and releases records.

A killed program is simulated by an exception that nothing catches.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from discovery_jobs import release_of
from jobs import job_flags, paid_by, refused_line
from noise_sources import watch_draws
from open_domains import DOMAIN, INCOME, SEX, residents

import beam_dp as dp
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.releases.domain.release import DomainRelease
from beam_dp.releases.intervals.release import IntervalRelease
from pipelines.release_synthetic_database import main

DRAWS: list[str] = []
CLOSED: dict[str, Any] = {
    "attributes": [SEX, {"name": "income", "type": "numeric", "edges": [0, 1024, 2048, 4096]}]
}
OPEN = {"attributes": [SEX, INCOME]}


@pytest.fixture(autouse=True)
def watched(monkeypatch) -> None:
    watch_draws(monkeypatch, DRAWS)


def visits(num_units: int = 800, records: int = 3) -> pa.Table:
    """Returns a table in which every person has the same number of records, and one has many."""
    table = residents(num_units * records)
    persons = np.arange(num_units * records) // records
    persons[: 40 * records] = 10**6
    return table.set_column(0, "person", pa.array(persons))


def flags_of(folder: Path, domain: Any = CLOSED, **changes: str | None) -> list[str]:
    given = {
        "privacy_unit": "person",
        "max_records_per_unit": "discover",
        "most_records_per_unit": "20",
        "epsilon": "20",
    }
    return job_flags(folder, visits(), domain=domain, **(given | changes))


def paid(folder: Path, domain: Any = CLOSED, times: float = 1.0) -> tuple[Ledger, list[str]]:
    return paid_by(flags_of(folder, domain), folder, 20.0 * times, times * 1e-9)


def counts_of(folder: Path, is_open: bool = False) -> IntervalRelease:
    out = folder / "out" / "domain" if is_open else folder / "out"
    return dp.read_release(out / "records_per_unit", kind=IntervalRelease)


def domain_of(folder: Path) -> DomainRelease:
    return dp.read_release(folder / "out" / "domain", kind=DomainRelease)


def test_one_command_chooses_the_number_and_releases_the_records(tmp_path, capfd) -> None:
    ledger, flags = paid(tmp_path)  # a budget of exactly this guarantee
    assert main(flags) == 0
    counts, release = counts_of(tmp_path), release_of(tmp_path)
    assert "Chose 3 as the records per unit" in capfd.readouterr().out
    chosen = release.records_per_unit
    assert chosen is not None
    assert (chosen.main.max_records_per_unit, chosen.draw_id) == (3, counts.draw_id)
    assert release.guarantee.max_records_per_unit == 20  # the public most
    assert release.limited_guarantee.epsilon == 20 * 0.98
    (entry,) = ledger.entries("people")
    assert entry.guarantee == release.guarantee
    assert entry.draw_id == counts.draw_id
    assert release.plan["ledger_release"] == counts.plan["ledger_release"] == "people/1"
    assert sorted(DRAWS) == sorted({counts.draw_id, release.draw_id})
    # 760 people with three records each, and three of the person with many.
    assert release.num_records == pytest.approx(2283, abs=40)
    for each in (counts, release):
        assert dp.verify_release(each).holds


@pytest.mark.job
@pytest.mark.parametrize("domain", [OPEN, DOMAIN])
def test_one_command_chooses_the_number_and_finds_the_domain(tmp_path, domain) -> None:
    ledger, flags = paid(tmp_path, domain)
    assert main(flags) == 0
    counts, found, release = counts_of(tmp_path, True), domain_of(tmp_path), release_of(tmp_path)
    assert release.records_per_unit.main.max_records_per_unit == 3
    assert found.guarantee.max_records_per_unit == 3
    assert found.discovered.whole == release.records_per_unit.main
    assert release.domain == found.domain
    (entry,) = ledger.entries("people")
    assert entry.draw_id == found.draw_id  # the draw that values and edges name
    assert entry.guarantee == release.guarantee
    assert len(DRAWS) == 3
    for each in (counts, found, release):
        assert each.plan["ledger_release"] == "people/1"
        assert dp.verify_release(each).holds


def test_verify_charges_the_choice(tmp_path) -> None:
    assert main(flags_of(tmp_path)) == 0
    verified = dp.verify_release(release_of(tmp_path))
    assert verified.holds
    assert 19.9 < verified.epsilon <= 20
    card = json.loads((tmp_path / "out/card.json").read_text())
    assert card["records_per_unit"]["release"]["max_records_per_unit"] == 3
    for name, factor in (("scale", 0.5), ("limit", 2)):
        changed = json.loads(json.dumps(card))
        if name == "scale":
            changed["records_per_unit"]["noise"][0]["scale"] *= factor
        else:
            changed["records_per_unit"]["release"]["max_records_per_unit"] *= factor
        (tmp_path / "out/card.json").write_text(json.dumps(changed))
        assert not dp.verify_release(release_of(tmp_path)).holds


def test_later_records_of_a_unit_are_dropped_by_the_chosen_number_alone(tmp_path) -> None:
    """What is limited after the choice depends on the number, not on the exact counts."""
    assert main(flags_of(tmp_path)) == 0
    (tmp_path / "again").mkdir()
    fixed = flags_of(
        tmp_path / "again", max_records_per_unit="3", most_records_per_unit=None, epsilon="19.6"
    )
    assert main(fixed) == 0
    chosen, given = release_of(tmp_path), release_of(tmp_path / "again")
    assert chosen.limited_guarantee == given.guarantee
    assert list(chosen.noise) == list(given.noise)


# --- killed programs


# --- previews, refusals


@pytest.mark.parametrize("domain", [CLOSED, OPEN])
def test_the_preview_states_the_split_and_the_bound(tmp_path, capfd, domain) -> None:
    _, flags = paid(tmp_path, domain)
    assert main([*flags, "--validate_only"]) == 0
    printed = " ".join(capfd.readouterr().out.split())
    assert "at most 20: epsilon 0.4 chooses the number, epsilon 19.6 is left" in printed
    assert "in proportion for fewer" in printed
    assert main([*flags, "--validate_only", "--json"]) == 0
    card = json.loads(capfd.readouterr().out)
    assert card["guarantee"]["max_records_per_unit"] == 20
    assert card["records_per_unit"]["noise"][0]["measured"] == "records per unit"
    assert DRAWS == []
    assert not (tmp_path / "out").exists()


def test_nothing_is_paid_if_a_later_run_can_not_be_built(tmp_path, capfd) -> None:
    ledger, flags = paid(tmp_path)
    table = visits().drop_columns(["sex"])
    job_flags(tmp_path, table, domain=CLOSED)
    refused_line(main, flags, capfd, "sex")
    assert ledger.entries("people") == []


@pytest.mark.job
@pytest.mark.parametrize(
    "changes",
    [
        {"delta": "0"},
        {"mechanism": "laplace"},
        {"mechanism": "gaussian", "calibration": "textbook"},
        {"num_rounds": "2"},
        {"num_rounds": "annealed"},
    ],
)
def test_every_mechanism_keeps_the_guarantee_with_the_choice(tmp_path, changes) -> None:
    delta = float(changes.get("delta", 1e-9))
    flags = flags_of(tmp_path, **changes)
    _, flags = paid_by(flags, tmp_path, 20.0, delta)
    assert main(flags) == 0
    verified = dp.verify_release(release_of(tmp_path))
    assert verified.holds
    assert release_of(tmp_path).records_per_unit.main.max_records_per_unit in (3, 4)
