"""The ranking of mechanisms for a job, its table and commands, the least epsilon of an error."""

import json
import math
import shlex

import numpy as np
import pytest
from noise_sources import Seeded
from plan_words import KINDS, TABLE, argv
from tiny import domain_of, promise, workload_of

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.files import domain_from_json
from beam_dp.flags.command_line import import_program
from beam_dp.mechanisms.intervals.plan import plan_intervals, release_intervals
from beam_dp.mechanisms.linear_answers.answers import WorkloadAnswersPlan
from beam_dp.mechanisms.resources import fit_resources
from beam_dp.planning.linear_answers import asked_intervals, intervals_option
from beam_dp.planning.ranking import Ranking
from beam_dp.planning.target import least_epsilon
from beam_dp.queries.linear import Explicit

DELTA = 1e-9


def ranked(num_records: int = 10_000, delta: float = DELTA, **named: object) -> Ranking:
    workload = workload_of(domain_of(8, 4, 2), 2)
    public = bool(named.pop("num_records_is_public", True))
    job = dp.PlanningJob(workload, promise(delta=delta), num_records, public, **named)  # type: ignore[arg-type]
    return dp.rank_mechanisms(job)


def test_ranks_every_mechanism_by_least_error_and_predicts_its_time():
    ranking = ranked()
    names = {option.mechanism for option in ranking.options}
    answers = {"private_mw", "laplace_answers", "gaussian_answers", "intervals"}
    assert names == {"mwem", "gaussian", "laplace", "small_db", *answers}
    errors = [o.expected_error for o in ranking.options if o.expected_error is not None]
    assert errors == sorted(errors) and ranking.best is ranking.options[0]
    for option in ranking.options:
        assert (option.resources is None) != option.is_feasible
        if option.bound is not None and option.expected_error is not None:
            assert option.expected_error < option.bound.max_error
    found = [
        dp.MWEM().plan(domain, workload_of(domain, 2), promise(delta=1e-9), "noisy").resources
        for domain in (domain_of(*[8] * number) for number in (7, 8, 10))
    ]
    seconds = [each.seconds for each in found]
    assert max(seconds) < 1.1 * min(seconds) and max(seconds) < fit_resources(8**7, 0).seconds
    memory = [each.memory_bytes for each in found]
    assert memory == sorted(memory)
    # Few cells answer many queries best from their noisy table.
    workload = dp.parse_linear_workload("intervals:a0", domain_of(16, 2))
    ranking = dp.rank_mechanisms(dp.PlanningJob(workload, promise(delta=DELTA), 10_000, True))
    assert ranking.options[0].mechanism in ("intervals", "mwem", "laplace")
    assert dict(ranking.options[0].parameters)["workload"] == "marginals:a0"
    selecting = [
        o for o in ranking.options if o.calibration == "textbook" and o.mechanism == "mwem"
    ]
    assert [option.is_feasible for option in selecting] == [False]


@pytest.mark.part
def test_counts_too_noisy_cells_as_reports_do():
    domain = domain_of(30, 4, 2)
    workload = dp.marginals(domain, ways=1)
    guarantee = promise(delta=DELTA)
    for num_records in (20, 300, 10**9):
        best = dp.rank_mechanisms(dp.PlanningJob(workload, guarantee, num_records, True)).best
        assert best is not None
        plan = dp.MWEM().plan(domain, workload, guarantee, num_records)
        error = plan.predicted_cell_error  # of a cell, on average over these attributes
        sizes = [domain[name].size for (name,) in workload]
        expected = sum(size for size in sizes if 1.96 * error > 0.5 * num_records / size)
        assert best.noisy_cells == expected
        assert best.to_json()["noisy_cells"] == best.noisy_cells
    assert best.noisy_cells == 0


def test_impossible_options_say_why():
    refusals = [o.refusal for o in ranked(delta=0.0).options if o.mechanism == "gaussian"]
    assert len(refusals) == 2 and all("delta" in str(each) for each in refusals)
    domain = domain_of(4, 2)
    workload = dp.LinearWorkload(domain, (Explicit.of(domain.shape, np.linspace(0, 1, 8)),))
    ranking = dp.rank_mechanisms(dp.PlanningJob(workload, promise(), 10_000, True))
    (option,) = [o for o in ranking.options if (o.mechanism, o.calibration) == ("mwem", "tight")]
    assert option.refusal is not None and "explicit values" in option.refusal
    domain = domain_from_json(INTERVALS_DOMAIN)
    job = dp.PlanningJob(dp.parse_workload("marginals:1", domain), INTERVALS_PROMISE, 10_000, False)
    assert "one ordered attribute" in str(intervals_option(job).refusal)
    few, many = ranked(50, 0.0), ranked(10**9, 0.0)
    vacuous = [each.bound.vacuous for each in few.options if each.mechanism == "private_mw"]
    assert vacuous == [True, True]
    assert not any(o.bound.vacuous for o in many.options if o.mechanism == "private_mw")


