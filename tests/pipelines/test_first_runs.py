"""One command whose first runs find a domain, choose the records per unit, or both.

It goes on after it was killed, and never draws again for free. A killed program is simulated by an
exception that nothing catches, at each moment between and inside the runs;
``test_killed_process_goes_on`` kills processes.
"""

import collections
import errno
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import job_flags, refused_line
from noise_sources import watch_draws
from open_domains import CITY, DOMAIN as OPEN_DOMAIN, FREQUENT, INCOME, SEX, plans_of, residents
from program_jobs import JOBS, Job, choosing, discovering, texts
from program_runs import Killed, assert_covers, done

import beam_dp as dp
from beam_dp.cli.main import main as beam_dp_main
from beam_dp.domain import attributes
from beam_dp.domain.attributes import PaidRelease
from beam_dp.mechanisms import contract, registry
from beam_dp.mechanisms.discovery.plan import plan_domain
from beam_dp.releases.kinds import read_any
from pipelines import flags as flags_module, program
from pipelines.release_synthetic_database import main
from pipelines.stages import StagedJob

DOMAIN = "domain, then records"
CHOICE = "records per unit, then records"
BOTH = "records per unit, domain, records"
TYPES = "types, domain, records"
ALL = "records per unit, types, domain, records"
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
        assert "income: moved into the first or last level" in words
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
    number = release.records_per_unit.main.max_records_per_unit
    assert 1 < number < 10  # 3 but for noise
    assert found.guarantee.max_records_per_unit == number
    assert found.discovered.whole == release.records_per_unit.main
    assert release.domain == found.domain
    assert done(BOTH).entry.draw_id == found.draw_id  # the draw that values and edges name


@pytest.mark.job
def test_one_command_finds_types_first(tmp_path, capfd):
    types, found, release = releases_of(TYPES)
    assert types.readings == {"city": "text", "income": "whole number"}
    assert "Found text for city, whole number for income" in done(TYPES).ran.out
    assert set(found.found[0].values) == set(FREQUENT) and release.domain == found.domain
    assert release.domain["income"].whole and release.discovered.types == found.discovered.types
    assert done(TYPES).entry.draw_id == found.draw_id
    out = done(TYPES).folder / "out"
    refused_line(
        main,
        texts({**JOBS[TYPES].flags(tmp_path), "domain": str(out / "domain/types")}),
        capfd,
        "has types only: the domain is in the folder above it",
    )
    for place in ("", "domain", "domain/types"):
        ledger = f"--ledger={done(TYPES).folder / 'ledger.sqlite'}"
        assert beam_dp_main(["verify", str(out / place), ledger]) == 0
        assert beam_dp_main(["describe", str(out / place)]) == 0
    assert "text for city" in capfd.readouterr().out
    report = [f"--output={tmp_path / 'page.html'}"]
    assert beam_dp_main(["report", str(out / "domain/types"), *report]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "time with a zone" in page and "A value votes for the narrowest type" in page
    _, types, found, release = releases_of(ALL)
    number = release.records_per_unit.main.max_records_per_unit
    assert types.guarantee.max_records_per_unit == number
    assert types.discovered.whole == release.records_per_unit.main == found.discovered.whole


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
    ("name", "folder"), [(DOMAIN, "out"), (CHOICE, "out"), (BOTH, "out/domain")]
)
def test_everything_is_checked_before_the_first_run(tmp_path, capfd, name, folder):
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
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "mine.txt").write_text("")
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
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    sought = plan_domain(dp.read_open_domain(OPEN_DOMAIN), guarantee).sought
    assert sought and all(f"{names}: {text}" in printed for names, text in sought.items())
    assert "release-synthetic-database --input INPUT" in printed
    assert beam_dp_main([*argv, "--num_records=1500", "--json"]) == 0
    options = json.loads(capfd.readouterr().out)["options"]
    domain = dp.read_open_domain(OPEN_DOMAIN)
    for option in options:
        mechanism = {"mwem": dp.MWEM, "laplace": dp.Laplace, "gaussian": dp.Gaussian}
        _, later = plans_of(
            mechanism[option["mechanism"]](), domain, dp.marginals(domain, ways=2), guarantee
        )
        assert option["expected_error"] == pytest.approx(later.parameters.predicted_cell_error)


