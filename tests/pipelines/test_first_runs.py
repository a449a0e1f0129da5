"""One command whose first runs find a domain, choose the records per unit, or both."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from jobs import everything_under, job_flags, refused_line
from open_domains import DOMAIN as OPEN_DOMAIN, FREQUENT, residents
from program_jobs import JOBS, choosing, discovering, texts
from program_runs import done

import beam_dp as dp
from beam_dp.cli.main import main as beam_dp_main
from beam_dp.domain.attributes import PaidRelease
from beam_dp.mechanisms.registry import plan_discovery
from beam_dp.releases.kinds import read_any
from pipelines import release_synthetic_database
from pipelines.release_synthetic_database import main

DOMAIN = "domain, then records"
CHOICE = "records per unit, then records"
BOTH = "records per unit, domain, records"
TARGET = ("--epsilon=1", "--delta=1e-9", "--neighboring=add_or_remove_one", "--privacy_unit=record")


def releases_of(name: str) -> list[Any]:
    """The releases of all runs of a job, the first one first."""
    found = done(name)
    return [read_any(found.folder / "out" / place) for place in found.job.releases]


@pytest.mark.job
def test_one_command_finds_the_domain_and_releases_the_records(capfd, tmp_path):
    ran, (found, release) = done(DOMAIN), releases_of(DOMAIN)
    assert release.domain == found.domain
    assert set(found.found[0].values) == set(FREQUENT)  # the unique city is not there
    assert release.domain["city"].labels()[0] == "Atlantis"
    assert (ran.entry.mechanism, ran.entry.guarantee) == ("mwem", release.guarantee)
    assert release.discovered.draw_id == found.draw_id
    assert release.domain["city"].values_from == PaidRelease("people/1", found.draw_id)
    assert "Found 3 values of city" in ran.ran.out and "The release is in" in ran.ran.out
    out, page = str(ran.folder / "out"), tmp_path / "page.html"
    assert beam_dp_main(["describe", out]) == 0
    assert beam_dp_main(["report", out, f"--output={page}"]) == 0
    for told in (capfd.readouterr().out, page.read_text()):
        words = " ".join(told.split())
        assert f"city, income, by the release {found.draw_id[:8]}" in words
        assert "income: they are counted in the first or last level" in words
        assert re.search(r"city [0-9.]+%", told)


@pytest.mark.job
def test_one_command_chooses_the_number_and_releases_the_records():
    ran, (counts, release) = done(CHOICE), releases_of(CHOICE)
    assert "Chose 3 as the records per unit" in ran.ran.out
    chosen = release.records_per_unit
    assert (chosen.main.max_records_per_unit, chosen.draw_id) == (3, counts.draw_id)
    assert release.guarantee.max_records_per_unit == 20  # the public most
    assert release.limited_guarantee.epsilon == 20 * 0.98
    assert (ran.entry.guarantee, ran.entry.draw_id) == (release.guarantee, counts.draw_id)
    # 759 people with three records each, and three of the person with many.
    assert release.num_records == pytest.approx(2280, abs=40)


@pytest.mark.job
def test_one_command_chooses_the_number_and_finds_the_domain():
    counts, found, release = releases_of(BOTH)
    assert isinstance(counts, dp.IntervalRelease)
    assert release.records_per_unit.main.max_records_per_unit == 3
    assert found.guarantee.max_records_per_unit == 3
    assert found.discovered.whole == release.records_per_unit.main
    assert release.domain == found.domain
    assert done(BOTH).entry.draw_id == found.draw_id  # the draw that values and edges name


def copied_card(name: str, folder: Path) -> tuple[dict[str, Any], Any]:
    """A card to change, and what verifies the release with a changed one."""
    shutil.copytree(done(name).folder / "out", folder / "out")
    path = folder / "out/card.json"

    def verified(card: dict[str, Any]) -> Any:
        path.write_text(json.dumps(card))
        return dp.verify_release(read_any(folder / "out"))

    return json.loads(path.read_text()), verified


@pytest.mark.job
def test_verify_charges_the_domain_too(tmp_path):
    card, verified = copied_card(DOMAIN, tmp_path)
    true = verified(card)
    assert true.holds and 19.8 < true.epsilon <= 20
    told = [step.what for step in true.steps]
    assert "find values of city" in told
    assert any(what.startswith("count income in") for what in told)
    for part in (0, 1):
        forged = json.loads(json.dumps(card))
        forged["discovered"]["noise"][part]["scale"] /= 2
        assert not verified(forged).holds
    card["discovered"]["release"]["epsilon"] *= 0.9
    assert any("discovered.release.epsilon" in fault for fault in verified(card).faults)


@pytest.mark.job
@pytest.mark.parametrize(("place", "factor"), [("scale", 0.5), ("limit", 2)])
def test_verify_charges_the_choice(tmp_path, place, factor):
    card, verified = copied_card(CHOICE, tmp_path)
    assert 19.9 < verified(card).epsilon <= 20
    assert card["records_per_unit"]["release"]["max_records_per_unit"] == 3
    if place == "scale":
        card["records_per_unit"]["noise"][0]["scale"] *= factor
    else:
        card["records_per_unit"]["release"]["max_records_per_unit"] *= factor
    assert not verified(card).holds


@pytest.mark.job
def test_later_records_of_a_unit_are_dropped_by_the_chosen_number_alone(tmp_path):
    """What is limited after the choice depends on the number, not on the exact counts."""
    fixed = {"max_records_per_unit": "3", "most_records_per_unit": None, "epsilon": "19.6"}
    assert main(texts({**choosing(tmp_path), **fixed})) == 0
    _, chosen = releases_of(CHOICE)
    given = read_any(tmp_path / "out")
    assert chosen.limited_guarantee == given.guarantee
    assert list(chosen.noise) == list(given.noise)


@pytest.mark.job
@pytest.mark.parametrize(
    ("base", "changes"),
    [
        (discovering, {}),
        (choosing, {"delta": "0"}),
        pytest.param(choosing, {"mechanism": "laplace"}, marks=pytest.mark.part),
        pytest.param(
            choosing,
            {"mechanism": "gaussian", "calibration": "textbook"},
            marks=pytest.mark.part,
        ),
        pytest.param(choosing, {"num_rounds": "2"}, marks=pytest.mark.part),
        (choosing, {"num_rounds": "annealed"}),
    ],
)
def test_unpaid_release_of_any_mechanism_keeps_the_guarantee(tmp_path, base, changes):
    assert main(texts({**base(tmp_path), **changes})) == 0
    release = read_any(tmp_path / "out")
    assert dp.verify_release(release).holds
    if base is choosing:
        assert release.records_per_unit.main.max_records_per_unit in (3, 4)
    else:
        draw = read_any(tmp_path / "out/domain").draw_id
        assert release.domain["income"].edges_from == PaidRelease(None, draw)


# --- budgets, previews, refusals


@pytest.mark.job
def test_later_releases_with_a_found_domain_are_paid_from_the_same_budget(tmp_path, capfd):
    _, flags = JOBS[DOMAIN].paid_flags(tmp_path, 100.0)
    assert main(texts(flags)) == 0
    unpaid = {"ledger": None, "dataset_id": None}
    closed = json.dumps(read_any(tmp_path / "out").domain.to_json())
    later = {**flags, "domain": closed, "output": str(tmp_path / "again")}
    told = "--ledger is required, the ledger of the earlier release"
    refused_line(main, texts({**later, **unpaid}), capfd, told)
    assert main(texts(later)) == 0
    # The folder of the domain is a domain for other programs, too.
    folder, not_used = tmp_path / "out/domain", {"workload": None, "num_records": None}
    own = {"attribute": "income", "domain": str(folder), "output": str(tmp_path / "incomes")}
    argv = {**flags, **not_used, **own}
    refused_line(beam_dp_main, ["release-intervals", *texts({**argv, **unpaid})], capfd, told)
    assert beam_dp_main(["release-intervals", *texts(argv)]) == 0
    released = dp.read_release(tmp_path / "incomes", kind=dp.IntervalRelease)
    assert released.attribute == read_any(folder).domain["income"]
    wrong = texts({**flags, "domain": str(tmp_path / "incomes"), "output": str(tmp_path / "no")})
    refused_line(main, wrong, capfd, "must contain a DomainRelease")


@pytest.mark.job
def test_ledger_without_slack_refuses_before_anything_is_read(tmp_path, capfd):
    ledger, flags = JOBS[DOMAIN].paid_flags(tmp_path, 100.0)
    plan = dp.Gaussian().plan  # a release without slack fixes the ledger's filter
    domain = dp.read_domain({"a": 2})
    guarantee = dp.Guarantee(1.0, 1e-10, "add_or_remove_one", "person", 1)
    earlier = plan(domain, dp.marginals(domain, ways=1), guarantee, "noisy")
    ledger.spend("people", guarantee, earlier.loss, "gaussian")
    refused_line(main, texts(flags), capfd, "--composition with_slack keeps for them")
    assert len(ledger.entries("people")) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.job
@pytest.mark.parametrize(
    ("name", "facts"),
    [
        (DOMAIN, ["30 % of the budget: epsilon ", "at most 20 values that about"]),
        (CHOICE, ["at most 20: epsilon 0.4 chooses the number, epsilon 19.6 is left"]),
        (BOTH, ["at most 20: epsilon 0.4 chooses the number", "in proportion for fewer"]),
    ],
)
def test_preview_states_the_split(tmp_path, capfd, name, facts):
    _, flags = JOBS[name].paid_flags(tmp_path)
    before = everything_under(tmp_path)
    assert main([*texts(flags), "--validate_only"]) == 0
    printed = " ".join(capfd.readouterr().out.split())
    for fact in facts:
        assert fact in printed
    assert everything_under(tmp_path) == before
    assert main([*texts(flags), "--validate_only", "--json"]) == 0
    card = json.loads(capfd.readouterr().out)
    if name == CHOICE:
        assert card["records_per_unit"]["noise"][0]["measured"] == "records per unit"
    else:
        assert card["domain"] == dp.read_open_domain(OPEN_DOMAIN).to_json()
        assert [each["measured"] for each in card["discovered"]["noise"]] == ["city", "income"]


@pytest.mark.job
@pytest.mark.parametrize("name", [DOMAIN, CHOICE])
def test_everything_is_checked_before_the_first_run(tmp_path, capfd, name):
    ledger, flags = JOBS[name].paid_flags(tmp_path)
    whole = Path(str(flags["input"])).read_bytes()
    for column in ("sex", "person"):
        job_flags(
            tmp_path,
            residents().drop_columns([column]),
            domain=json.loads(Path(str(flags["domain"])).read_text()),
        )
        refused_line(main, texts(flags), capfd, column)
    Path(str(flags["input"])).write_bytes(whole)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("")
    refused_line(main, texts(flags), capfd, "--output.*an empty one")
    assert ledger.entries("people") == []


@pytest.mark.job
def test_nothing_found_still_gives_a_release(tmp_path):
    flags = discovering(tmp_path)
    job_flags(tmp_path, residents(6), domain=OPEN_DOMAIN)
    assert main(texts({**flags, "epsilon": "1"})) == 0
    release = read_any(tmp_path / "out")
    assert release.domain["city"].labels() == ("Atlantis", "other")
    assert 1 <= release.domain["income"].num_levels <= 4  # noise may look like records
    assert dp.verify_release(release).holds


@pytest.mark.job
def test_plans_are_for_the_most_that_may_be_found_with_the_rest_of_the_budget(
    tmp_path, capfd
) -> None:
    (tmp_path / "domain.json").write_text(json.dumps(OPEN_DOMAIN))
    argv = ["plan", f"--domain={tmp_path / 'domain.json'}", "--workload=marginals:2", *TARGET]
    assert beam_dp_main([*argv, "--num_records=1500"]) == 0
    printed = " ".join(capfd.readouterr().out.split())
    assert "30 % of the budget finds values or bins first" in printed
    assert "release-synthetic-database --input INPUT" in printed
    assert beam_dp_main([*argv, "--num_records=1500", "--json"]) == 0
    options = json.loads(capfd.readouterr().out)["options"]
    domain = dp.read_open_domain(OPEN_DOMAIN)
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    for option in options:
        mechanism = {"mwem": dp.MWEM, "laplace": dp.Laplace, "gaussian": dp.Gaussian}
        _, later = plan_discovery(
            mechanism[option["mechanism"]](), domain, dp.marginals(domain, ways=2), guarantee
        )
        assert option["expected_error"] == pytest.approx(later.predicted_cell_error)


def test_a_template_cannot_start_two_jobs(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.setattr(release_synthetic_database, "is_launched", lambda _: True)
    refused_line(main, texts(discovering(tmp_path)), capfd, "the launcher starts only one job")
    assert not (tmp_path / "out").exists()
