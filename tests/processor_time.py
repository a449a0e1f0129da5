"""A plugin: a test that takes over a second carries the marker ``slow``, or fails.

What counts is processor time: of the test's process and of the processes that it has waited for, in
its call and its own setup. A clock would measure what else the machine does. Fixtures that tests
share are not counted, for their cost falls on whichever test comes first. Seconds are those of the
machine on which ``UNIT`` was measured: on a slower one the limit is as much longer.
"""

from __future__ import annotations

import gc
import itertools
import json
import resource
import time
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

UNIT = 0.08  # seconds that ``_work`` takes on an idle machine, an AMD EPYC of 2.45 GHz
_STARTED = pytest.StashKey[float]()
_shared = 0.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow-after",
        type=float,
        metavar="SECONDS",
        help="a test of more processor time without the marker slow fails",
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


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spares the garbage collector what thousands of tests hold: a third of a second each time."""
    gc.collect()
    gc.freeze()


def _work() -> None:
    """What tests do: some Python, some numpy; no cache holds it, for that is what others take."""
    json.loads(json.dumps([{"cell": [i, str(i)]} for i in range(30_000)]))
    np.sort(np.arange(1_000_000) * 7919 % 1_000_003)


def slowness() -> float:
    """How much longer this machine takes, right now, than the one of ``UNIT``; 1 or more."""
    times = []
    for _ in range(5):
        started = time.thread_time()
        _work()
        times.append(time.thread_time() - started)
    return max(1.0, sorted(times)[2] / UNIT)


def _spent() -> float:
    """Processor time of this process and of those it waited for, without shared fixtures."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) - _shared


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    global _shared
    started = _spent()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            _shared += _spent() - started


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[_STARTED] = _spent()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.when != "call":
        return (yield)
    seconds = _spent() - item.stash[_STARTED]
    item.user_properties.append(("processor_seconds", round(seconds, 3)))
    report = yield
    limit = item.config.getoption("slow_after")
    if limit is None or seconds <= limit or not report.passed or item.get_closest_marker("slow"):
        return report
    seconds /= slowness()
    if seconds > limit:
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} takes {seconds:.1f} s of processor time, over {limit:g} s: make it"
            " cheaper, or give it the marker slow"
        )
    return report
