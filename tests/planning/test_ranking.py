"""The ranking of mechanisms for a job, the commands that it prints, least epsilons, and windows."""

import contextlib
import functools
import io
import json
import math
import shlex
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from noise_sources import Seeded
from plan_words import KINDS, QUERIES, TABLE, WINDOWS, argv
from tiny import ADD, domain_of, promise, workload_of

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.files import domain_from_json
from beam_dp.flags.command_line import import_program
from beam_dp.mechanisms.intervals import plan_intervals, release_intervals
from beam_dp.mechanisms.linear_answers import WorkloadAnswersPlan
from beam_dp.mechanisms.online.sparse_mw import SparseMWPlan
from beam_dp.mechanisms.registry import SYNTHETIC
from beam_dp.mechanisms.resources import fit_resources
from beam_dp.mechanisms.sketches.errors import sparse_error
from beam_dp.planning.intervals import PLANNER, asked_intervals
from beam_dp.planning.ranking import Ranking, least_epsilon
from beam_dp.queries.linear import Explicit
from pipelines import answer_queries, release_projection, release_windows

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
        error = plan.parameters.predicted_cell_error  # of a cell, on average over these attributes
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
    assert "one ordered attribute" in str(PLANNER.plan(job).refusal)
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
    has_queries = form in ("intervals:a", "a file")
    answers = {"laplace_answers", "gaussian_answers"} if has_queries else set()
    intervals = {"intervals"} if form == "intervals:a" else set()
    too_large = {"small_db"} if form == "tables" else set()
    approximate = {"gaussian", "gaussian_answers"} if delta == "0" else set()
    expected = {*SYNTHETIC, "private_mw", *answers, *intervals}
    assert accepted == expected - too_large - approximate


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
    option = PLANNER.plan(job)
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
    option = PLANNER.plan(intervals_job(spec))
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


# Commands of `beam-dp plan` for query counts, windows and keys.


# `beam-dp plan --target_error` without a workload: how many queries may be asked.


def planned_counts(capsys: pytest.CaptureFixture[str], **given: str | None) -> dict[str, Any]:
    assert main(argv(QUERIES, "--json", **given)) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_query_counts_depend_on_cells_and_on_a_public_number(capsys):
    domain = planned_counts(capsys, num_cells=None, domain='{"a": 32, "b": 32}')
    assert domain == planned_counts(capsys)
    found = {(each["mechanism"], each["calibration"]): each for each in domain["options"]}
    assert found["small_db", "textbook"]["num_queries"] == 7396
    assert found["private_mw", "tight"]["num_queries"] == 126
    assert "1,024 cells" in found["small_db", "textbook"]["assumes"]
    assert found["sparse_mw", "tight"]["refusal"] == "max_sparsity must be given"
    public = planned_counts(capsys)["options"]
    private = planned_counts(capsys, neighboring=ADD)["options"]
    of = [{(o["mechanism"], o["calibration"]): o for o in each} for each in (public, private)]
    for key, option in of[1].items():
        if option["refusal"] is None and key[0] in ("small_db", "mwem"):
            assert "a public number of records" in option["assumes"]
    tight = "private_mw", "tight"
    assert of[1][tight]["num_queries"] < of[0][tight]["num_queries"]


# `beam-dp plan --windows`: the ways to measure windows, and what is refused in which words.


GIVEN = {**WINDOWS, "grace": "30m", "epsilon": "1", "delta": "1e-9"}


def words(*more: str, **changed: str | None) -> list[str]:
    return argv(GIVEN, *more, **{"neighboring": None, **changed})


