"""One command that finds a domain, then releases records: two runs, one payment, a draw each."""

from __future__ import annotations

import json
import re

import pytest
from discovery_jobs import domain_of, flags_of, paid, release_of
from jobs import everything_under, refused_line
from noise_sources import watch_draws
from open_domains import DOMAIN, FREQUENT, residents

import beam_dp as dp
from beam_dp.cli.main import main as beam_dp_main
from beam_dp.domain.attributes import PaidRelease
from beam_dp.mechanisms.registry import plan_discovery
from pipelines import discovery, release_synthetic_database
from pipelines.release_synthetic_database import main

DRAWS: list[str] = []


@pytest.fixture(autouse=True)
def watched(monkeypatch) -> None:
    watch_draws(monkeypatch, DRAWS)


def test_one_command_finds_the_domain_and_releases_the_records(tmp_path, capfd) -> None:
    ledger, flags = paid(tmp_path)  # a budget of exactly this guarantee
    assert main(flags) == 0
    found, release = domain_of(tmp_path), release_of(tmp_path)
    assert release.domain == found.domain
    assert set(found.found[0].values) == set(FREQUENT)  # the unique city is not there
    assert release.domain["city"].labels()[0] == "Atlantis"
    (entry,) = ledger.entries("people")
    assert (entry.release_id, entry.draw_id, entry.mechanism) == (
        "people/1",
        found.draw_id,
        "mwem",
    )
    assert entry.guarantee == release.guarantee
    assert release.plan["ledger_release"] == found.plan["ledger_release"] == "people/1"
    assert release.discovered is not None
    assert release.discovered.draw_id == found.draw_id
    assert release.domain["city"].values_from == PaidRelease("people/1", found.draw_id)
    assert sorted(DRAWS) == sorted({found.draw_id, release.draw_id})
    for each in (found, release):
        assert dp.verify_release(each).holds
    printed = capfd.readouterr().out
    assert "Found 3 values of city" in printed
    assert "The release is in" in printed
    out, page = str(tmp_path / "out"), tmp_path / "page.html"
    assert beam_dp_main(["describe", out]) == 0
    assert beam_dp_main(["report", out, f"--output={page}"]) == 0
    for told in (capfd.readouterr().out, page.read_text()):
        words = " ".join(told.split())
        assert f"city, income, by the release {found.draw_id[:8]}" in words
        assert "counted in the first or last level of income" in words
        assert re.search(r"city [0-9.]+%", told)


def test_verify_charges_the_domain_too(tmp_path) -> None:
    assert main(flags_of(tmp_path)) == 0
    release = release_of(tmp_path)
    verified = dp.verify_release(release)
    assert verified.holds
    told = [step.what for step in verified.steps]
    assert told[0] == "find values of city"
    assert told[1].startswith("count income in")
    assert 0.99 < verified.epsilon <= 1
    card = json.loads((tmp_path / "out/card.json").read_text())
    for part in (0, 1):
        scale = card["discovered"]["noise"][part]["scale"]
        card["discovered"]["noise"][part]["scale"] = scale / 2
        (tmp_path / "out/card.json").write_text(json.dumps(card))
        assert not dp.verify_release(release_of(tmp_path)).holds
        card["discovered"]["noise"][part]["scale"] = scale
    card["discovered"]["release"]["epsilon"] *= 0.9
    (tmp_path / "out/card.json").write_text(json.dumps(card))
    faults = dp.verify_release(release_of(tmp_path)).faults
    assert any("discovered.release.epsilon" in fault for fault in faults)


def test_without_a_ledger_the_values_name_the_draw_alone(tmp_path) -> None:
    assert main(flags_of(tmp_path)) == 0
    found, release = domain_of(tmp_path), release_of(tmp_path)
    assert release.domain["income"].edges_from == PaidRelease(None, found.draw_id)
    assert dp.verify_release(release).holds


# --- budgets, previews, refusals


def test_later_releases_with_this_domain_are_paid_from_the_same_budget(tmp_path, capfd) -> None:
    _, flags = paid(tmp_path, epsilon=10.0)
    assert main(flags) == 0
    closed = json.dumps(release_of(tmp_path).domain.to_json())
    later = flags_of(tmp_path, output=str(tmp_path / "again"))
    later = [flag for flag in later if not flag.startswith("--domain=")] + [f"--domain={closed}"]
    refused_line(main, later, capfd, "--ledger is required, the ledger of the earlier release")
    assert main([*later, *flags[-2:]]) == 0


def test_a_ledger_without_slack_refuses_before_anything_is_read(tmp_path, capfd) -> None:
    ledger, flags = paid(tmp_path, epsilon=10.0)
    plan = dp.Gaussian().plan  # a release without slack fixes the ledger's filter
    domain = dp.read_domain({"a": 2})
    guarantee = dp.Guarantee(1.0, 1e-10, "add_or_remove_one", "person", 1)
    earlier = plan(domain, dp.marginals(domain, ways=1), guarantee, "noisy")
    ledger.spend("people", guarantee, earlier.loss, "gaussian")
    refused_line(main, flags, capfd, "--composition with_slack keeps for them")
    assert len(ledger.entries("people")) == 1
    assert not (tmp_path / "out").exists()