def counted_calls(patch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """Counts plans, checks of plans, domain files that are read, and texts of made-up values."""
    calls: collections.Counter[str] = collections.Counter()

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return original(*arguments, **options)

        patch.setattr(owner, name, call)

    for mechanism in (dp.MWEM, dp.Gaussian, dp.Laplace):
        count(mechanism, "plan")
    for module in (contract, registry):
        count(module, "check_promise")
    count(flags_module, "parse_open_domain")
    count(attributes, "normal_form")
    return calls


@pytest.mark.parametrize("ledger", [False, True])
def test_a_preview_plans_once_for_each_kind_of_noise(tmp_path, monkeypatch, capfd, ledger):
    """Also with both discoveries, and whatever number of values may be found."""
    texts_made = []
    for number, most in enumerate((10, 100_000)):
        folder = tmp_path / str(number)
        folder.mkdir()
        _, flags = JOBS[BOTH].paid_flags(folder)
        flags |= {} if ledger else {"ledger": None, "dataset_id": None}
        city = {**CITY, "discover": {"max_values": most, "include": ["Atlantis"]}}
        (folder / "domain.json").write_text(json.dumps({"attributes": [city, SEX, INCOME]}))
        with monkeypatch.context() as patch:
            calls = counted_calls(patch)
            assert main([*texts(flags), "--validate_only"]) == 0
        assert f"at most {most:,} values" in capfd.readouterr().out
        assert calls["parse_open_domain"] == 1
        assert calls["plan"] <= 2 and calls["check_promise"] <= 2
        texts_made.append(calls["normal_form"])
    assert texts_made[0] == texts_made[1]


def test_a_template_cannot_start_two_jobs(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.setattr("pipelines.stages.is_launched", lambda _: True)
    refused_line(main, texts(discovering(tmp_path)), capfd, "the launcher starts only one job")
    assert not (tmp_path / "out").exists()


DRAWS: list[str] = []
ENOUGH = 200.0  # for ten releases
Patch = Callable[[pytest.MonkeyPatch], None]


def finds_domain(job: program.Job) -> bool:
    return job.plan.mechanism == "discovery"


def is_third(job: program.Job) -> bool:
    return job.output.endswith("domain")


def is_last(job: program.Job) -> bool:
    return not isinstance(job, StagedJob)


@pytest.fixture(autouse=True)
def watched(monkeypatch) -> None:
    watch_draws(monkeypatch, DRAWS)


def before(owner: Any, name: str, when: Callable[[Any], bool] = lambda _: True) -> Patch:
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if when(arguments[0]):
            raise Killed
        return original(*arguments, **options)

    return lambda patch: patch.setattr(owner, name, call)


def after(owner: Any, name: str, when: Callable[[Any], bool] = lambda _: True) -> Patch:
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        original(*arguments, **options)
        if when(arguments[0]):
            raise Killed

    return lambda patch: patch.setattr(owner, name, call)


MOMENTS: dict[str, Patch] = {
    "paid, nothing drawn": before(program, "run_pipeline"),
    "draw committed, not recorded": before(program, "mark_released"),
    "draw recorded": after(program, "mark_released"),
    "before the domain is read": before(StagedJob, "payer_of", finds_domain),
    "before the mark of the domain": before(program.Job, "mark", is_last),
    "after the mark of the domain": after(program.Job, "mark", is_last),
    "before the counts are read": before(StagedJob, "payer_of"),
    "before the mark of the counts": before(program.Job, "mark"),
    "after the mark of the counts": after(program.Job, "mark"),
    "after the mark of the types": after(program.Job, "mark", is_third),
}
# How many entries of the ledger there are in the end, and how many draws after the kill. What was
# submitted may have been drawn, so it is paid again.
KILLS = [
    (DOMAIN, "paid, nothing drawn", 2, 0),
    (DOMAIN, "draw committed, not recorded", 1, 1),
    (DOMAIN, "draw recorded", 1, 1),
    (DOMAIN, "before the domain is read", 1, 1),
    (DOMAIN, "before the mark of the domain", 1, 1),
    (DOMAIN, "after the mark of the domain", 2, 1),
    (CHOICE, "before the counts are read", 1, 1),
    (CHOICE, "before the mark of the counts", 1, 1),
    (CHOICE, "after the mark of the counts", 2, 1),
    (BOTH, "before the counts are read", 1, 1),
    (BOTH, "before the mark of the counts", 1, 1),
    (BOTH, "after the mark of the counts", 2, 1),
    (BOTH, "before the domain is read", 1, 2),
    (BOTH, "after the mark of the domain", 2, 2),
    (TYPES, "before the counts are read", 1, 1),
    (TYPES, "before the mark of the counts", 1, 1),
    (TYPES, "after the mark of the counts", 2, 1),
    (TYPES, "after the mark of the domain", 2, 2),
    (ALL, "after the mark of the counts", 2, 1),
    (ALL, "after the mark of the types", 2, 2),
]


def kill(argv: list[str], job: Job, moment: str) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        MOMENTS[moment](patch)
        job.main(argv)


def found_in(folder: Path, job: Job) -> list[Any]:
    """The releases of all runs that have ended, the first one first."""
    places = [folder / "out" / place for place in job.releases]
    return [read_any(place) for place in places if (place / "card.json").exists()]


@pytest.mark.parametrize(
    ("name", "moment", "num_paid", "num_drawn"),
    [
        pytest.param(*each, marks=pytest.mark.part if each[0] in (BOTH, ALL) else pytest.mark.job)
        for each in KILLS
    ],
)
def test_same_command_goes_on_from_what_is_committed(
    tmp_path, capfd, name, moment, num_paid, num_drawn
):
    job = JOBS[name]
    ledger, flags = job.paid_flags(tmp_path, ENOUGH)
    kill(texts(flags), job, moment)
    drawn, first = list(DRAWS), found_in(tmp_path, job)
    assert [each.draw_id for each in first] == drawn and len(drawn) == num_drawn
    assert job.main(texts(flags)) == 0
    assert ("paid again" in capfd.readouterr().err) == (num_paid == 2 and num_drawn > 0)
    releases = found_in(tmp_path, job)
    # What was committed is not drawn again.
    assert [each.draw_id for each in releases] == DRAWS and DRAWS[:num_drawn] == drawn
    assert len(DRAWS) == len(job.releases)
    for each in releases:
        assert dp.verify_release(each).holds
    entries, release = ledger.entries("people"), releases[-1]
    assert [entry.number for entry in entries] == list(range(1, num_paid + 1))
    assert release.plan["ledger_release"] == f"people/{num_paid}"
    assert entries[-1].guarantee == release.guarantee
    paid = [
        place
        for place, each in zip(job.releases, releases, strict=True)
        if each.plan["ledger_release"] == f"people/{num_paid}"
    ]
    assert_covers(entries[-1], tmp_path / "out", *paid)
    if num_paid == 1:
        named = [each for each in releases if each.KIND == "domain"][-1:] or releases
        assert entries[0].draw_id == named[0].draw_id
        assert release.guarantee.epsilon == 20
    if moment == "after the mark of the domain":
        found = first[-1]
        assert entries[1].guarantee == found.discovered.main
        assert entries[1].draw_id == release.draw_id and entries[1].loss.slack == 0
        assert release.discovered is None and release.records_per_unit is None
        assert release.domain["city"].values_from == PaidRelease("people/1", found.draw_id)
    if name in (TYPES, ALL):
        domain = releases[-2]
        assert domain.discovered.types.draw_id == releases[-3].draw_id
        assert domain.open_domain == releases[-3].result
    if moment.startswith("after the mark") and name not in (DOMAIN, TYPES):
        origin = {"ledger_release": "people/1", "draw_id": first[0].draw_id}
        assert release.plan["records_per_unit_from"] == origin
        path = tmp_path / "out" / "card.json"
        path.write_text(path.read_text().replace(first[0].draw_id, "0" * 32))
        assert not dp.verify_release(read_any(path.parent)).holds
    if moment == "after the mark of the counts" and name != TYPES:
        assert release.records_per_unit is None
        assert release.guarantee.epsilon == 20 * 0.98
        assert 1 < release.guarantee.max_records_per_unit < 10  # 3 but for noise


@pytest.mark.job
def test_marked_entry_and_an_empty_budget_refuse(tmp_path, capfd):
    job = JOBS[DOMAIN]
    ledger, flags = job.paid_flags(tmp_path, 20.0)  # exactly this guarantee
    kill(texts(flags), job, "after the mark of the domain")
    refused_line(job.main, texts(flags), capfd, "must fit 'people', which leaves")
    assert len(ledger.entries("people")) == 1
    assert not (tmp_path / "out/card.json").exists()


@pytest.mark.job
def test_second_program_that_missed_the_mark_is_stopped_by_it(tmp_path, monkeypatch, capfd):
    """Two programs go on from one domain at the same moment."""
    job = JOBS[DOMAIN]
    ledger, flags = job.paid_flags(tmp_path, ENOUGH)
    kill(texts(flags), job, "after the mark of the domain")
    monkeypatch.setattr(StagedJob, "_is_used_up", lambda *_: False)
    assert job.main(texts(flags)) == 2
    assert "must be a state of 'people/1' that was not used" in capfd.readouterr().err
    assert len(ledger.entries("people")) == len(DRAWS) == 1


# For each job: flags that differ, and the field of the card that shows it.
OTHERS: dict[str, list[tuple[dict[str, str | None], str]]] = {
    DOMAIN: [
        ({"input": "FOLDER/people*.parquet"}, "flags.input is"),
        ({"epsilon": "21"}, "contains the domain of another job"),
        ({"workload": "marginals:1"}, "flags.workload is"),
        ({"domain_share": "0.2"}, "contains the domain of another job"),
        ({"within_bins": "midpoint"}, "flags.within_bins is"),
        ({"num_synthetic_records": None}, "flags.num_synthetic_records is"),
        ({"domain": "FOLDER/fewer.json"}, "another job: domain.attributes"),
        ({"ledger": None, "dataset_id": None}, "--ledger is required, the ledger of the earlier"),
        ({"dataset_id": "others"}, "--dataset_id: 'others'"),
    ],
    CHOICE: [
        ({"epsilon": "21"}, "contains the records per unit of another job"),
        ({"workload": "marginals:1"}, "contains the records per unit of another job"),
        ({"most_records_per_unit": "19"}, "contains the records per unit of another job"),
        ({"ledger": None, "dataset_id": None}, "--ledger is required, the ledger of the earlier"),
    ],
}


@pytest.mark.job
@pytest.mark.parametrize("name", OTHERS)
def test_only_the_same_command_goes_on(tmp_path, capfd, name):
    job = JOBS[name]
    ledger, paid = job.paid_flags(tmp_path, ENOUGH)
    ledger.declare("others", ENOUGH, 1e-6, "person", "add_or_remove_one")
    flags = {**paid, "num_synthetic_records": "10"}
    kill(texts(flags), job, "draw recorded")
    fewer = {**CITY, "discover": {"max_values": 19, "include": ["Atlantis"]}}
    (tmp_path / "fewer.json").write_text(json.dumps({"attributes": [fewer, SEX, INCOME]}))
    for changed, told in OTHERS[name]:
        argv = [each.replace("FOLDER", str(tmp_path)) for each in texts({**flags, **changed})]
        refused_line(job.main, argv, capfd, told)
    assert len(DRAWS) == len(ledger.entries("people")) == 1
    assert job.main(texts(flags)) == 0


@pytest.mark.job
@pytest.mark.parametrize(
    ("name", "moment", "told"),
    [
        (DOMAIN, "before the domain is read", "which no ledger paid for"),
        (CHOICE, "before the counts are read", "no ledger"),
    ],
)
def test_first_run_without_a_ledger_is_not_paid_later(tmp_path, capfd, name, moment, told):
    job = JOBS[name]
    _, paid = job.paid_flags(tmp_path)
    flags = {**paid, "ledger": None, "dataset_id": None}
    kill(texts(flags), job, moment)
    refused_line(job.main, texts(paid), capfd, told)
    assert job.main(texts(flags)) == 0


_KILLED = """
import os, sys
from beam_dp.storage.store import LocalStore
from pipelines import program, release_synthetic_database
owner, name, before, place = {moment}
original = getattr(owner, name)
def call(*arguments, **options):
    found = None if before else original(*arguments, **options)
    if str(getattr(arguments[0], "_path", "")).endswith(place):
        os._exit(9)
    return original(*arguments, **options) if before else found
setattr(owner, name, call)
sys.exit(release_synthetic_database.main(sys.argv[1:]))
"""


@pytest.mark.part
@pytest.mark.parametrize(
    ("moment", "num_paid", "unfinished"),
    [
        ("program, 'mark_released', True, ''", 1, None),
        ("program, 'mark_released', False, ''", 1, None),
        ("program.Job, 'mark', True, ''", 1, None),
        ("program.Job, 'mark', False, ''", 2, None),
        # Inside the runs: a draft stays, or a card without its payload.
        ("LocalStore, 'create_exclusively', True, '/out/domain'", 2, "out/domain"),
        ("LocalStore, 'place', True, '/out/domain'", 1, None),
        ("LocalStore, 'create_exclusively', True, '/out'", 2, "out"),
    ],
)
def test_killed_process_goes_on(tmp_path, capfd, moment, num_paid, unfinished):
    job = JOBS[DOMAIN]
    ledger, flags = job.paid_flags(tmp_path, ENOUGH)
    command = [sys.executable, "-W", "ignore", "-c", _KILLED.format(moment=moment), *texts(flags)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 9
    if unfinished is not None:
        told = "must not contain drafts of another job"
        refused_line(job.main, texts(flags), capfd, told)  # the killed program may still run
        assert beam_dp_main(["finish", str(tmp_path / unfinished)]) == 0
    assert job.main(texts(flags)) == 0
    assert len(ledger.entries("people")) == num_paid
    found, release = found_in(tmp_path, job)
    assert dp.verify_release(release).holds and release.domain == found.domain


@pytest.mark.job
def test_flags_are_kept_from_others_and_only_until_the_job_is_done(tmp_path):
    """Hashes of paths on a card would confirm a guess of where private files are."""
    job = JOBS[DOMAIN]
    _, flags = job.paid_flags(tmp_path)
    kill(texts(flags), job, "draw recorded")
    (kept,) = (tmp_path / "out").glob(".draft-job-*")
    assert kept.stat().st_mode & 0o777 == 0o700
    card = (tmp_path / "out/domain/card.json").read_text("utf-8")
    assert "job" not in json.loads(card)["parameters"]
    assert job.main(texts(flags)) == 0
    assert [*(tmp_path / "out").glob(".draft-*")] == []


def test_paid_job_goes_on_where_its_flags_cannot_be_kept(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pipelines.stages.note_job", full)
    job = JOBS[DOMAIN]
    _, flags = job.paid_flags(tmp_path)
    assert job.main(texts(flags)) == 0
    assert (tmp_path / "out/card.json").exists()
