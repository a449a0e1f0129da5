"""No test fails because of time: the tests compare none, and only a long limit cuts off a hang.

Ruff refuses clocks and sizes of processes by name, whose exceptions are in ``tests/ruff.toml``.
"""

import re
import tomllib

import pytest
from source_imports import ROOT, banned_lines

TESTS = ROOT / "tests"
RUFF = tomllib.loads((TESTS / "ruff.toml").read_text("utf-8"))["lint"]["per-file-ignores"]
ALLOWED = ("patience.py", "fuzz/run.py", "test_no_clocks.py")
WAITS = "wait|result|communicate|alarm|setitimer|acquire|settimeout"
# Less than patience allows.
SHORT = re.compile(
    rf"timeout\w*=(?!HANG_SECONDS\b|None\b|[a-z])|\bjoin\(\d"
    rf"|\b(?:{WAITS})\((?:\d|(?!HANG_SECONDS\b)[A-Z_]+\))"
)
CLOCKS = r"\b(?:perf_counter|process_time|monotonic|thread_time|clock_gettime|getrusage|timeit"
CLOCKS += r"|os\.times|time\.time)(?:_ns)?\("
# Also of a process that a test runs.
NAMED = re.compile(rf"{CLOCKS}|\bVm(?:HWM|RSS)\b")
COMPARED = re.compile(rf"\b(?:assert|if)\b.*{CLOCKS}")


def faults(source: str, name: str = "test_example.py") -> list[str]:
    """Lines that wait too little, or that know what time it is; in some files, that compare it."""
    clock = COMPARED if "TID251" in RUFF.get(name, ()) else NAMED
    lines = source.splitlines()
    return [f"{name}: {line}" for line in lines if SHORT.search(line) or clock.search(line)]


def test_no_test_compares_times_or_has_a_short_timeout():
    names = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py")} - {*ALLOWED}
    found = (faults((TESTS / name).read_text("utf-8"), name) for name in sorted(names))
    assert [fault for each in found for fault in each] == []


BANNED = """\
time.perf_counter() - start
time.process_time_ns() / 10
from time import monotonic
os.times()[:2]
time.thread_time()
resource.getrusage(resource.RUSAGE_SELF)
psutil.Process().memory_info().rss
time.time()
"""


def test_ruff_refuses_clocks_and_sizes_of_processes_in_tests():
    imported = "import os, resource, time\n"
    assert banned_lines("tests/test_example.py", imported + BANNED) == {
        row for row, line in enumerate(BANNED.splitlines(), 2) if not line.startswith("psutil")
    }
    assert banned_lines("tests/test_example.py", "import psutil\n") == {1}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("assert time.time() - start < 5", "engines/faults.py"),
        ("run('import time; print(time.process_time())')", "test_example.py"),
        ("size = status['VmRSS']", "test_example.py"),
        ("subprocess.run(command, timeout=60)", "test_example.py"),
        ("SECONDS = 5.0\nevent.wait(timeout=SECONDS)", "test_example.py"),
        ("thread.join(10)", "test_example.py"),
        ("future.result(SECONDS)", "test_example.py"),
        ("signal.alarm(300)", "test_example.py"),
    ],
)
def test_finds_test_that_depends_on_time(source, name):
    assert len(faults(source, name)) == 1
