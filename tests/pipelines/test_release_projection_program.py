"""The program that releases projections, and the command that asks them: files in, lines out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jobs import key_flags
from pytest import CaptureFixture

from beam_dp.cli import main as cli
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.releases.kinds import read_release
from beam_dp.releases.sketches.release import SparseRelease
from pipelines.release_projection import main, parse_arguments

NUMBERS = [i % 50 for i in range(2000)]  # 40 records of each key


def flags(folder: Path, **named: Any) -> list[str]:
    return key_flags(folder, **{"size": "65536", **named})


def answer(folder: Path, capfd: CaptureFixture[str], lines: str, name: str = "keys.txt") -> Any:
    """What `beam-dp answer --sparse` says of a file, as JSON; or its error."""
    (folder / name).write_text(lines, encoding="utf-8")
    capfd.readouterr()
    code = cli.main(["answer", str(folder / "out"), "--sparse", str(folder / name), "--json"])
    out, err = capfd.readouterr()
    if code == 0:
        return json.loads(out)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", err), err
    return err


@pytest.mark.job
@pytest.mark.parametrize("file_format", ["parquet", "csv", "avro"])
def test_release_answers_queries_in_files(tmp_path, capfd, file_format):
    assert main(flags(tmp_path, file_format=file_format)) == 0
    out, _ = capfd.readouterr()
    assert "beam-dp answer" in out
    found = answer(tmp_path, capfd, "plane 3\nplane 4\t0.5\nplane 99\n")
    assert found["num_elements"] == 3
    assert found["value"] == pytest.approx(60, abs=1)
    found = answer(tmp_path, capfd, '{"sparse": {"plane 3": 1}}', "query.json")
    assert found["value"] == pytest.approx(40, abs=1)
    assert cli.main(["describe", str(tmp_path / "out")]) == 0
    out, _ = capfd.readouterr()
    assert "count_sketch" in out and "keys of plane" in out and "type of keys" in out
    assert cli.main(["describe", str(tmp_path / "out"), "--json"]) == 0


@pytest.mark.job
@pytest.mark.parametrize(
    ("keys", "key_type", "line"),
    [
        (pa.array(NUMBERS), "integer", "3"),
        (pa.array([b"p%d" % number for number in NUMBERS]), "bytes", "p3"),
        (pa.array([2**64 - 1 - number for number in NUMBERS], pa.uint64()), "integer", None),
    ],
)
def test_keys_have_the_declared_type(tmp_path, capfd, keys, key_type, line):
    assert main(flags(tmp_path, keys=keys, key_type=key_type)) == 0
    found = answer(tmp_path, capfd, f"{2**64 - 4 if line is None else line}\n")
    assert found["value"] == pytest.approx(40, abs=1)


@pytest.mark.job
@pytest.mark.parametrize("mechanism", ["stability_histogram", "hybrid"])
def test_lists_frequent_keys_in_words(tmp_path, capfd, mechanism):
    more: dict[str, str | None] = {"mechanism": mechanism, "list_keys": "true"}
    if mechanism == "stability_histogram":
        more |= {"size": None}
    argv = [each.removesuffix("=true") for each in flags(tmp_path, **more)]
    assert main(argv) == 0
    release = read_release(tmp_path / "out", kind=SparseRelease)
    assert dict(release.listed_keys()) == pytest.approx(
        {f"plane {number}": 40 for number in range(50)}, abs=1
    )
    assert cli.main(["verify", str(tmp_path / "out")]) == 0
    capfd.readouterr()
    assert cli.main(["describe", str(tmp_path / "out")]) == 0
    out, _ = capfd.readouterr()
    assert re.search(r"^plane \d+ +40 +0[.]0\d+$", out, re.MULTILINE) and "and 30 more" in out
    assert answer(tmp_path, capfd, "plane 3\nplane 99\n")["value"] == pytest.approx(40, abs=1)


def test_refuses_keys_that_no_record_can_have(tmp_path, capfd):
    assert main(flags(tmp_path, keys=pa.array([[1]] * 9))) == 2
    assert "key: 'plane' is not valid" in capfd.readouterr().err


def test_preview_shows_the_bound_on_noise(tmp_path):
    job = parse_arguments(flags(tmp_path, epsilon="1", mechanism="sparse_project"))
    stated = job.card()["parameters"]["bound"]
    told = job.facts()["noise"]
    assert f"at most {stated['noise']:.3g} to an answer, with probability 97.5 %" in told
    assert "noise" not in parse_arguments(flags(tmp_path, mechanism="count_sketch")).facts()


@pytest.mark.job
def test_release_with_a_histogram_spends_delta(tmp_path, capfd):
    url = str(tmp_path / "ledger.sqlite")
    ledger = Ledger(url)
    ledger.declare("flights", 50.0, 3e-9, "record", "add_or_remove_one")
    shape = {"num_records": "2000", "num_keys": "50", "largest_count": "40"}
    paid: dict[str, str | None] = {
        "ledger": url,
        "dataset_id": "flights",
        "mechanism": "auto",
        "epsilon": "5",
        "size": "512",
        **shape,
    }
    assert main(flags(tmp_path, **paid)) == 0
    (entry,) = ledger.entries("flights")
    release = read_release(tmp_path / "out")
    assert isinstance(release, SparseRelease) and release.histogram is not None
    assert release.plan["ledger_release"] == entry.release_id
    assert entry.loss.slack == 1e-9 and entry.state == "released"

    # Half of delta is kept for histograms: no second one, and `auto` takes what else fits.
    second = flags(
        tmp_path,
        **{**paid, "mechanism": "stability_histogram", "size": None} | dict.fromkeys(shape),
        output=str(tmp_path / "second"),
    )
    capfd.readouterr()
    assert main(second) == 2
    assert capfd.readouterr().err == (
        "error: --delta: 1e-09 is not valid: must fit 'flights', which leaves at most epsilon 45,"
        " delta 5e-10 for a release that is private except with some probability; largest releases:"
        " flights/1 (stability_histogram, epsilon 5)\n"
    )
    assert len(ledger.entries("flights")) == 1 and not (tmp_path / "second").exists()
    output = str(tmp_path / "second")
    assert main([*flags(tmp_path, output=output, **paid), "--validate_only", "--json"]) == 0
    card = json.loads(capfd.readouterr().out)
    assert card["mechanism"] == "count_sketch"
    assert {"stability_histogram", "hybrid_sketch"}.isdisjoint(
        choice["mechanism"] for choice in card["choices"]
    )
