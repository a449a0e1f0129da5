"""Threads change the time of a release, but none of its bytes."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from patience import HANG_SECONDS, wait_for
from release_examples import release_of
from tiny import domain_of

from beam_dp.models.candidates import CandidateBasis
from beam_dp.releases.kinds import write_release
from beam_dp.releases.synthetic_database import shards
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.summaries.histogram import MarginalsAccumulator
from beam_dp.threads import Calls, in_order, num_threads
from beam_dp.transforms.counting.summarise import _CountBundle
from beam_dp.transforms.writing import _WriteFile

NUMBERS = (1, 2, 5)


@pytest.fixture(autouse=True)
def same_number_afterwards() -> Iterator[None]:
    number = pa.cpu_count()
    yield
    pa.set_cpu_count(number)


def wait_for_end_of(threads: set[threading.Thread]) -> None:
    """Waits until none of the threads lives, but for the caller's own."""
    others = threads - {threading.current_thread()}
    wait_for("the threads to end", lambda: not any(thread.is_alive() for thread in others))


@pytest.mark.parametrize("number", NUMBERS)
def test_results_are_in_the_order_of_the_items(number):
    pa.set_cpu_count(number)
    assert num_threads() == number
    assert list(in_order(lambda item: item * item, iter(range(100)))) == [n * n for n in range(100)]


def test_threads_run_together():
    pa.set_cpu_count(2)
    both = threading.Barrier(2)
    assert list(in_order(lambda item: both.wait() >= 0, range(4))) == [True] * 4


@pytest.mark.parametrize("number", NUMBERS)
def test_an_error_ends_all_calls(number):
    pa.set_cpu_count(number)
    threads: set[threading.Thread] = set()

    def inverse(item: int) -> float:
        threads.add(threading.current_thread())
        return 1 / item

    with pytest.raises(ZeroDivisionError):
        list(in_order(inverse, range(3, -50, -1)))
    wait_for_end_of(threads)
    calls = Calls(inverse)
    results = [*calls.add(1), *calls.add(2), *calls.rest(), *calls.add(4), *calls.rest()]
    assert results == [1, 0.5, 0.25]
    calls.end()
    wait_for_end_of(threads)
    assert (threads == {threading.current_thread()}) == (number == 1)


def test_a_generator_that_nobody_reads_waits_for_no_call():
    """The garbage collector may end it, in a thread that must not wait for others."""
    pa.set_cpu_count(2)
    runs, may_end, threads = threading.Event(), threading.Event(), set()

    def call(item: int) -> int:
        threads.add(threading.current_thread())
        if item:
            runs.set()
            may_end.wait(HANG_SECONDS)
        return item

    results = in_order(call, range(2))
    assert next(results) == 0
    runs.wait(HANG_SECONDS)
    results.close()
    may_end.set()
    wait_for_end_of(threads)


@pytest.mark.parametrize(("package", "number"), [("worker", "1"), ("direct", "3")])
def test_worker_of_a_runner_takes_one_thread(package, number, tmp_path):
    module = tmp_path / "apache_beam" / "runners" / package / "main.py"
    module.parent.mkdir(parents=True)
    for folder in (module.parent, *list(module.parents)[1:3]):
        (folder / "__init__.py").touch()
    module.write_text("from beam_dp.threads import num_threads\nprint(num_threads())\n")
    command = [sys.executable, "-m", f"apache_beam.runners.{package}.main"]
    environment = {"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}", "OMP_NUM_THREADS": "3"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == f"{number}\n"


def test_counts_are_the_same_with_any_number_of_threads():
    domain, rng = domain_of(3, 4, 5), np.random.default_rng(1)
    batches = [
        EncodedBatch(codes=[rng.integers(0, size, 50).astype(np.uint8) for size in domain.shape])
        for _ in range(40)
    ]
    accumulator, totals = MarginalsAccumulator(domain, [("a0", "a1"), ("a1", "a2")]), []
    for number in NUMBERS:
        pa.set_cpu_count(number)
        step = _CountBundle(accumulator)
        step.start_bundle()
        for batch in batches:
            step.process(batch)
        shards = [each.value for each in step.finish_bundle()]
        tables = accumulator.from_shards(shards).tables
        totals.append({names: table.tolist() for names, table in tables.items()})
    assert totals[0] == totals[1] == totals[2]
    assert sum(np.ravel(totals[0]["a0", "a1"])) == 2000


def test_sums_over_candidates_are_the_same_with_any_number_of_threads():
    rng, results = np.random.default_rng(2), []
    shape, number = (40, 50, 60, 7), 200_000
    codes = np.stack([rng.integers(0, size, number) for size in shape]).astype(np.int32)
    supports = [(), (0,), (1,), (2,), (3,), (0, 1), (1, 2), (0, 2), (2, 3)]
    basis = CandidateBasis(shape, supports, codes, np.zeros(number))
    coefficients = rng.normal(size=basis.num_coefficients)
    for threads in NUMBERS:
        pa.set_cpu_count(threads)
        log_sum, moments = basis.log_moments(coefficients)
        results.append((log_sum, moments.tobytes(), basis.synthesise(coefficients).tobytes()))
    assert results[0] == results[1] == results[2]


def test_files_are_the_same_with_any_number_of_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 100)
    release, written = release_of(num_records=200), []
    assert release.num_shards > 4
    for number in NUMBERS:
        pa.set_cpu_count(number)
        whole, draft = tmp_path / f"whole {number}", tmp_path / f"draft {number}"
        write_release(release, whole)
        step = _WriteFile(str(draft))
        step.start_bundle()
        elements = [(release.draw_id, shard.to_plain()) for shard in release.shards()]
        files = [file for element in elements for file in step.process(element)]
        files += [each.value for each in step.finish_bundle()]
        written.append(({path.name: path.read_bytes() for path in whole.iterdir()}, files))
        inside = {path.name: path.read_bytes() for path in draft.rglob("records-*")}
        assert all(data == written[-1][0][name] for name, data in inside.items()) and inside
    assert written[0] == written[1] == written[2]
