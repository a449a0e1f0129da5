"""The plugin that holds tests without the marker ``slow`` to a second of processor time."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]
TESTS = """
    import subprocess, sys, time
    import pytest

    BUSY = "import time\\nend = time.process_time() + 0.4\\nwhile time.process_time() < end: pass"

    @pytest.fixture(scope="module")
    def shared():
        exec(BUSY)

    @pytest.fixture
    def own():
        exec(BUSY)

    def test_call():
        exec(BUSY)

    def test_setup(own):
        pass

    def test_child():
        subprocess.run([sys.executable, "-c", BUSY], check=True)

    @pytest.mark.slow
    def test_marked():
        exec(BUSY)

    def test_shared(shared):
        pass

    def test_sleep():
        time.sleep(0.4)  # takes no processor time on any machine
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers = slow")
    return pytester


@pytest.mark.slow
def test_what_takes_processor_time_without_the_marker_fails(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The same on every machine: what is spent here is seconds, not work.
    monkeypatch.setattr("processor_time.slowness", lambda: 1.0)
    run = suite.runpytest_inprocess("-p", "processor_time", "--slow-after", "0.2")
    run.assert_outcomes(failed=3, passed=3)
    run.stdout.fnmatch_lines_random(
        [
            f"*::{name} takes * s of processor time, over 0.2 s:*marker slow"
            for name in ("test_call", "test_setup", "test_child")
        ]
    )


@pytest.mark.slow
def test_on_a_slower_machine_the_limit_is_longer(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("processor_time.UNIT", 1e-6)
    run = suite.runpytest_inprocess("-p", "processor_time", "--slow-after", "0.2")
    run.assert_outcomes(passed=6)


def test_of_mostly_slow_cases_one_in_so_many_is_not_slow(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.mostly_slow(one_in=3, start=1)
        @pytest.mark.parametrize("case", range(7))
        def test_case(case):
            assert case in (1, 4)
        """
    )
    pytester.makeini("[pytest]\nmarkers =\n  slow\n  mostly_slow")
    run = pytester.runpytest_inprocess("-p", "processor_time", "-m", "not slow")
    run.assert_outcomes(passed=2, deselected=5)
