"""The plugin that reports what tests cost."""

import json

pytest_plugins = ["pytester"]
# Processor time is scripted: a second whenever it is asked for.
TESTS = """
    import processor_time
    import pytest

    clock = 0.0

    def spent():
        return clock - processor_time._shared

    processor_time._spent = spent

    def work(seconds):
        global clock
        clock += seconds

    @pytest.fixture(scope="module")
    def shared():
        work(7)

    @pytest.fixture
    def own():
        work(5)

    def test_call():
        work(3)

    def test_setup(own):
        pass

    def test_shared(shared):
        work(1)

    def test_failing():
        work(4)
        assert False
"""


def test_reports_the_slowest_tests_without_failing_any(pytester, monkeypatch):
    pytester.makepyfile(TESTS)
    with monkeypatch.context() as patched:
        patched.setattr("processor_time._spent", None)  # and restored before this test is measured
        patched.setattr("processor_time._shared", 0.0)
        run = pytester.runpytest_inprocess(
            "-p", "processor_time", "--dearest", "3", "--costs", "costs"
        )
    costs = json.loads((pytester.path / "costs").read_text("utf-8"))
    run.assert_outcomes(passed=3, failed=1)
    shown = [line.split("::") for line in run.stdout.lines if line.startswith("  ")]
    assert [(line[0].split()[0], line[1]) for line in shown if len(line) == 2] == [
        ("5.00", "test_setup"),
        ("4.00", "test_failing"),
        ("3.00", "test_call"),
    ]
    assert sorted(test["seconds"] for test in costs.values()) == [1.0, 3.0, 4.0, 5.0]


def test_slowest_tests_are_reported_only_on_request(pytester):
    pytester.makepyfile("def test_nothing():\n    pass")
    run = pytester.runpytest_inprocess("-p", "processor_time")
    run.stdout.no_fnmatch_line("*dearest*")
