"""No test fails because of time: the tests compare none, and only a long limit cuts off a hang.

A variable is a time if it is assigned from a clock by arithmetic; a function, if it returns one.
"""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest
from patience import HANG_SECONDS
from source_imports import ROOT, parsed

CLOCKS = {"perf_counter", "process_time", "monotonic", "thread_time", "clock_gettime", "time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS} | {"getrusage", "times", "timeit"}
MODULES = {"time", "os", "resource", "timeit"}
SIZES = {"ru_maxrss", "ru_utime", "ru_stime", "memory_info", "cpu_times"}
ARITHMETIC = {"int", "float", "round", "min", "max", "sum", "abs", "sorted", "list", "tuple"}
WAITS = {"join", "wait", "result", "communicate", "alarm", "setitimer", "acquire", "settimeout"}
# A file without such words is not parsed.
_WORDS = "|".join(sorted(CLOCKS - {"time", "times"}) + sorted(SIZES))
NAMED = re.compile(rf"\b(?:{_WORDS}|time\.time|os\.times|from time)\b|\bVm")
WAITING = re.compile(rf"timeout\w*=|\b(?:{'|'.join(WAITS)})\((?:\d|[A-Z_]+\))")
# Code in a text, which a test runs as a process of its own.
IN_TEXT = re.compile(rf"\b(?:{_WORDS}|os\.times)\(|\bVm(?:HWM|RSS)\b")
ALLOWED = {
    "tests/patience.py": "the limit that cuts off a hang",
    "tests/fuzz/run.py": "how long to go on with random inputs",
    "tests/test_no_clocks.py": "examples",
}


def is_time(node: ast.AST, times: set[str]) -> bool:
    """Whether an expression reads a clock or the size of a process, or is made of such values."""
    match node:
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if name in times:
            return True
        case ast.Attribute(attr=name) if name in SIZES:
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if (
            module in MODULES
        ):
            return name in CLOCKS
        case ast.Call(func=ast.Name(id=name)) if name in CLOCKS - {"time", "times"}:
            return True
        case ast.Call(func=ast.Name(id=name), args=parts) if name in ARITHMETIC:
            pass
        case ast.Call(func=ast.Attribute() as called):
            parts = [called] if called.attr in SIZES else []
        case ast.Attribute(value=part) | ast.GeneratorExp(elt=part) | ast.ListComp(elt=part):
            parts = [part]
        case ast.BinOp() | ast.UnaryOp() | ast.Subscript() | ast.Tuple() | ast.List():
            parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        case _:
            return False
    return any(is_time(part, times) for part in parts)


def times_in(scope: list[ast.AST], known: set[str]) -> set[str]:
    """The names in a part of a file that are times or return times."""
    found, before = set(known), -1
    while len(found) != before:
        before = len(found)
        for node in scope:
            match node:
                case ast.Assign(value=value, targets=[ast.Name(id=name)]) if is_time(value, found):
                    found.add(name)
                case ast.AugAssign(value=value, target=ast.Name(id=name)) if is_time(value, found):
                    found.add(name)
                case ast.Call(
                    func=ast.Attribute(attr="append", value=ast.Name(id=name)), args=[value]
                ):
                    found |= {name} if is_time(value, found) else set()
                case ast.FunctionDef(name=name):
                    returned = [
                        each.value for each in ast.walk(node) if isinstance(each, ast.Return)
                    ]
                    if any(each is not None and is_time(each, found) for each in returned):
                        found.add(name)
    return found


def scopes(tree: ast.Module) -> Iterator[list[ast.AST]]:
    """The nodes of each outermost function, of itself first, and of what is in none."""
    rest: list[ast.AST] = []
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop(0)
        if isinstance(node, ast.FunctionDef):
            yield [*ast.walk(node)]
        else:
            rest.append(node)
            left += ast.iter_child_nodes(node)
    yield rest


def compared_times(tree: ast.Module) -> Iterator[str]:
    parts = [*scopes(tree)]
    shared = times_in(parts[-1], set())
    for _ in range(2):  # a function may return what another one returns
        for scope in parts[:-1]:
            name = scope[0].name  # type: ignore[attr-defined]
            shared |= {name} & times_in(scope, shared)
    for scope in parts:
        times = times_in(scope, shared)
        # A source of a stream may go on until a moment.
        until = [node.test for node in scope if isinstance(node, ast.While)]
        for node in scope:
            match node:
                case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
                    pass
                case ast.Compare(left=ast.expr() as left, comparators=others):
                    is_moment = node in until and ast.unparse(left) == "time.time()"
                    if not is_moment and any(is_time(each, times) for each in (left, *others)):
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
        found += compared_times(parsed(path, source))
    if WAITING.search(source):
        found += short_waits(parsed(path, source))
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


BROKEN = {
    "elapsed": "start = time.perf_counter()\nassert time.perf_counter() - start < 5",
    "in a variable": "start = time.process_time()\ntook = time.process_time() - start\n"
    "assert low <= took / 10",
    "imported": "from time import monotonic\nassert monotonic() < 7",
    "in a function": "def took():\n    return sum(os.times()[:2])\nassert took() < 3",
    "in a list": "found = []\nfound.append(time.thread_time())\nassert min(found) < 1",
    "a ratio": "a = time.thread_time()\nb = time.thread_time()\nif b > 2 * a:\n    raise E",
    "usage": "u = resource.getrusage(resource.RUSAGE_SELF)\nassert u.ru_maxrss < 2**20",
    "memory": "assert psutil.Process().memory_info().rss < 1",
    "a child": "run('import time; print(time.process_time())')",
    "status": "size = status['VmRSS']",
    "timeout": "subprocess.run(command, timeout=60)",
    "named": "SECONDS = 5.0\nevent.wait(timeout=SECONDS)",
    "positional": "thread.join(10)",
    "alarm": "signal.alarm(300)",
    "a short loop": "end = time.monotonic() + 3\nwhile time.monotonic() < end:\n    look()",
}


@pytest.mark.parametrize("name", BROKEN)
def test_finds_test_that_depends_on_time(name):
    assert faults(BROKEN[name])


INNOCENT = {
    "a moment": "horizon = Horizon(int(time.time()) + 2)\nassert horizon.num_windows == 3",
    "a source": "while time.time() < horizon.closes(3):\n    drop()",
    "a limit": "from patience import HANG_SECONDS\nprogram.wait(timeout=HANG_SECONDS)",
    "texts": "', '.join(names)\nthread.join()",
    "column": "assert row.time == datetime.time(1)",
    "bytes": "tracemalloc.start()\nassert tracemalloc.get_traced_memory()[1] < 2**26",
}


@pytest.mark.parametrize("name", INNOCENT)
def test_accepts_test_that_does_not_depend_on_time(name):
    assert faults(INNOCENT[name]) == []
