"""SmallDB by the command line: whole releases, payment, answers, refusals."""

import json
import re

import numpy as np
import pytest
from jobs import job_flags, people, released_records

import beam_dp as dp
from beam_dp.cli.main import main as beam_dp_command
from pipelines.release_synthetic_database import main

SMALL = {"mechanism": "small_db", "workload": "prefixes:age", "delta": "0"}


@pytest.mark.job
def test_release_answers_prefixes(tmp_path, capsys):
    assert main(job_flags(tmp_path, **SMALL, size="20", num_records="500")) == 0
    assert len(released_records(tmp_path / "out")) == 20
    release = dp.read_release(tmp_path / "out")
    ages = np.minimum(people()["age"].to_numpy(), 99)
    exact = [(ages < edge).sum() for edge in (20, 40, 60, 100)]
    answers = release.answer_queries(release.queries)
    assert [each.value for each in answers] == pytest.approx(exact, abs=500 / 40 + 1)
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"prefix": {"attribute": "age", "high": 40}}\n')
    capsys.readouterr()
    assert (
        beam_dp_command(["answer", str(tmp_path / "out"), "--queries", str(queries), "--json"]) == 0
    )
    (told,) = json.loads(capsys.readouterr().out)
    assert told["value"] == answers[1].value and told["bound"] == answers[1].bound
    assert beam_dp_command(["describe", str(tmp_path / "out")]) == 0
    described = " ".join(capsys.readouterr().out.split())
    assert "records 500 (public)" in described
    assert "released 20 records; answers are scaled to all records" in described


@pytest.mark.job
@pytest.mark.parametrize("sampler", ["search", "auto"])
def test_warns_that_search_time_depends_on_records(tmp_path, capsys, sampler):
    argv = job_flags(tmp_path, **SMALL, size="3", epsilon="1", num_records="500", sampler=sampler)
    assert main(argv) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(warned) == (sampler == "search")
    assert all("--sampler search" in line and "depends on the records" in line for line in warned)


@pytest.mark.job
def test_page_and_card_show_the_vc_dimension(tmp_path, capsys):
    flags = job_flags(tmp_path, **SMALL, size="3", num_records="500")
    assert main([*flags, "--validate_only"]) == 0
    assert re.search(r"vc dimension +1, by the form of the queries", capsys.readouterr().out)
    assert main([*flags, "--validate_only", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["parameters"]
    assert (told["vc_dimension"], told["vc_dimension_by"]) == (1, "products")
    assert main(flags) == 0
    assert dp.read_release(tmp_path / "out").plan["vc_dimension_at_least"] == 1
