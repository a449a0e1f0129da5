"""Window tables on disk: round trips, and rejected files."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pytest
from damaged_files import refusal_of
from window_examples import GAUSSIAN, block_of, window_of

from beam_dp.cli.main import main
from beam_dp.errors import InputError
from beam_dp.releases.files.avro import write_records
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.kinds import read_release, release_from_bytes, release_to_bytes, write_release
from beam_dp.releases.windows.files import TABLE_SCHEMA
from beam_dp.releases.windows.release import WindowTables


def assert_same(one: Any, other: Any) -> None:
    assert isinstance(other, WindowTables)
    for name in ("draw_id", "guarantee", "horizon_id", "level", "number", "start", "end",
                 "workload", "measured", "plan", "versions"):  # fmt: skip
        assert getattr(one, name) == getattr(other, name)
    assert set(one.tables) == set(other.tables)
    for names, table in one.tables.items():
        np.testing.assert_array_equal(table, other.tables[names])


@pytest.mark.parametrize("release", [window_of(), window_of(**GAUSSIAN), block_of(2)], ids=repr)
def test_window_tables_round_trip_through_files(release, tmp_path):
    write_release(release, tmp_path)
    assert_same(release, read_release(tmp_path))
    assert_same(release, release_from_bytes(release_to_bytes(release)))


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


def refusal(folder: pathlib.Path, **changes: Callable[[Any], Any]) -> str:
    return refusal_of(window_of(**GAUSSIAN), "tables", folder, **changes)


def noise(card: dict[str, Any], **changes: Any) -> None:
    card["noise"][-1].update(changes)


OWN = [["age", "member"], ["getting in/out of bed"]]


def asked(*marginals: list[str]) -> dict[str, Any]:
    return {"marginals": list(marginals), "weights": [1.0] * len(marginals)}


def many_attributes(card: dict[str, Any]) -> None:
    """A marginal with one cell, which contains 2^100 others."""
    names = [f"a{number}" for number in range(100)]
    one = {"type": "integer", "min": 0, "max": 0}
    card["domain"]["attributes"] += [{"name": name, **one} for name in names]
    card["workload"] = asked(*OWN, names)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda card: card.update(mechanism="mwem"), "mechanism = 'mwem'"),
        (lambda card: card.update(horizon_id="../" * 10), "32 hexadecimal digits"),
        (lambda card: card.update(level="day"), "must be 'window' or 'block'"),
        (lambda card: card.update(number=-1), "number = -1"),
        (lambda card: card.update(number=2**20), "number = "),
        (lambda card: card.update(number=True), "number = True"),
        (lambda card: card.update(number="1"), "of type int"),
        (lambda card: card.update(end=card["start"]), "end = "),
        (lambda card: card.update(start=10**400), "end = "),
        (lambda card: card["domain"].clear(), "domain"),
        (
            lambda card: card.update(workload=asked(["member"])),
            "a table that its card does not name",
        ),
        (lambda card: card.update(workload=asked(["hours"], *OWN)), "one of each marginal"),
        (lambda card: card["workload"].update(marginals=[["x"]]), "known are"),
        (lambda card: card["guarantee"].update(epsilon=0), "epsilon"),
        (lambda card: card.update(noise=[3]), "must have exactly the fields"),
        (lambda card: card.update(noise=[]), "must measure every marginal"),
        (lambda card: card["noise"].pop(0), "must measure every marginal"),
        (lambda card: noise(card, attributes=["hours"]), "must measure every marginal"),
        (lambda card: noise(card, attributes=[["hours"]]), "must be a list of names"),
        (lambda card: noise(card, attributes=["member", "age"]), "in domain order"),
        (lambda card: noise(card, measured="cells"), "must be 'table' or 'residual'"),
        (lambda card: noise(card, distribution="uniform"), "must be 'discrete_laplace' or"),
        (lambda card: noise(card, scale=0), "scale = 0"),
        (lambda card: noise(card, scale=10**400), "scale = "),
        (lambda card: noise(card, scale=1e-200), "is damaged"),
        (lambda card: noise(card, scale=1e200), "is damaged"),
        (lambda card: noise(card, scale=7.0), "must be that of the card's noise"),
        (lambda card: noise(card, grid=0), "grid = 0"),
        (lambda card: noise(card, grid=2**62), "must be that of the card's noise"),
        (many_attributes, "sets of attributes inside its marginals: must be at most 2^20"),
        (lambda card: card.update(files={"a": {}}), "files"),
        (lambda card: card.update(versions={"a": 1}), "versions"),
        (lambda card: card.pop("parameters"), "parameters"),
    ],
)
def test_rejects_hostile_card(tmp_path, change, message):
    assert message in refusal(tmp_path, change_card=change)


def test_rejects_too_many_measurements():
    release = window_of(**GAUSSIAN)
    with pytest.raises(InputError, match=r"noise: .* inside what is measured: must be at most 2"):
        dataclasses.replace(release, measured=release.measured * 2**18)


def rows_of(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[bytes], bytes]:
    """Returns the file with changed rows."""
    release = window_of(**GAUSSIAN)

    def changed(_: bytes) -> bytes:
        rows: list[dict[str, Any]] = [
            {
                "attributes": list(names),
                "shape": list(table.shape),
                "values": table.copy(),
                "variance": release.variance(names),
            }
            for names, table in release.tables.items()
        ]
        change(rows)
        return write_records(TABLE_SCHEMA, release.draw_id, "tables", rows)

    return changed


def test_refusal_helper_fails_for_unchanged_rows(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        refusal(tmp_path, change_data=rows_of(lambda rows: None))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.pop(), "one of each marginal"),
        (lambda rows: rows.append(rows[0]), "a table twice"),
        (lambda rows: rows[0].update(attributes=["hours"]), "a table that its card does not name"),
        (lambda rows: rows[0].update(shape=[8, 1]), "another shape than its domain"),
        (lambda rows: rows[0].update(values=np.zeros(7)), "another shape than its domain"),
        (lambda rows: rows[0]["values"].fill(np.nan), "not finite"),
        (lambda rows: rows[0]["values"].fill(np.inf), "not finite"),
        (lambda rows: rows[0].update(variance=np.nan), "that of the card's noise"),
        (lambda rows: rows[0].update(variance=1.0), "that of the card's noise"),
    ],
)
def test_rejects_hostile_file(tmp_path, change, message):
    assert message in refusal(tmp_path, change_data=rows_of(change))


def test_any_damage_to_the_file_raises_release_error():
    release = window_of(**GAUSSIAN)
    data = release_to_bytes(release)
    start = len(data) - 900
    for place in range(start, len(data), 3):
        with pytest.raises(ReleaseError):
            release_from_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        with pytest.raises(ReleaseError):
            release_from_bytes(data[:place])


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
