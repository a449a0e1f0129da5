"""A line that can't be printed ends no program, and a command that only prints says so.

What becomes of paid jobs is in ``pipelines/test_faults_of_paid_jobs.py``.
"""

import contextlib
import errno
import io
import sys

import pytest
from jobs import job_flags

from beam_dp.cli.main import main as beam_dp
from beam_dp.flags.output import LossyStream, lasting_output
from pipelines.release_synthetic_database import main


class Failing(io.StringIO):
    """A stream that refuses to write after some letters, as a full disk or a closed pipe does."""

    def __init__(self, error: Exception, room: int = 0) -> None:
        super().__init__()
        self._error, self._room = error, room

    def write(self, text: str) -> int:
        self._room -= len(text)
        if self._room < 0:
            raise self._error
        return super().write(text)


FULL = OSError(errno.ENOSPC, "No space left on device")
FAULTS = {
    "full": FULL,
    "closed": ValueError("I/O operation on closed file"),
    "broken": BrokenPipeError(),
}


@pytest.mark.parametrize("fault, code", [("full", 1), ("closed", 1), ("broken", 0)])
def test_command_that_only_prints_fails_if_its_answer_is_lost(monkeypatch, fault, code):
    said = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Failing(FAULTS[fault]))
    monkeypatch.setattr(sys, "stderr", said)
    assert beam_dp(["completion", "bash"]) == code
    assert said.getvalue().startswith("error: standard output can't be written: ") == (code == 1)


def test_preview_that_is_not_printed_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Failing(FULL))
    assert main([*job_flags(tmp_path), "--validate_only"]) == 1


def test_letters_that_the_encoding_lacks_are_escaped():
    raw = io.BytesIO()
    stream = LossyStream(io.TextIOWrapper(raw, encoding="ascii"))
    print("Zürich", file=stream, flush=True)
    assert raw.getvalue() == b"Z\\xfcrich\n" and stream.error is None


def test_streams_are_put_back_and_nothing_is_lost_without_a_fault(capsys):
    before = sys.stdout, sys.stderr
    with lasting_output() as output:
        print("one")
        with lasting_output() as inner:
            print("two", file=sys.stderr)
        assert inner is output
    assert (sys.stdout, sys.stderr) == before and output.error is None
    assert tuple(capsys.readouterr()) == ("one\n", "two\n")


def test_overlapping_programs_put_the_streams_back_once(capsys):
    """In any order; a stream that a program's caller has replaced meanwhile stays."""
    before = sys.stdout, sys.stderr
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        output = first.enter_context(lasting_output())
        assert second.enter_context(lasting_output()) is output
        first.close()
        assert sys.stdout is output
        second.close()
        assert (sys.stdout, sys.stderr) == before
    replaced = io.StringIO()
    with contextlib.ExitStack() as late, contextlib.redirect_stderr(io.StringIO()):
        late.enter_context(lasting_output())
        sys.stderr = replaced
        late.close()
        assert sys.stderr is replaced and sys.stdout is before[0]