@pytest.mark.part
def test_stated_number_of_records_meets_max_error_fraction():
    ranking = ranked(max_error_fraction=0.1)
    for option in ranking.options:
        if option.records_needed is not None:
            again = ranked(option.records_needed + 1, max_error_fraction=0.1)
            key = option.mechanism, option.calibration
            same = next(o for o in again.options if (o.mechanism, o.calibration) == key)
            assert same.bound is not None
            # The run of the published online algorithm pays for whole updates and integers.
            most = 0.202 if option.calibration == "textbook" else 0.101
            assert same.bound.max_error_fraction <= most
    assert any(option.records_needed for option in ranking.options)


@pytest.mark.part
def test_separate_noise_is_best_for_a_few_wide_queries():
    domain = domain_of(32, 32, 32)
    queries = dp.LinearQueries(domain)
    asked = [queries.conjunction({"a0": [0, n], "a1": [0, n], "a2": [0, n]}) for n in (10, 15)]
    workload = dp.LinearWorkload(domain, tuple(asked))
    ranking = dp.rank_mechanisms(dp.PlanningJob(workload, promise(delta=DELTA), 10_000, True))
    assert ranking.options[0].mechanism.endswith("_answers")


def flags(*more: str, **changed: str | None) -> list[str]:
    asked = {"num_records": "1e5", "epsilon": "1", "domain": '{"a": 8, "b": 4, "c": 2}'}
    unit = {"privacy_unit": "record", "max_records_per_unit": None}
    return argv({**TABLE, **asked, **unit}, *more, **changed)


@pytest.mark.parametrize("form", ["intervals:a", "marginals:2", "a file", "tables"])
@pytest.mark.parametrize(("delta", "public"), [("1e-9", True), ("0", False)])
def test_programs_accept_printed_commands(tmp_path, capsys, delta, public, form):
    file = tmp_path / "queries.jsonl"
    file.write_text(2 * '{"conjunction": {"b": 2}}\n{"prefix": {"attribute": "a", "high": 3}}\n')
    if form == "a file":
        with file.open("a") as lines:
            lines.write('{"marginal": ["b", "a"]}\n')
    elif form == "tables":
        file.write_text('{"marginal": ["a"]}\n{"marginal": ["b", "a"]}\n')
    spec = str(file) if form in ("a file", "tables") else form
    given = {"workload": spec, "delta": delta, "input": "x.csv", "output": str(tmp_path / "out")}
    assert main(flags("--json", *["--num_records_is_public"] * public, **given)) == 0
    accepted, number = set(), 100_000 if public else "noisy"
    for option in json.loads(capsys.readouterr().out)["options"]:
        if option["command"] is None:
            continue
        program, *words = shlex.split(option["command"].removeprefix("beam-dp "))
        assert program.replace("-", "_") == option["program"]
        job = import_program(option["program"]).parse_arguments(words)
        assert not getattr(job, "refusals", [])
        assert job.plan.mechanism == option["mechanism"].removesuffix("_answers")
        assert job.plan.guarantee.delta == float(delta)
        assert getattr(job.plan, "num_records", number) == number
        if isinstance(job.plan, WorkloadAnswersPlan):
            # What was predicted is what will be run.
            assert job.plan.standard_error == option["expected_error"]
        accepted.add(option["mechanism"])
    answers = {"laplace_answers"} if form in ("intervals:a", "a file") else set()
    intervals = {"intervals"} if form == "intervals:a" else set()
    approximate = {each.replace("laplace", "gaussian") for each in {"laplace", *answers}}
    small = {"small_db"} if form != "tables" else set()
    expected = {"mwem", "laplace", "private_mw", *answers, *intervals, *small}
    assert accepted == expected | (approximate if delta != "0" else set())


INTERVALS_PROMISE = dp.Guarantee(0.5, 0, "add_or_remove_one", "person", 2)
INTERVALS_DOMAIN = {
    "attributes": [
        {"name": "age", "type": "integer", "min": 5, "max": 40, "other": True},
        {"name": "pay", "type": "numeric", "edges": [0, 1, 2, 3]},
        {"name": "sex", "type": "categorical", "values": ["a", "b", "c"]},
    ]
}


def intervals_job(spec: str) -> dp.PlanningJob:
    domain = domain_from_json(INTERVALS_DOMAIN)
    return dp.PlanningJob(dp.parse_linear_workload(spec, domain), INTERVALS_PROMISE, 10_000, False)


@pytest.mark.parametrize("spec", ["intervals:age", "prefixes:age", "prefixes:pay"])
def test_expected_error_matches_standard_errors_of_requested_intervals(spec):
    job = intervals_job(spec)
    option = intervals_option(job)
    attribute, low, high = asked_intervals(job)
    num_leaves = job.domain[attribute].num_levels
    release = release_intervals(
        plan_intervals(num_leaves, INTERVALS_PROMISE), np.zeros(num_leaves, np.int64), Seeded(1)
    )
    errors = release.answer(low, high).standard_errors
    assert len(low) == job.num_queries
    assert option.expected_error == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert option.bound is not None and option.bound.max_error > errors.max()
    if spec == "prefixes:age":
        assert low.tolist() == [0] * 36 and high.tolist() == list(range(36))


