"""One embedded Flink and one cluster for all tests: starting a job server takes ten seconds."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from engines import moments
from engines.cluster import ROOT, FlinkCluster, find_jar, free_ports, missing, wait_for_server
from engines.moments import Moments
from fake_google_storage import FakeGoogleStorage, serving
from patience import HANG_SECONDS

from pipelines import job_servers


@pytest.fixture(scope="session", autouse=True)
def patient_programs() -> Iterator[None]:
    """Programs wait for an engine's answer as long as the tests do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(job_servers, "SECONDS_TO_ANSWER", HANG_SECONDS)
        yield


@pytest.fixture(scope="session")
def job_server_jar() -> str:
    """The path of the job server; skips with a reason if something is missing."""
    reason, jar = missing(), find_jar()
    if reason is not None or jar is None:
        pytest.skip(reason)
    return jar


@pytest.fixture(scope="session")
def flink_log(tmp_path_factory) -> pathlib.Path:
    """The log of the job server, and of Flink inside it."""
    return tmp_path_factory.mktemp("flink") / "job_server.log"


@pytest.fixture(scope="session")
def flink(job_server_jar, flink_log) -> Iterator[list[str]]:
    """Flags of an embedded Flink with two slots and workers in this process."""
    (port,) = free_ports(1)
    temporary = flink_log.parent / "temporary"
    temporary.mkdir()
    # Flink needs the package to copy a stream's state; not every job server opens it.
    opened = "--add-opens=java.base/java.util=ALL-UNNAMED"
    command = [
        *("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", opened),
        *(f"-Djava.io.tmpdir={temporary}", "-jar", job_server_jar),
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
            wait_for_server(server, port, flink_log)
            yield [
                "--runner=PortableRunner",
                f"--job_endpoint=localhost:{port}",
                "--environment_type=LOOPBACK",
                "--parallelism=2",
            ]
        finally:
            server.terminate()


@pytest.fixture(scope="session")
def prism() -> list[str]:
    """Flags for the Prism binary named by the environment or built by `make prism`."""
    built = ROOT / "prism-bin" / "prism"
    path = os.environ.get(job_servers.PRISM_VARIABLE) or (str(built) if built.exists() else None)
    if path is None:
        pytest.skip("Prism is missing: `make prism` builds it, where Go is installed")
    # Beam starts it for the first job of this process, which the others share.
    return ["--runner=PrismRunner", f"--prism_location={path}"]


@pytest.fixture(scope="session")
def waiting(tmp_path_factory) -> Moments:
    """The moments at which Python workers of the cluster can be made to wait."""
    return Moments(tmp_path_factory.mktemp("moments"))


@pytest.fixture(scope="session")
def google_storage() -> Iterator[FakeGoogleStorage]:
    """A service with a bucket, used by Python workers of the cluster and by all programs."""
    with pytest.MonkeyPatch.context() as patch, serving(patch) as service:
        yield service


@pytest.fixture(scope="session")
def cluster(job_server_jar, waiting, google_storage) -> Iterator[FlinkCluster]:
    """A cluster with two task managers, which finds its processes in /proc."""
    if sys.platform != "linux":
        pytest.skip("the cluster needs Linux")
    environment = {moments.VARIABLE: str(waiting.folder)}
    with FlinkCluster(job_server_jar, environment=environment) as started:
        yield started
