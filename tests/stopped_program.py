"""A program in a process of its own, which is sent a signal while its release is being written."""

import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

from jobs import everything_under, job_flags
from patience import HANG_SECONDS

import beam_dp as dp

# The writer stops where its draft is complete, and would go on long after the test has ended.
_PROGRAM = """
import sys, time
from beam_dp.storage.store import LocalStore
from pipelines import program, release_synthetic_database

def wait(*_):
    print("writing", flush=True)
    time.sleep(86400)

LocalStore.create_exclusively = wait
program.probe_output = lambda *_, **__: None  # which would wait as well
sys.exit(release_synthetic_database.main(sys.argv[1:]))
"""


def assert_stops(folder: pathlib.Path, number: signal.Signals, flags: Sequence[str] = ()) -> None:
    """Demands that the signal leaves no draft, one line, its exit code, and what was spent."""
    url = str(folder / "ledger.sqlite")
    ledger = dp.Ledger(url)
    ledger.declare("people", 1000.0, 1e-9, "record", "add_or_remove_one")
    argv = [*job_flags(folder, ledger=url, dataset_id="people"), *flags]
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, *argv]
    with (
        (folder / "stderr").open("w+", encoding="utf-8") as err,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True) as program,
    ):
        assert program.stdout is not None
        assert program.stdout.readline() == "writing\n", (folder / "stderr").read_text()
        drafts = everything_under(folder / "out")
        assert any(name.endswith("card.json") for name in drafts)
        program.send_signal(number)
        assert program.wait(timeout=HANG_SECONDS) == 128 + number
    text = (folder / "stderr").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not re.match(r"\[ *[0-9.]+ s\]|WARNING:", line)]
    assert lines == [f"error: stopped by {number.name}"], text
    assert everything_under(folder / "out") == []
    assert [entry.state for entry in ledger.entries("people")] == ["submitted"]
