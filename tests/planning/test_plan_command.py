"""Commands of `beam-dp plan`: tables at 80 columns, query counts, and windows."""

import contextlib
import functools
import io
import json
import shlex
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plan_words import QUERIES, WINDOWS, argv
from tiny import ADD

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.mechanisms.online.sparse_mw import SparseMWPlan
from beam_dp.mechanisms.sketches.errors import sparse_error
from pipelines import answer_queries, release_projection, release_windows

# `beam-dp plan --target_error` without a workload: how many queries may be asked.


def planned(capsys: pytest.CaptureFixture[str], **given: str | None) -> dict[str, Any]:
    assert main(argv(QUERIES, "--json", **given)) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_query_counts_depend_on_cells_and_on_a_public_number(capsys):
    domain = planned(capsys, num_cells=None, domain='{"a": 32, "b": 32}')
    assert domain == planned(capsys)
    found = {(each["mechanism"], each["calibration"]): each for each in domain["options"]}
    assert found["small_db", "textbook"]["num_queries"] == 7396
    assert found["private_mw", "tight"]["num_queries"] == 126
    assert "1,024 cells" in found["small_db", "textbook"]["assumes"]
    assert found["sparse_mw", "tight"]["refusal"] == "max_sparsity must be given"
    public = planned(capsys)["options"]
    private = planned(capsys, neighboring=ADD)["options"]
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
    job = release_windows.parse_arguments(flags)
    assert job.plan.public["strategy"] == best["strategy"]
    assert job.plan.measurements[0].distribution == best["distribution"]
    assert job.horizon.block == best["block"]
    assert job.plan.guarantee.epsilon == best.get("epsilon", 1.0)
    assert job.source().pattern == places["input"] and job.times == ("t", "file_time")


PROFILE = ("--num_records", "300000", "--num_keys", "4000", "--largest_count", "575")
PROMISE = ("--epsilon", "1", "--neighboring", "add_or_remove_one", "--privacy_unit", "record")
ASKED = ("--max_sparsity", "50", "--num_questions", "20", "--size", "65536")
DELTA = ("--delta", "1e-9")


@functools.cache
def printed(*more: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["plan", *ASKED, *PROFILE, *PROMISE, *more, "--json"]) == 0
    return out.getvalue()


def ranked(*more: str) -> dict:
    return json.loads(printed(*more))


@pytest.mark.part
def test_ranks_every_sparse_mechanism_by_least_error():
    found = ranked(*DELTA)
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
    for option in ranked(*DELTA)["options"]:
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
        words += [*PROFILE, *PROMISE, *DELTA, "--mechanism", "auto", "--output", "OUTPUT"]
        choices = release_projection.parse_arguments(words).choices
        assert best is not None
        assert choices[0]["error"] == best.expected_error
        assert choices[0]["size"] == best.size


def test_sketches_that_need_delta_are_refused_without_delta():
    options = ranked("--delta", "0")["options"]
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
