"""Which backend is used, what the compiled kernel refuses, and what is shipped."""

import os
import pathlib
import subprocess
import sys
import tarfile
import threading
import time

import numpy as np
import pytest
from package_sources import copy_sources

from beam_dp.errors import InputError
from beam_dp.hashing.evaluation import (
    ENVIRONMENT_VARIABLE,
    active_backend,
    available_backends,
    kernel,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
needs_kernel = pytest.mark.skipif(kernel is None, reason="the kernel is not built")


def test_kernel_is_built_if_the_environment_requires_it():
    """Continuous integration sets the variable: a wheel's name does not tell a slow one."""
    if not os.environ.get("BEAM_DP_REQUIRE_KERNEL"):
        pytest.skip("BEAM_DP_REQUIRE_KERNEL is not set")
    assert kernel is not None


def test_fastest_backend_is_active_unless_another_is_named(monkeypatch):
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    assert active_backend() == available_backends()[0]
    for name in available_backends():
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, name)
        assert active_backend() == name


def test_unknown_backend_is_refused(monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "abacus")
    with pytest.raises(InputError, match=r"^BEAM_DP_HASHING_BACKEND: 'abacus' .* numpy "):
        active_backend()


@pytest.mark.job
def test_missing_kernel_falls_back_to_numpy_with_one_warning():
    code = """
import sys
sys.modules["beam_dp.hashing._kernel"] = None
import numpy as np
from beam_dp.hashing.evaluation import active_backend, available_backends
from beam_dp.hashing.keys import HashKey
from beam_dp.hashing.projections import DenseSigns
signs = DenseSigns(HashKey.draw(4), 64)
for _ in range(2):
    signs.project(np.zeros(2, np.uint64), np.array([1, -1]))
print(active_backend(), available_backends())
"""
    environment = {k: v for k, v in os.environ.items() if k != ENVIRONMENT_VARIABLE}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment,
    )
    assert result.stdout.strip() == "numpy ('numpy',)"
    assert result.stderr.count("without its compiled hashing kernel") == 1


def arguments(**changes: object) -> tuple[object, ...]:
    """A correct call for 2 polynomials of 2 pairs and 3 keys, dense."""
    named: dict[str, object] = {
        "backend": available_backends()[0],
        "coefficients": np.zeros((2, 1, 2, 2), dtype=np.uint64),
        "constants": np.zeros((2, 1), dtype=np.uint64),
        "pairs": 2,
        "keys": np.zeros(3, dtype=np.uint64),
        "weights": np.zeros(3, dtype=np.int64),
        "output": np.zeros(128, dtype=np.int64),
        "num_blocks": 0,
        "bucket_bits": 0,
    }
    return tuple({**named, **changes}.values())


def words(size: int) -> np.ndarray:
    return np.zeros(size, dtype=np.uint64)


OF_ANOTHER_TYPE = [
    np.zeros(3),
    np.zeros(3, dtype=np.uint32),
    np.zeros(3, dtype=">u8"),
    np.frombuffer(bytes(25), dtype=np.uint8)[1:].view(np.uint64),
    "abc",
    5,
]


OF_ANOTHER_SIZE = [
    {"backend": "abacus"},
    {"coefficients": words(7)},
    {"coefficients": None},
    {"constants": words(0)},
    {"constants": None},
    {"constants": words(3), "coefficients": words(12)},
    {"pairs": 0},
    {"pairs": 2**63},
    {"keys": None},
    {"keys": words(4)},
    {"weights": words(4)},
    {"weights": None, "output": words(7)},
    {"output": words(127)},
    {"output": words(64 * 5)},
    {"output": words(0)},
    {"output": None},
    {"num_blocks": 2, "bucket_bits": 5},
    {"num_blocks": 2**62, "bucket_bits": 5},
    {"num_blocks": 2, "bucket_bits": 63},
    {"num_blocks": 2**63, "bucket_bits": 1, "output": words(0)},
    {"output": np.frombuffer(bytes(1024), dtype=np.int64)},  # read-only
]


@needs_kernel
def test_kernel_refuses_arrays_of_wrong_shape_or_type():
    assert kernel is not None
    kernel.run(*arguments())
    for changes in OF_ANOTHER_SIZE:
        with pytest.raises(ValueError):
            kernel.run(*arguments(**changes))
    for keys in OF_ANOTHER_TYPE:
        with pytest.raises((TypeError, ValueError, BufferError)):
            kernel.run(*arguments(keys=keys))


@needs_kernel
def test_other_threads_run_while_the_kernel_works():
    """They see sums that are begun and not done, which a thread that is shut out never does."""
    assert kernel is not None
    num_keys, num_polynomials = 30_000, 1024
    output = np.zeros(num_polynomials * 64, dtype=np.int64)
    call = arguments(
        coefficients=words(num_polynomials * 48),
        constants=words(num_polynomials),
        pairs=24,
        keys=words(num_keys),
        weights=np.ones(num_keys, dtype=np.int64),
        output=output,
    )
    first_row = output[:64]

    def is_seen_at_work() -> bool:
        output[:] = 0
        seen = {first_row.tobytes()}
        thread = threading.Thread(target=kernel.run, args=call)
        thread.start()
        while thread.is_alive():
            seen.add(first_row.tobytes())
            time.sleep(0)
        return len(seen - {first_row.tobytes()}) > 1

    # A call takes a tenth of a second; a busy machine may give this thread no turn in one of them.
    assert any(is_seen_at_work() for _ in range(100))


@pytest.fixture
def checkout(tmp_path) -> pathlib.Path:
    """A copy of what is needed to build the package, without anything that is built."""
    return copy_sources(tmp_path / "checkout").parent


def run_setup(checkout: pathlib.Path, *command: str, **environment: str) -> str:
    pytest.importorskip("setuptools")
    result = subprocess.run(
        [sys.executable, "setup.py", *command],
        capture_output=True,
        text=True,
        check=True,
        cwd=checkout,
        env={**os.environ, **environment},
    )
    return result.stdout + result.stderr


@pytest.mark.job
def test_source_distribution_contains_the_kernel(checkout):
    run_setup(checkout, "sdist", "--formats=gztar")
    (archive,) = (checkout / "dist").iterdir()
    with tarfile.open(archive) as opened:
        names = {pathlib.PurePosixPath(name).name for name in opened.getnames()}
    sources = {path.name for path in (ROOT / "beam_dp" / "hashing").glob("_kernel*.[ch]")}
    assert len(sources) == 4
    assert sources <= names


@pytest.mark.job
def test_without_a_compiler_the_package_builds_without_the_kernel(checkout):
    run_setup(checkout, "build", CC="false")
    assert list(checkout.glob("build/lib*/beam_dp/secret/encoding/batch.py"))
    assert not list(checkout.glob("build/**/*.so"))
