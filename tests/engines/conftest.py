"""One job server of an embedded Flink for all tests: a server for each job takes ten seconds."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SECONDS_TO_START = 120


@pytest.fixture(scope="session")
def job_server_jar() -> str:
    """The path of the job server; a skip that says what is missing."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    jars = sorted((ROOT / "flink-jars").glob("*-job-server-*.jar"))
    jar = os.environ.get("BEAM_DP_FLINK_JOB_SERVER_JAR") or (str(jars[-1]) if jars else None)
    if jar is None:
        pytest.skip("no job server of Flink: `make flink` makes one, where Maven is installed")
    return jar


@pytest.fixture(scope="session")
def flink_log(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What the job server, and Flink inside it, say."""
    return tmp_path_factory.mktemp("flink") / "job_server.log"


@pytest.fixture(scope="session")
def flink(job_server_jar: str, flink_log: pathlib.Path) -> Iterator[list[str]]:
    """Flags of an embedded Flink of two slots, with workers in this process."""
    port = _free_port()
    temporary = flink_log.parent / "temporary"
    temporary.mkdir()
    # Flink's copies of a stream's state need the package; not every job server opens it itself.
    opened = "--add-opens=java.base/java.util=ALL-UNNAMED"
    command = [
        *("java", opened, f"-Djava.io.tmpdir={temporary}", "-jar", job_server_jar),
        *("--flink-master", "[local]"),
        *("--artifacts-dir", str(flink_log.parent / "artifacts")),
        *("--job-host", "localhost", "--job-port", str(port)),
        *("--artifact-port", "0", "--expansion-port", "0"),
    ]
    with (
        flink_log.open("w", encoding="utf-8") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as server,
    ):
        try:
            _wait_until_it_answers(server, port, flink_log)
            yield [
                "--runner=PortableRunner",
                f"--job_endpoint=localhost:{port}",
                "--environment_type=LOOPBACK",
                "--parallelism=2",
            ]
        finally:
            server.terminate()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_until_it_answers(server: subprocess.Popen[bytes], port: int, log: pathlib.Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("localhost", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the job server did not start:\n{log.read_text(encoding='utf-8')[-3000:]}")