@pytest.mark.parametrize("spec", ["intervals:sex", "conjunctions:2", "conjunctions:1"])
def test_queries_other_than_intervals_are_refused(spec):
    option = intervals_option(intervals_job(spec))
    assert option.refusal is not None and "must be" in option.refusal


# `beam-dp plan --target_error`: the least epsilon that keeps an error, and that it truly does.


def planned(capsys: pytest.CaptureFixture[str], words: list[str]) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def key(option: dict) -> tuple:
    noise = option.get("parameters", {}).get("noise")
    return option.get("mechanism"), option.get("calibration"), noise, option.get("strategy")


def error_of(option: dict, asked: str) -> float:
    if "errors" in option:
        return max(option["errors"].values())
    if asked == "target_error":
        return math.inf if option["expected_error"] is None else option["expected_error"]
    return math.inf if option["bound"] is None else option["bound"]["max_error"]


SLOW = ("intervals", "conjunctions", "windows")


@pytest.mark.part
@pytest.mark.parametrize("asked", ["target_error", "target_bound"])
@pytest.mark.parametrize(
    "kind", ["marginals", *(pytest.param(each, marks=pytest.mark.part) for each in SLOW)]
)
def test_printed_epsilon_is_the_smallest_that_meets_the_error_target(capsys, kind, asked):
    if (kind, asked) == ("windows", "target_bound"):
        pytest.skip("no bound of windows is planned")
    check_least(capsys, kind, asked, "60")


@pytest.mark.part
def test_printed_epsilon_for_keys_is_the_smallest_that_meets_the_error_target(capsys):
    check_least(capsys, "keys", "target_error", "4000")


def check_least(capsys: pytest.CaptureFixture[str], kind: str, asked: str, error: str) -> None:
    found = planned(capsys, argv(KINDS[kind], **{asked: error}))["options"]
    epsilons = [option["epsilon"] for option in found]
    assert len(found) >= (1 if kind == "keys" else 2) and epsilons == sorted(epsilons)
    for option in {id(each): each for each in (found[0], found[-1])}.values():
        epsilon = option["epsilon"]
        # As it is printed, in at most four digits.
        again = planned(capsys, argv(KINDS[kind], epsilon=f"{epsilon:g}"))["options"]
        reached = next(each for each in again if key(each) == key(option))
        assert error_of(reached, asked) == error_of(option, asked) <= float(error)
        digits = f"{epsilon:.3e}".partition("e")
        less = f"{int(digits[0].replace('.', '')) - 1}e{int(digits[2]) - 3}"
        again = planned(capsys, argv(KINDS[kind], epsilon=less))["options"]
        missed = next(each for each in again if key(each) == key(option))
        assert error_of(missed, asked) > float(error)


@pytest.mark.parametrize("error", [1e-9, 0.3, 0.00012345, 7.0, 1.99999e6])
@pytest.mark.parametrize("power", [0.3, 1.0, 3.0])
def test_search_finds_smallest_epsilon_to_four_significant_digits(error, power):
    tried = []

    def plan(epsilon: float) -> float:
        tried.append(epsilon)
        return epsilon**-power

    found = least_epsilon(plan, lambda each: each, error)
    exact = error ** (-1 / power)
    if exact > 1e6:
        assert found.epsilon is None and found.error == 1e6**-power
        return
    assert found.epsilon is not None and found.epsilon == float(f"{found.epsilon:.3e}")
    assert found.error == found.epsilon**-power <= error
    assert max(exact, 1e-6) * (1 - 1e-12) <= found.epsilon <= max(exact, 1e-6) * 1.001
    assert len(tried) == len(set(tried)) < 40


def test_search_skips_refused_epsilons_and_unreachable_errors():
    found = least_epsilon(lambda epsilon: 5 + 1 / epsilon, lambda each: each, 5.0)
    assert (found.epsilon, found.error) == (None, 5 + 1e-6)
    # As of a histogram that does not fit once epsilon is large, or noise that is too large.
    found = least_epsilon(
        lambda epsilon: epsilon, lambda each: 1 / each if 0.5 < each < 50 else math.inf, 0.2
    )
    assert found.epsilon == 5.0
    nothing = least_epsilon(lambda epsilon: epsilon, lambda each: math.inf, 0.2)
    assert nothing.epsilon is None and nothing.error == math.inf


@pytest.mark.part
def test_printed_least_error_is_reachable(capsys):
    assert main(argv(TABLE, target_bound="1e-6")) == 2
    _, _, told = capsys.readouterr().err.partition("must be at least ")
    floor, _, _ = told.partition(" records: ")
    assert planned(capsys, argv(TABLE, target_bound=floor))["options"]


@pytest.mark.part
def test_printed_command_has_least_epsilon(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    best = planned(capsys, argv(TABLE, target_error="60"))["options"][0]
    assert main(argv(TABLE, target_error="60")) == 0
    out = capsys.readouterr().out
    command = shlex.split(out.splitlines()[-1])
    assert command[command.index("--epsilon") + 1] == f"{best['epsilon']:g}"
    assert "is at most 60 records" in " ".join(out.split())
