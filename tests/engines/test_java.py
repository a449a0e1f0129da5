"""The example in Java: its rows go to a transform of this package, and released rows return."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from engines.cluster import ROOT, free_ports, wait_for_server

import beam_dp as dp

pytestmark = [pytest.mark.engines, pytest.mark.part]
BUILT = ROOT / "build" / "java"


@contextlib.contextmanager
def listening(port: int, *command: str) -> Iterator[None]:
    """A program, once it listens. What it starts as `python` is this Python."""
    path = os.pathsep.join((str(pathlib.Path(sys.executable).parent), os.environ["PATH"]))
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": path},
    ) as program:
        try:
            wait_for_server(program, port, None)
            yield
        finally:
            program.terminate()


def test_java_releases_its_rows_and_reads_them_back(prism, tmp_path):
    if not (BUILT / "jars").exists():
        pytest.skip("the example is not built: `make java` builds it, where Maven is installed")
    job, pool, expansion = free_ports(3)
    binary = prism[-1].removeprefix("--prism_location=")
    workers = "apache_beam.runners.worker.worker_pool_main"
    service = "apache_beam.runners.portability.expansion_service_main"
    environment = ("--environment_type=EXTERNAL", f"--environment_config=localhost:{pool}")
    names = "--fully_qualified_name_glob=beam_dp.yaml.*"
    out, rows = tmp_path / "ages", tmp_path / "ages.json"
    with (
        listening(job, binary, "--serve_http=false", f"--job_port={job}"),
        listening(pool, sys.executable, "-m", workers, f"--service_port={pool}"),
        listening(
            expansion, sys.executable, "-m", service, names, *environment, f"--port={expansion}"
        ),
    ):
        ended = subprocess.run(
            [
                *("java", "-cp", f"{BUILT}/classes:{BUILT}/jars/*", "CountAges"),
                *("--runner=PortableRunner", f"--jobEndpoint=localhost:{job}"),
                *(f"--expansionService=localhost:{expansion}", f"--release={out}"),
                f"--rows={rows}",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ended.returncode == 0, ended.stderr[-3000:]
    release = dp.read_release(out, kind=dp.IntervalRelease)
    found = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    assert sorted(row["low"] for row in found) == list(range(100))
    assert {row["draw_id"] for row in found} == {release.draw_id}
    # The noise is about ten records: of no records, as of twice as many, the sum is far off.
    assert abs(sum(row["value"] for row in found) - 500) < 250
