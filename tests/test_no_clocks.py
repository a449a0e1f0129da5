"""No test fails because of time: the tests compare none, and only a long limit cuts off a hang.

Ruff refuses clocks and sizes of processes by name, whose exceptions are in ``tests/ruff.toml``.
"""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest
from patience import HANG_SECONDS
from source_imports import ROOT, banned_lines

WAITS = {"join", "wait", "result", "communicate", "alarm", "setitimer", "acquire", "settimeout"}
WAITING = re.compile(rf"timeout\w*=|\b(?:{'|'.join(WAITS)})\((?:\d|[A-Z_]+\))")
# A file without such words is not parsed.
_CLOCKS = r"(?:perf_counter|process_time|monotonic|thread_time|clock_gettime|getrusage|timeit)"
NAMED = re.compile(rf"\b{_CLOCKS}|\btime\.time\(|\bos\.times|\bVm(?:HWM|RSS)\b")
# Code in a text, which a test runs as a process of its own.
IN_TEXT = re.compile(rf"\b(?:{_CLOCKS}(?:_ns)?|os\.times)\(|\bVm(?:HWM|RSS)\b")
CLOCK = re.compile(rf"\b(?:time|os|resource)\.(?:{_CLOCKS}|time|times)(?:_ns)?\(")
ALLOWED = {
    "tests/patience.py": "the limit that cuts off a hang",
    "tests/fuzz/run.py": "how long to go on with random inputs",
    "tests/test_no_clocks.py": "examples",
}


def compared_times(tree: ast.Module) -> Iterator[str]:
    # A source of a stream may go on until a moment.
    until = [node.test for node in ast.walk(tree) if isinstance(node, ast.While)]
    for node in ast.walk(tree):
        match node:
            case ast.Compare() if node not in until and CLOCK.search(ast.unparse(node)):
                yield f"{node.lineno}: a time is compared: {ast.unparse(node)}"
            case ast.Constant(value=str(text)) if IN_TEXT.search(text):
                yield f"{node.lineno}: a process that a test runs reads a clock"


def short_waits(tree: ast.Module) -> Iterator[str]:
    numbers = {
        target.id: each.value
        for each in tree.body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        limits = [each.value for each in node.keywords if "timeout" in str(each.arg)]
        if isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
            limits += node.args
        for limit in limits:
            value = numbers.get(limit.id) if isinstance(limit, ast.Name) else limit
            number = value.value if isinstance(value, ast.Constant) else None
            if type(number) in (int, float) and 0 < number < HANG_SECONDS:
                yield f"{node.lineno}: waits less than patience allows: {ast.unparse(node)}"


def faults(source: str, path: str = "tests/test_example.py") -> list[str]:
    found: list[str] = []
    if NAMED.search(source):
        found += compared_times(ast.parse(source))
    if WAITING.search(source):
        found += short_waits(ast.parse(source))
    return [f"{path}:{fault}" for fault in found]


def test_no_test_compares_times_or_has_a_short_timeout():
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in pathlib.Path(ROOT, "tests").rglob("*.py")
    }
    assert [
        fault
        for path, source in sorted(sources.items())
        if path not in ALLOWED
        for fault in faults(source, path)
    ] == []


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
    "source",
    [
        "assert time.time() - start < 5",
        "run('import time; print(time.process_time())')",
        "size = status['VmRSS']",
        "subprocess.run(command, timeout=60)",
        "SECONDS = 5.0\nevent.wait(timeout=SECONDS)",
        "thread.join(10)",
        "signal.alarm(300)",
        "end = time.monotonic() + 3\nwhile look() and time.monotonic() < end:\n    look()",
    ],
)
def test_finds_test_that_depends_on_time(source):
    assert faults(source)