def test_the_preview_reads_nothing_and_states_the_split(tmp_path, capfd) -> None:
    flags = flags_of(tmp_path)
    before = everything_under(tmp_path)
    assert main([*flags, "--validate_only"]) == 0
    printed = " ".join(capfd.readouterr().out.split())
    assert "15 % of the budget: epsilon 0.3" in printed
    assert "at most 20 values that about" in printed
    assert "is not known before the release" in printed
    assert main([*flags, "--validate_only", "--json"]) == 0
    card = json.loads(capfd.readouterr().out)
    assert card["domain"] == dp.read_open_domain(DOMAIN).to_json()
    assert card["guarantee"]["epsilon"] == 1
    assert [each["measured"] for each in card["discovered"]["noise"]] == ["city", "income"]
    assert everything_under(tmp_path) == before
    assert DRAWS == []


def test_everything_is_checked_before_the_first_run(tmp_path, capfd) -> None:
    ledger, flags = paid(tmp_path)
    other = residents().drop_columns(["city"])
    for table, words in ((other, "city"), (residents().drop_columns(["person"]), "person")):
        changed = [*flags_of(tmp_path, table), *flags[-2:]]
        refused_line(main, changed, capfd, words)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("")
    flags_of(tmp_path)
    refused_line(main, flags, capfd, "--output.*an empty one")
    assert ledger.entries("people") == []


def test_nothing_found_still_gives_a_release(tmp_path) -> None:
    table = residents(6)
    assert main(flags_of(tmp_path, table)) == 0
    release = release_of(tmp_path)
    assert release.domain["city"].labels() == ("Atlantis", "other")
    assert 1 <= release.domain["income"].num_levels <= 4  # noise may look like records
    assert dp.verify_release(release).holds


def test_programs_agree_on_the_folder(tmp_path) -> None:
    assert discovery.domain_folder("gs://bucket/out/") == "gs://bucket/out/domain"
    assert release_synthetic_database.FOLDER == "domain"


PLAN = ("--epsilon=1", "--delta=1e-9", "--neighboring=add_or_remove_one", "--privacy_unit=record")


def test_plans_are_for_the_most_that_may_be_found_with_the_rest_of_the_budget(
    tmp_path, capfd
) -> None:
    (tmp_path / "domain.json").write_text(json.dumps(DOMAIN))
    argv = ["plan", f"--domain={tmp_path / 'domain.json'}", "--workload=marginals:2", *PLAN]
    assert beam_dp_main([*argv, "--num_records=1500"]) == 0
    printed = " ".join(capfd.readouterr().out.split())
    assert "15 % of the budget finds values or bins first" in printed
    assert "release-synthetic-database --input INPUT" in printed
    assert beam_dp_main([*argv, "--num_records=1500", "--json"]) == 0
    options = json.loads(capfd.readouterr().out)["options"]
    domain = dp.read_open_domain(DOMAIN)
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    for option in options:
        mechanism = {"mwem": dp.MWEM, "laplace": dp.Laplace, "gaussian": dp.Gaussian}
        _, later = plan_discovery(
            mechanism[option["mechanism"]](), domain, dp.marginals(domain, ways=2), guarantee
        )
        assert option["expected_error"] == pytest.approx(later.predicted_cell_error)


@pytest.mark.parametrize(
    "asked",
    [
        ("--target_error=5", "--num_records=1500", "--workload=marginals:2", *PLAN[1:]),
        (
            *("--windows", "--workload=marginals:1", "--start=2026-01-01T00:00Z", "--window=1h"),
            *("--num_windows=2", "--grace=0s", "--max_windows_per_unit=1", *PLAN[:2]),
        ),
    ],
)
def test_other_plans_refuse_an_open_domain(tmp_path, capfd, asked) -> None:
    (tmp_path / "domain.json").write_text(json.dumps(DOMAIN))
    if "--windows" in asked:
        asked = (*asked, "--privacy_unit=person", "--max_records_per_unit=1")
    refused_line(
        beam_dp_main,
        ["plan", f"--domain={tmp_path / 'domain.json'}", *asked],
        capfd,
        "only beam-dp release-synthetic-database takes a domain",
    )


def test_the_folder_of_a_found_domain_is_a_domain_for_other_programs(tmp_path, capfd) -> None:
    _, flags = paid(tmp_path, epsilon=10.0)
    assert main(flags) == 0
    folder = str(tmp_path / "out" / "domain")
    argv = [
        *("release-intervals", "--attribute=income", f"--domain={folder}"),
        *(flag for flag in flags if not flag.startswith(("--domain=", "--output=", "--workload="))),
        f"--output={tmp_path / 'incomes'}",
    ]
    argv = [flag for flag in argv if not flag.startswith("--num_records=")]
    assert beam_dp_main(argv) == 0
    released = dp.read_release(tmp_path / "incomes", kind=dp.IntervalRelease)
    assert released.attribute == domain_of(tmp_path).domain["income"]
    refused_line(beam_dp_main, argv[:-3] + argv[-1:], capfd, "the ledger of the earlier release")
    refused_line(
        main,
        [*flags_of(tmp_path), f"--domain={tmp_path / 'incomes'}"],
        capfd,
        "--domain.*twice|must contain a DomainRelease",
    )


def test_a_template_cannot_start_two_jobs(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.setattr(release_synthetic_database, "is_launched", lambda _: True)
    refused_line(main, flags_of(tmp_path), capfd, "the launcher starts only one job")
    assert DRAWS == []
