"""What a killed probe leaves goes with the next job, or with `beam-dp finish`."""

from __future__ import annotations

import os

import pytest

from beam_dp.cli.main import main
from beam_dp.releases.files.commit import probe_output

HOURS_AGO = 1.7e9


@pytest.fixture
def trials(tmp_path):
    """The folders of a trial that was killed long ago, and of one that runs."""
    old, new = tmp_path / ".draft-trial-old", tmp_path / ".draft-trial-new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "payload").write_bytes(b"payload")
    os.utime(old, (HOURS_AGO, HOURS_AGO))
    return old, new


def test_next_probe_removes_old_trials_and_leaves_running_ones(tmp_path, trials):
    probe_output(tmp_path / "out")
    assert [folder.exists() for folder in trials] == [False, True]


def test_finish_removes_old_trials_although_nothing_was_released(tmp_path, trials, capsys):
    assert main(["finish", str(tmp_path / "out")]) == 2
    assert "must be a directory that exists" in capsys.readouterr().err
    assert [folder.exists() for folder in trials] == [False, True]
