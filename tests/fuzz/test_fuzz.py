"""The fuzz targets on a few hundred inputs each; `make fuzz` runs them on a million."""

import pathlib
import random
import subprocess
import sys
import tracemalloc

import pytest
from fuzz.targets import TARGETS
from hypothesis import given, settings, strategies as st
from patience import HANG_SECONDS

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=120))
@settings(max_examples=300)
def test_any_input_is_parsed_or_refused(name, data):
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_memory_is_bounded(name):
    generator = random.Random(5)
    inputs = [generator.randbytes(1 + number % 60) for number in range(60)]
    TARGETS[name](b"")
    tracemalloc.start()
    try:
        for data in inputs:
            TARGETS[name](data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**26


def test_fuzzer_finds_a_removed_check(monkeypatch):
    """A target that cannot fail is no test: without this check, a card cannot be written again."""
    monkeypatch.setattr("beam_dp.releases.files.card._check_unicode", lambda text: None)
    generator = random.Random(7)
    with pytest.raises(UnicodeEncodeError):
        for _ in range(20_000):
            TARGETS["read_release"](b"\5" + generator.randbytes(5))


@pytest.mark.parametrize("name", TARGETS)
def test_fuzzer_runs_with_a_memory_limit(name):
    flags = ["--random", "--runs=60", "--seed=3", f"--seconds={HANG_SECONDS}"]
    command = [sys.executable, "tests/fuzz/run.py", name, *flags]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "60 random inputs" in result.stdout
