"""The code that the tutorials in `examples/` share, and their table."""

from __future__ import annotations

import pathlib
import runpy
from typing import Any

import pytest

import beam_dp as dp

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="module")
def story_class() -> Any:
    return runpy.run_path(str(EXAMPLES / "story.py"))["Story"]


def test_example_visits_are_reproducible_and_in_their_domain():
    made = runpy.run_path(str(EXAMPLES / "visits.py"))
    table = made["visits"]()
    assert table.equals(made["visits"]())
    visits_of_a_person = table.group_by("person_id").aggregate([([], "count_all")])
    assert max(visits_of_a_person["count_all"].to_pylist()) == made["MAX_VISITS"]
    domain = dp.parse_domain(made["DOMAIN"])
    # So large an epsilon that no noise hides a record that was left out.
    guarantee = dp.Guarantee(1e4, 1e-9, "add_or_remove_one", "person_id", made["MAX_VISITS"])
    release = dp.release(table, domain, dp.marginals(domain, ways=1), guarantee)
    assert release.num_records == table.num_rows


def test_example_prints_the_commands_it_runs(story_class, tmp_path, capsys):
    def ask(number: int) -> int:
        """Is not shown."""
        if number:
            number += 1
        return number

    story = story_class(tmp_path / "told")
    assert story.python(ask, 2) == 3
    assert capsys.readouterr().out == "\n>>> if number:\n...     number += 1\n"
    assert story.run("beam-dp descrbe x", code=2).startswith("error: ")
    assert capsys.readouterr().out.startswith("\n$ beam-dp descrbe x\n    error: ")


def test_example_stops_after_an_unexpected_exit_code(story_class, tmp_path):
    with pytest.raises(SystemExit, match="exit code 2; 0 was expected"):
        story_class(tmp_path / "told").run("beam-dp descrbe x")


def test_example_starts_in_an_empty_folder(story_class, tmp_path):
    (tmp_path / "mine").write_text("kept")
    story_class(tmp_path / "told").folder.joinpath("old").write_text("")
    assert list(story_class(tmp_path / "told").folder.iterdir()) == []
    assert (tmp_path / "mine").exists()
