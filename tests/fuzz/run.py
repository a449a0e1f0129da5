"""Fuzzes one target: `python tests/fuzz/run.py parse_domain --runs 1000000 --seconds 600`.

With atheris (`pip install atheris`), inputs follow the coverage of the package; without it, they
are random. A crash prints the input, which becomes a regression test. Memory is bounded: a child
that takes more than the limit beyond what the imports took fails with a MemoryError.
"""

import argparse
import importlib.util
import operator
import os
import pathlib
import random
import resource
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a thread for every core would hold a stack each

# Named here because the package is imported under atheris's instrumentation.
TARGETS = (
    "read_release", "read_records", "read_sparse_release", "read_window", "read_intervals",
    "read_domain_release", "read_horizon", "parse_domain", "parse_workload", "domain_draft",
    "verify",
)  # fmt: skip
LIMIT_BYTES = 2**29  # beyond what is held when fuzzing starts


def limit_memory() -> None:
    with open("/proc/self/status") as file:
        held = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
    # Data alone: an allocator of a new thread reserves address space that it may never fill.
    resource.setrlimit(resource.RLIMIT_DATA, (held + LIMIT_BYTES,) * 2)


def run_at_random(name: str, runs: int, seconds: float, seed: int) -> None:
    from fuzz import targets

    target = targets.TARGETS[name]
    generator = random.Random(seed)
    target(b"")
    limit_memory()
    start, done = time.monotonic(), 0
    while done < runs and time.monotonic() - start < seconds:
        data = generator.randbytes(generator.choice((2, 8, 16, 32, 64, 200)))
        try:
            target(data)
        except BaseException:
            print(f"{name} crashed after {done} inputs on {data!r}", file=sys.stderr)
            raise
        done += 1
    print(f"{name}: {done:,} random inputs in {time.monotonic() - start:.0f} s, no crash")


def compare_arrays_untraced() -> None:
    """Keeps arrays out of atheris's traced comparisons.

    They tell libFuzzer nothing, and a traced comparison leaks its result (atheris 3.0.0: a
    function instrumented alone, ``return array < 0``, loses 239 bytes a call at 100 elements),
    which would hide what the parsers themselves hold.
    """
    import atheris
    import numpy as np
    from atheris.version_dependent import CMP_OP_SHIFT_AMOUNT

    compare = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
    traced = atheris._trace_cmp

    def trace(left: Any, right: Any, operation: int, *where: Any) -> Any:
        if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
            return compare[operation >> CMP_OP_SHIFT_AMOUNT](left, right)
        return traced(left, right, operation, *where)

    atheris._trace_cmp = trace


def run_atheris(name: str, runs: int, seconds: float, seed: int) -> None:
    import atheris
    from patience import HANG_SECONDS

    with atheris.instrument_imports(include=["beam_dp"]):
        from fuzz import targets

    target = targets.TARGETS[name]
    target(b"")
    limit_memory()
    options = [
        f"-runs={runs}", f"-max_total_time={int(seconds)}", f"-seed={seed}", "-max_len=400",
        f"-timeout={HANG_SECONDS:.0f}", "-verbosity=1", "-print_final_stats=1",
        f"-artifact_prefix={tempfile.gettempdir()}/",
    ]  # fmt: skip

    def first_target(data: bytes) -> None:
        # Only now: atheris puts its tracing in place when fuzzing starts.
        nonlocal run_one
        compare_arrays_untraced()
        run_one = target
        target(data)

    run_one = first_target
    atheris.Setup([name, *options], lambda data: run_one(data))
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=10**6)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument("--random", action="store_true", help="without atheris")
    given = parser.parse_args()
    has_atheris = importlib.util.find_spec("atheris") is not None
    fuzz = run_at_random if given.random or not has_atheris else run_atheris
    print(f"{given.target}: seed {given.seed}", flush=True)
    fuzz(given.target, given.runs, given.seconds, given.seed)


if __name__ == "__main__":
    main()
