"""Window tables on disk: round trips, and rejected files."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import fastavro
import numpy as np
import pytest
from window_examples import GAUSSIAN, block_of, window_of

from beam_dp.cli.main import main
from beam_dp.errors import InputError
from beam_dp.releases.kinds import write_release


def test_file_size_does_not_depend_on_counts(tmp_path):
    """Names and sizes must reveal nothing: only checksums and the draw differ."""
    sizes = set()
    for number in (1, 2):
        release = window_of(number)
        for names in release.tables:
            release.tables[names][...] *= 10.0 ** (9 * number)
        write_release(release, tmp_path / str(number))
        card, file = sorted((tmp_path / str(number)).iterdir())
        sizes.add((card.stat().st_size, file.stat().st_size))
    assert len(sizes) == 1


def test_any_avro_reader_reads_the_tables(tmp_path):
    release = window_of()
    write_release(release, tmp_path)
    (path,) = tmp_path.glob("tables-*.avro")
    with path.open("rb") as file:
        rows: list[Any] = list(fastavro.reader(file))
    assert [tuple(row["attributes"]) for row in rows] == list(release.workload)
    for row in rows:
        names = tuple(row["attributes"])
        table = np.array(row["values"]).reshape(row["shape"])
        np.testing.assert_array_equal(table, release.tables[names])
        assert row["variance"] == release.variance(names)


OWN = [["age", "member"], ["getting in/out of bed"]]


def test_rejects_too_many_measurements():
    release = window_of(**GAUSSIAN)
    with pytest.raises(InputError, match=r"noise: .* inside what is measured: must be at most 2"):
        dataclasses.replace(release, measured=release.measured * 2**18)


def test_describes_a_window(tmp_path, capsys):
    write_release(window_of(3), tmp_path / "window")
    assert main(["describe", str(tmp_path / "window")]) == 0
    text = capsys.readouterr().out
    for part in (
        "3, 2026-11-23T03:00:00Z to", "2026-11-23T04:00:00Z", "epsilon 1, delta 1e-09",
        "a record", "a noisy count, standard error", "age, member", "discrete Laplace",
        "strategy", "independent", "0123456789abcdef",
    ):  # fmt: skip
        assert part in text, part
    write_release(block_of(2), tmp_path / "block")
    assert main(["describe", str(tmp_path / "block")]) == 0
    assert "2026-11-23T10:00:00Z" in capsys.readouterr().out


def test_command_line_answers_from_a_window(tmp_path, capsys):
    release = window_of()
    write_release(release, tmp_path / "window")
    assert main(["answer", str(tmp_path / "window"), "--marginal", "member", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(answer["records"], release.tables["age", "member"].sum(axis=0))
    assert answer["standard_error"] > 0 and answer["bound"] > answer["standard_error"]
    (tmp_path / "queries").write_text('{"conjunction": {"member": true}}\n')
    queries = str(tmp_path / "queries")
    assert main(["answer", str(tmp_path / "window"), "--queries", queries, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["value"] == pytest.approx(answer["records"][1])
    assert found["standard_error"] == pytest.approx(answer["standard_error"])
    assert main(["answer", str(tmp_path / "window"), "--marginal", "hours"]) == 2
    line = capsys.readouterr().err
    assert "marginal: 'hours' is not valid: must lie inside a marginal of the release" in line
    assert main(["answer", str(tmp_path / "window"), "--quantile", "0.5"]) == 2
