"""A plugin: measures the processor time of each test, and reports the dearest ones.

Nothing fails because it is slow. `--dearest 10` ends a run with the ten tests without the marker
``slow`` that took the most processor time: of the test's process and of the processes that it has
waited for, in its call and its own setup. Fixtures that tests share are not counted, because their
cost falls on the test that comes first.
"""

from __future__ import annotations

import gc
import itertools
import resource
from collections.abc import Generator, Iterator
from typing import Any

import pytest

_STARTED = pytest.StashKey[float]()
_shared = 0.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--dearest",
        type=int,
        default=0,
        metavar="N",
        help="end with the N tests without the marker slow that took the most processor time",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives the marker ``slow`` to the cases of tests that are ``mostly_slow``."""
    numbers: dict[str, Iterator[int]] = {}
    for item in items:
        mark = item.get_closest_marker("mostly_slow")
        if mark is not None:
            number = next(numbers.setdefault(item.nodeid.partition("[")[0], itertools.count()))
            if number % mark.kwargs["one_in"] != mark.kwargs.get("start", 0):
                item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Spares the garbage collector what thousands of tests hold: a third of a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def _spent() -> float:
    """Processor time of this process and of those it waited for, without shared fixtures."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) - _shared


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    global _shared
    if fixturedef.scope == "function":
        return (yield)
    started = _spent()
    try:
        return (yield)
    finally:
        _shared += _spent() - started


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[_STARTED] = _spent()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.when == "call":
        seconds = _spent() - item.stash[_STARTED]
        item.user_properties.append(("processor_seconds", round(seconds, 3)))
    return (yield)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Reports the dearest tests, also those that ran in other processes."""
    most = config.getoption("dearest")
    if not most:
        return
    spent = [
        (seconds, report.nodeid)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call" and "slow" not in report.keywords
        for name, seconds in report.user_properties
        if name == "processor_seconds"
    ]
    terminalreporter.section("dearest tests without the marker slow, seconds of processor time")
    for seconds, test in sorted(spent, reverse=True)[:most]:
        terminalreporter.write_line(f"{seconds:6.2f} {test}")
