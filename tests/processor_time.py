"""A plugin: measures the processor time of each test.

Nothing fails because it is dear. ``--dearest 20`` ends a run with the tests that took the most
processor time: of the test's process and of the processes that it has waited for, in its call and
its own setup. Fixtures that tests share are not counted, because their cost falls on the test that
comes first. ``--costs FILE`` writes all of these times.
"""

import gc
import json
import pathlib
import resource
from collections.abc import Generator
from typing import Any

import pytest
from tiers import tier_of

_STARTED = pytest.StashKey[float]()
_shared = 0.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--dearest", type=int, default=0, metavar="N", help="show the N dearest tests")
    parser.addoption("--costs", metavar="FILE", help="write the processor seconds of every test")


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
        item.user_properties.append(("processor_seconds", (round(seconds, 3), tier_of(item))))
    return (yield)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Reports what the tests took, also those that ran in other processes."""
    tests = {
        report.nodeid: {"seconds": spent[0], "tier": spent[1]}
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, spent in report.user_properties
        if name == "processor_seconds"
    }
    if config.option.costs:
        pathlib.Path(config.option.costs).write_text(json.dumps(tests), "utf-8")
    if config.option.dearest:
        terminalreporter.section("dearest tests, seconds of processor time")
        dearest = sorted(tests, key=lambda name: -tests[name]["seconds"])
        for name in dearest[: config.option.dearest]:
            terminalreporter.write_line(f"{tests[name]['seconds']:6.2f} {name}")