def test_json_lists_all_options_and_the_promise(capfd):
    asked = words(questions="one,trailing:12", block="10", protected_windows="24")
    assert main([*asked, "--json", "--neighboring", "add_or_remove_one"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["worst_case"]["periods"] == 7
    assert [set(option["errors"]) for option in found["options"]] == [{"one", "trailing:12"}] * 2
    assert {option["strategy"] for option in found["options"]} == {"independent"}
    assert main([*words(block="10", num_windows="20", protected_windows="20"), "--json"]) == 0
    sizes = {option["block"] for option in json.loads(capfd.readouterr().out)["options"]}
    assert {None, 2, 10} <= sizes
    limits = ("max_records_per_unit", "max_windows_per_unit", "protected_windows")
    assert main(words("--json", privacy_unit="record", **dict.fromkeys(limits))) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["promise"].startswith("a record counts in one window")


@pytest.mark.parametrize(
    "changed",
    [{}, {"max_windows_per_unit": "1"}, {"delta": "0"}, {"epsilon": None, "target_error": "60"}],
)
def test_printed_command_runs_the_best_ranked_strategy(tmp_path, capfd, changed):
    columns = {"a": [1], "person_id": [2], "t": [3]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    places = {"input": f"{tmp_path}/*.parquet", "event_time": "t", "output": f"{tmp_path}/out"}
    asked = words(**changed, **places, questions="one,trailing:24")
    assert main([*asked, "--json"]) == 0
    best = json.loads(capfd.readouterr().out)["options"][0]
    assert main(asked) == 0
    program, command, *flags = shlex.split(capfd.readouterr().out.splitlines()[-1])
    assert (program, command) == ("beam-dp", "release-windows")
    stream = "--runner=PortableRunner", "--job_endpoint=embed"  # local runners run none
    job = release_windows.parse_arguments([*flags, *stream])
    assert job.plan.public["strategy"] == best["strategy"]
    assert job.plan.measurements[0].distribution == best["distribution"]
    assert job.horizon.block == best["block"]
    assert job.plan.guarantee.epsilon == best.get("epsilon", 1.0)
    assert job.source().pattern == places["input"] and job.times == ("t", "file_time")


PROFILE = ("--num_records", "300000", "--num_keys", "4000", "--largest_count", "575")
PROMISE = ("--epsilon", "1", "--neighboring", "add_or_remove_one", "--privacy_unit", "record")
ASKED = ("--max_sparsity", "50", "--num_questions", "20", "--size", "65536")
WITH_DELTA = ("--delta", "1e-9")


@functools.cache
def printed(*more: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["plan", *ASKED, *PROFILE, *PROMISE, *more, "--json"]) == 0
    return out.getvalue()


def ranked_for_keys(*more: str) -> dict:
    return json.loads(printed(*more))


@pytest.mark.part
def test_ranks_every_sparse_mechanism_by_least_error():
    found = ranked_for_keys(*WITH_DELTA)
    options = found["options"]
    sketches = {"count_sketch", "sparse_project", "stability_histogram", "hybrid"}
    assert {option["mechanism"] for option in options} == {*sketches, "sparse_mw"}
    errors = [o["expected_error"] for o in options if o["expected_error"] is not None]
    assert errors == sorted(errors) and len(errors) == 5
    assert all(0 < o["error_of_one"] < o["expected_error"] for o in options[:5])
    assert all(option["size"] <= 65536 for option in options[:5])
    assert errors[0] < found["error_of_nothing"]


@pytest.mark.part
def test_programs_accept_printed_sketch_commands(tmp_path):
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"sparse": {"a": 1}}\n')
    profile = dp.KeyProfile(300_000, 4_000, 575)
    for option in ranked_for_keys(*WITH_DELTA)["options"]:
        words = shlex.split(option["command"])
        assert words[:2] == ["beam-dp", option["program"].replace("_", "-")]
        words = [str(queries) if word == "QUERIES" else word for word in words[2:]]
        if option["mechanism"] == "sparse_mw":
            plan = answer_queries.parse_arguments(words).plan
            assert isinstance(plan, SparseMWPlan)
            assert (plan.max_sparsity, plan.num_questions, plan.num_records) == (50, 20, "noisy")
            bound = plan.settle(300_000).hypothesis_bound
            assert option["bound"]["max_error"] >= bound
            continue
        plan = release_projection.parse_arguments(words).plan
        law = sparse_error(plan, profile)
        assert law.error(50) == pytest.approx(option["expected_error"])
        assert law.error(1) == pytest.approx(option["error_of_one"])
        is_pure = plan.loss.kind == "pure" and not plan.loss.slack
        assert is_pure == option["is_pure"]


@pytest.mark.part
def test_auto_mechanism_chooses_the_best_ranked_sketch():
    for size in ("256", "1000000"):  # two sketches
        job = dp.SparsePlanningJob(
            dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1),
            dp.KeyProfile(300_000, 4_000, 575),
            50,
            max_size=int(size),
        )
        best = dp.rank_sparse_mechanisms(job).best
        words = ["--input", "INPUT", "--key", "KEY", "--max_sparsity", "50", "--size", size]
        words += [*PROFILE, *PROMISE, *WITH_DELTA, "--mechanism", "auto", "--output", "OUTPUT"]
        choices = release_projection.parse_arguments(words).choices
        assert best is not None
        assert choices[0]["error"] == best.expected_error
        assert choices[0]["size"] == best.size


def test_sketches_that_need_delta_are_refused_without_delta():
    options = ranked_for_keys("--delta", "0")["options"]
    possible = [o["mechanism"] for o in options if o["refusal"] is None]
    assert possible == ["count_sketch", "sparse_mw"]
    assert {o["refusal"] for o in options if o["refusal"]} == {"it needs a delta above 0"}
    assert all(o["command"] is None for o in options if o["refusal"])


@pytest.mark.part
def test_bound_of_projections_grows_with_number_of_queries():
    promise = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    profile = dp.KeyProfile(300_000, 300_000, 1)
    bounds = []
    for number in (None, 1000):
        job = dp.SparsePlanningJob(promise, profile, 50, max_size=2**16, num_questions=number)
        assert job.num_bounded == (number or 1)
        options = {
            option.mechanism: option
            for option in dp.rank_sparse_mechanisms(job).options
            if option.mechanism != "count_sketch"
        }
        option = options["sparse_project"]
        assert 2 * option.expected_error < option.bound.max_error < 8 * option.expected_error
        assert str(f"{job.num_bounded:,}") in option.note
        assert options["hybrid"].bound is None and options["stability_histogram"].bound is None
        bounds.append(option.bound.max_error)
    assert bounds[0] < bounds[1]
