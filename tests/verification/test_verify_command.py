"""The command `beam-dp verify`."""

import json
import pathlib
import shutil
from typing import Any

import pytest
from verification.kinds_of_releases import Change, edit

from beam_dp.cli.main import main
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.verification.verdict import Figures

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"


def change_card(folder: pathlib.Path, change: Change) -> None:
    """Copies interval counts to ``out``, and changes their card."""
    shutil.copytree(GOLDEN / "intervals", folder / "out")
    edit(folder / "out" / "card.json", change)


def test_shows_formula_theorem_and_numbers_of_each_step(capsys):
    assert main(["verify", str(GOLDEN / "hybrid_sketch")]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.split())
    for expected in (
        "what count keys above a threshold",
        "formula epsilon = L1 sensitivity / scale; delta = P(key of one unit)",
        "theorem Korolova and others (2009)",
        "numbers 6 / 20 = epsilon 0.3; P(a key of one unit >= 418) = 9.97956e-10",
        "numbers 0.7 + 0.3 = epsilon 1 at delta 1e-09, of which 9.97956e-10 is used up",
        "where sensitivity how much one unit can change the measured values",
        "holds: epsilon 1 at delta 1e-09, where 1 was promised; 13 figures",
    ):
        assert expected in words


def test_verify_exits_with_1_and_shows_the_true_epsilon_if_the_promise_fails(tmp_path, capsys):
    change_card(tmp_path, lambda card: card["noise"].update(scale=card["noise"]["scale"] / 3))
    assert main(["verify", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr().out
    words, last = " ".join(shown.split()), shown.splitlines()[-1]
    assert "epsilon 3, 3 times as much" in words
    assert last == "does not hold: epsilon 3 at delta 1e-09, where 1 was promised"


def test_verifies_all_windows_of_a_horizon(capsys):
    assert main(["verify", str(GOLDEN / "horizon"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] and found["kind"] == "horizon" and found["epsilon"] == 1.0
    assert [step["epsilon"] for step in found["steps"]] == pytest.approx([0.99, 0.01])


def test_rejects_a_file_with_another_checksum(tmp_path, capsys):
    shutil.copytree(GOLDEN / "intervals", tmp_path / "out")
    (payload,) = (tmp_path / "out").glob("*.avro")
    data = bytearray(payload.read_bytes())
    data[-30] ^= 1
    payload.write_bytes(data)
    assert main(["verify", str(tmp_path / "out")]) == 2
    assert "does not have the checksum of its card" in capsys.readouterr().err


def test_shows_inconsistent_figures(tmp_path, capsys):
    def change(card: dict[str, Any]) -> None:
        card["errors"]["mean_squared_error"] *= 1 + 1e-7

    change_card(tmp_path, change)
    assert main(["verify", str(tmp_path / "out")]) == 1
    words = " ".join(capsys.readouterr().out.split())
    assert "the card says 91.4129645521, the rest of it fits 91.4129554108" in words
    assert words.endswith("but some figures of the card are wrong")


def test_names_values_of_enumerations_as_the_card_does():
    figures = Figures()
    figures.equal("neighboring", Neighboring.REPLACE_ONE, Neighboring.ADD_OR_REMOVE_ONE)
    (fault,) = figures.faults
    assert "the card says 'replace_one', the rest of it fits 'add_or_remove_one'" in fault
