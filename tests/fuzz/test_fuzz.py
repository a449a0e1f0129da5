"""The fuzz targets on a few hundred inputs each; `make fuzz` runs them on a million."""

import itertools
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
FIRST, *OTHERS = TARGETS
# Verified cards are of releases of every kind, which take two seconds to make.
MOST = [pytest.param(name, marks=pytest.mark.part if name == "verify" else ()) for name in TARGETS]
ONE_AND_OTHERS = [FIRST, *(pytest.param(name, marks=pytest.mark.part) for name in OTHERS)]


@pytest.mark.parametrize("name", MOST)
def test_some_inputs_are_parsed_or_refused_in_bounded_memory(name):
    generator = random.Random(5)
    inputs = [generator.randbytes(1 + number % 60) for number in range(20)]
    for data in inputs:  # what is kept of releases that are whole is no matter
        TARGETS[name](data)
    tracemalloc.start()
    try:
        for data in inputs:
            TARGETS[name](data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**26


@pytest.mark.part
@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=120))
@settings(max_examples=300)
def test_any_input_is_parsed_or_refused(name, data):
    TARGETS[name](data)


def test_fuzzer_finds_a_removed_check(monkeypatch):
    """A target that cannot fail is no test: without this check, a card cannot be written again."""
    monkeypatch.setattr("beam_dp.releases.files.card._check_unicode", lambda text: None)
    generator = random.Random(7)
    # The first is one that was found, after some thousands that were not.
    random_inputs = (b"\5" + generator.randbytes(5) for _ in range(20_000))
    with pytest.raises(UnicodeEncodeError):
        for data in itertools.chain([b"\x04\xc408P\xce"], random_inputs):
            TARGETS["read_release"](data)


@pytest.mark.job
@pytest.mark.parametrize("name", ONE_AND_OTHERS)
def test_fuzzer_runs_with_a_memory_limit(name):
    flags = ["--random", "--runs=60", "--seed=3", f"--seconds={HANG_SECONDS}"]
    command = [sys.executable, "tests/fuzz/run.py", name, *flags]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "60 random inputs" in result.stdout
