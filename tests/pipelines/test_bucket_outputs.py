"""Programs and `beam-dp` on folders of an object store, which a fake on loopback plays."""

import json
from collections.abc import Iterator

import pytest
from fake_google_storage import Answer, FakeGoogleStorage, serving
from jobs import breaks_later, job_flags, paid_by, refused_line

import beam_dp as dp
from beam_dp.cli.main import main as beam_dp
from pipelines import answer_queries, release_synthetic_database

OUT = "gs://releases/out"


@pytest.fixture
def service(monkeypatch) -> Iterator[FakeGoogleStorage]:
    with serving(monkeypatch) as served:
        yield served


@pytest.mark.job
def test_program_releases_into_a_bucket_and_beam_dp_reads_it(service, tmp_path, capsys):
    ledger, argv = paid_by(job_flags(tmp_path, output=OUT), tmp_path)
    assert release_synthetic_database.main(argv) == 0
    draw_id = dp.read_release(OUT).draw_id
    (entry,) = ledger.entries("people")
    assert (entry.state, entry.draw_id) == ("released", draw_id)
    assert [name.partition("-")[0] for name in service.names()] == [
        "out/card.json",
        "out/hypothesis",
        "out/measurements",
        "out/records",
    ]
    capsys.readouterr()
    assert beam_dp(["describe", OUT]) == 0
    assert "mwem" in capsys.readouterr().out
    assert beam_dp(["describe", OUT, "--json"]) == 0
    card = service.buckets["releases"].objects["out/card.json"][0]
    assert json.loads(capsys.readouterr().out) == json.loads(card)
    assert beam_dp(["answer", OUT, "--marginal", "sex"]) == 0
    assert "Female" in capsys.readouterr().out


@pytest.mark.part
def test_writes_answers_to_a_bucket_and_reads_them(service, tmp_path, capsys):
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"conjunction": {"sex": "Female"}}\n', encoding="utf-8")
    argv = job_flags(tmp_path, workload=None, queries=str(queries), output=OUT)
    assert answer_queries.main(argv) == 0
    assert f"1 answers, 0 refused: {OUT}\nEvery answer" in capsys.readouterr().out
    assert len(service.names()) == 2
    assert beam_dp(["describe", OUT]) == 0


@pytest.mark.job
def test_refuses_bucket_that_keeps_deleted_files_in_one_line(service, tmp_path, capfd):
    ledger, argv = paid_by(job_flags(tmp_path, output=OUT), tmp_path)
    service.buckets["releases"].settings = {}
    told = f"^error: --output: '{OUT}' is not valid: must be in a bucket that prevents"
    refused_line(release_synthetic_database.main, argv, capfd, told)
    assert ledger.entries("people") == [] and service.names() == []


@pytest.mark.job
def test_service_failure_ends_the_job_and_leaves_no_files(service, tmp_path, capfd, monkeypatch):
    ledger, argv = paid_by(job_flags(tmp_path, output=OUT), tmp_path)
    breaks_later(monkeypatch)

    def fail(method: str, path: str) -> None:
        if "rewriteTo" in path:
            raise Answer(403)

    service.before = fail
    assert release_synthetic_database.main(argv) == 1
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error")]
    assert "Google Cloud Storage says 403 Forbidden" in line
    assert [entry.state for entry in ledger.entries("people")] == ["submitted"]
    assert service.names() == []
