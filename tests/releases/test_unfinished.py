"""A commit that was killed between its card and its payload: whoever looks is told what helps."""

from __future__ import annotations

import pathlib
import re
import shlex
from collections.abc import Callable, Sequence

import pytest
from jobs import interval_flags, job_flags
from release_examples import GUARANTEE, release_of

from beam_dp.cli.main import main as beam_dp
from beam_dp.errors import InputError
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import commit_release, read_release
from beam_dp.storage.local import LocalStore
from pipelines import release_intervals, release_synthetic_database

ANSWERS = AnswersRelease(draw_id="a" * 32, guarantee=GUARANTEE, rows=[], stated={})


class KilledError(BaseException):
    """No handler of the writer catches this; none of its clean-up runs."""


def killed(*_: object) -> None:
    raise KilledError


def left_by_a_kill(folder: pathlib.Path, commit: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """A directory with a card, whose payload is still in the draft."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "place", killed)
        patch.setattr(LocalStore, "remove_draft", lambda self, draft: None)
        with pytest.raises(KilledError):
            commit(folder)
    return folder


@pytest.fixture
def unfinished(tmp_path: pathlib.Path) -> pathlib.Path:
    return left_by_a_kill(tmp_path / "a b", lambda folder: commit_release(release_of(), folder))


def named_command(line: str) -> Sequence[str]:
    """The arguments of the `beam-dp` command that a line names."""
    found = re.search("`beam-dp (finish .*?)`", line)
    assert found, line
    return shlex.split(found[1])


@pytest.mark.parametrize(
    "command", [["describe"], ["describe", "--json"], ["answer", "--marginal", "hours"]]
)
def test_what_reads_a_release_names_what_completes_it(
    unfinished: pathlib.Path, capfd: pytest.CaptureFixture[str], command: Sequence[str]
) -> None:
    name, *more = command
    assert beam_dp([name, str(unfinished), *more]) == 2
    out, line = capfd.readouterr()
    assert out == "" and line.count("\n") == 1
    assert "No such file" in line
    assert beam_dp(named_command(line)) == 0
    assert read_release(unfinished).draw_id == release_of().draw_id


def test_answers_name_it_too(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    left_by_a_kill(tmp_path, lambda folder: commit_release(ANSWERS, folder))
    assert beam_dp(["describe", str(tmp_path)]) == 2
    assert beam_dp(named_command(capfd.readouterr().err)) == 0
    assert read_release(tmp_path).draw_id == ANSWERS.draw_id


@pytest.mark.slow
def test_a_program_that_is_run_again_names_it(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    left_by_a_kill(tmp_path / "out", lambda folder: commit_release(release_of(), folder))
    for main, argv in (
        (release_synthetic_database.main, job_flags(tmp_path)),
        (release_intervals.main, [*interval_flags(tmp_path), "--validate_only"]),
    ):
        assert main(argv) == 2
        line = capfd.readouterr().err
        assert re.fullmatch(r"error: --output: [^\n]+\n", line)
        assert named_command(line) == ["finish", str(tmp_path / "out")]


def test_a_draft_without_a_card_names_it(tmp_path: pathlib.Path) -> None:
    LocalStore(tmp_path).open_draft("0" * 32)
    with pytest.raises(ReleaseError, match=r"card\.json cannot be read: .* `beam-dp finish "):
        read_release(tmp_path)


def test_where_no_draft_is_left_it_is_not_named(tmp_path: pathlib.Path) -> None:
    """It would help nothing: what is missing is lost."""
    assert commit_release(release_of(), tmp_path)
    next(tmp_path.glob("records-*")).unlink()
    for act, name in ((read_release, "release"), (check_output, "output")):
        with pytest.raises(InputError, match=rf"^{name}: ") as caught:
            act(tmp_path)
        assert "finish" not in str(caught.value)
    with pytest.raises(InputError) as caught:
        read_release(tmp_path / "card.json")
    assert "finish" not in str(caught.value)
