"""The ranking of what answers sparse queries, its table and its command lines."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import shlex

import pytest

from beam_dp.cli.main import main
from beam_dp.mechanisms.online.sparse_mw import SparseMWPlan
from beam_dp.mechanisms.sketches.errors import KeyProfile, sparse_error
from beam_dp.planning.job import SparsePlanningJob
from beam_dp.planning.ranking import rank_sparse_mechanisms
from beam_dp.privacy.guarantee import Guarantee
from pipelines import answer_queries, release_projection

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
    profile = KeyProfile(300_000, 4_000, 575)
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
        job = SparsePlanningJob(
            Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1),
            KeyProfile(300_000, 4_000, 575),
            50,
            max_size=int(size),
        )
        best = rank_sparse_mechanisms(job).best
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
def test_histograms_that_do_not_fit_are_refused(capsys):
    words = ["--delta", "1e-6", "--num_records", "4000000", "--max_sparsity", "5", "--size", "64"]
    given = ["plan", *words, "--num_keys", "4000", "--largest_count", "1000", *PROMISE]
    assert main(given) == 0
    assert "3 other mechanisms cannot do this job; --all explains why" in capsys.readouterr().out
    assert main([*given, "--all"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "histogram: not possible: its keys do not fit into 64 numbers" in told
    assert "sparse_mw: not possible: --num_questions must be given" in told


@pytest.mark.part
def test_sketch_table_states_job_and_command(capsys):
    assert main(["plan", *ASKED, *PROFILE, *PROMISE, *DELTA]) == 0
    out = capsys.readouterr().out
    table, _, command = out.rpartition("beam-dp ")
    told = " ".join(table.split())
    assert "Queries of up to 50 keys; 300,000 records (private, a guess), 4,000 keys" in told
    assert "Answering 0 to every query would err by" in told
    assert command.startswith("release-projection --input INPUT --key KEY")


@pytest.mark.part
def test_bound_of_projections_grows_with_number_of_queries():
    promise = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    profile = KeyProfile(300_000, 300_000, 1)
    bounds = []
    for number in (None, 1000):
        job = SparsePlanningJob(promise, profile, 50, max_size=2**16, num_questions=number)
        assert job.num_bounded == (number or 1)
        options = {
            option.mechanism: option
            for option in rank_sparse_mechanisms(job).options
            if option.mechanism != "count_sketch"
        }
        option = options["sparse_project"]
        assert 2 * option.expected_error < option.bound.max_error < 8 * option.expected_error
        assert str(f"{job.num_bounded:,}") in option.note
        assert options["hybrid"].bound is None and options["stability_histogram"].bound is None
        bounds.append(option.bound.max_error)
    assert bounds[0] < bounds[1]
