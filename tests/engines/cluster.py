"""A Flink cluster on this machine: each part in its own process, as on many machines.

    python -m engines.cluster [--jar JAR]     (in tests/; runs until Ctrl-C)

A job manager, two task managers, Beam's job server and a pool of Python workers. The jar made by
`make flink` contains the job server and Flink. Needs Linux, Java 17, and about 2 GB of memory.

Flink and the pool listen on the loopback interface only. Beam's job server, and the servers of task
managers for their Python workers, have no flag for that: while the cluster runs, they listen on all
interfaces, on ports chosen by the system.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from patience import HANG_SECONDS, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
JAR_VARIABLE = "BEAM_DP_FLINK_JOB_SERVER_JAR"
SLOTS = 2  # of each task manager: one that is left carries the job on
_HOST = "127.0.0.1"
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_JOB_SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
# Modules that Flink's own scripts open on Java 17.
_OPENED = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "text", "time", "util")
_OPENED += ("util.concurrent", "util.concurrent.atomic", "util.concurrent.locks")
# Flink's scripts compute the sizes; without them each must be given.
_CONFIGURATION = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc_port}
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest_port}
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: {slots}
taskmanager.load-balance.mode: SLOTS
taskmanager.cpu.cores: 1.0
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.task.heap.size: 448m
taskmanager.memory.managed.size: 128m
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 64m
taskmanager.memory.jvm-overhead.max: 64m
heartbeat.interval: 500
heartbeat.rpc-failure-threshold: 1
heartbeat.timeout: 10000
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 3
restart-strategy.fixed-delay.delay: 200 ms
rest.retry.max-attempts: 3
rest.retry.delay: 500
classloader.resolve-order: parent-first
io.tmp.dirs: {temporary}
"""


def find_jar() -> str | None:
    """The job server that the environment names or `make flink` put into the checkout, if any."""
    jars = sorted((ROOT / "flink-jars").glob("*job-server*.jar"))
    return os.environ.get(JAR_VARIABLE) or (str(jars[-1]) if jars else None)


def missing() -> str | None:
    """What Flink lacks on this machine, in one line; None if it can start."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if find_jar() is None:
        return "no job server of Flink: `make flink` makes one, where Maven is installed"
    return None


class FlinkCluster:
    """A cluster, as a context manager that ends all processes and removes all files on exit.

    ``environment``: more variables of the Python workers.
    """

    def __init__(
        self, jar: str, num_task_managers: int = 2, environment: dict[str, str] | None = None
    ) -> None:
        self.jar = jar
        self.num_task_managers = num_task_managers
        self.environment = environment or {}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="flink-cluster-"))
        self.temporary = self.folder / "temporary"
        self.workers = self.folder / "workers"
        self.task_managers: list[subprocess.Popen[bytes]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self._num_logs = 0
        self._rpc_port, self._rest_port, self._pool_port = free_ports(3)
        self._job_endpoint = ""

    def __enter__(self) -> FlinkCluster:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self) -> None:
        self.temporary.mkdir()
        self.workers.mkdir()
        self.start_job_manager()
        self._start_pool()
        server = self._start_job_server()
        for _ in range(self.num_task_managers):
            self.start_task_manager()
        self.wait_for_task_managers()
        pattern = re.compile(r"JobService started on \S+:(\d+)")
        port = wait_for("the job server", lambda: pattern.search(server.read_text("utf-8")))[1]
        self._job_endpoint = f"{_HOST}:{port}"
        wait_for("the worker pool", lambda: answers(_HOST, self._pool_port))

    def stop(self) -> None:
        """Kills every process, including child processes, and removes all files."""
        for process in self.processes:
            kill_group(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def flags(self, parallelism: int = 2) -> list[str]:
        """Beam's flags for a job on this cluster."""
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self._job_endpoint}",
            f"--flink_master={self.master}",
            "--environment_type=EXTERNAL",
            f"--environment_config={_HOST}:{self._pool_port}",
            f"--parallelism={parallelism}",
        ]

    @property
    def master(self) -> str:
        """What ``--flink_master`` names."""
        return f"{_HOST}:{self._rest_port}"

    def rest(self, path: str) -> Any:
        """The response of the job manager's REST interface."""
        with urllib.request.urlopen(f"http://{self.master}{path}", timeout=HANG_SECONDS) as answer:
            return json.load(answer)

    def start_job_manager(self) -> None:
        """Starts the job manager; replaces a killed one at the same address."""
        self._configure("job-manager")
        arguments = ["--configDir", str(self.folder / "job-manager"), "--executionMode", "cluster"]
        self.job_manager, _ = self._java("job-manager", 512, _JOB_MANAGER, arguments)

    def kill_job_manager(self) -> None:
        """Kills it as a crash does."""
        kill_group(self.job_manager)

    def start_task_manager(self) -> None:
        """Starts one more."""
        name = f"task-manager-{self._num_logs}"
        self._configure(name)
        arguments = ["--configDir", str(self.folder / name)]
        process, _ = self._java(name, 576, _TASK_MANAGER, arguments)
        self.task_managers.append(process)

    def kill_task_manager(self, process: subprocess.Popen[bytes]) -> None:
        """Kills one as a crash does. Its temporary files remain, as after a crash."""
        kill_group(process)
        self.task_managers.remove(process)

    def remove_files_of_the_dead(self) -> None:
        """Removes temporary files of killed task managers, as an operator must."""
        alive = {str(process.pid) for process in self.processes if process.poll() is None}
        for folder in self.temporary.iterdir():
            owner = folder / "pid"
            if owner.exists() and owner.read_text() not in alive:
                shutil.rmtree(folder, ignore_errors=True)

    def wait_for_task_managers(self) -> None:
        """Waits until all slots are free and no job runs."""

        def ready() -> bool:
            with contextlib.suppress(OSError):
                overview = self.rest("/overview")
                wanted = SLOTS * len(self.task_managers)
                return bool(overview["slots-available"] == overview["slots-total"] == wanted)
            return False

        wait_for("the task managers", ready)

    def task_manager_of(self, control: str) -> subprocess.Popen[bytes]:
        """Returns the task manager that controls a Python worker, found by its port."""
        inode = _listening_inode(int(control.rpartition(":")[2]))
        for process in self.task_managers:
            for file in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(file) == f"socket:[{inode}]":
                        return process
        raise LookupError(f"no task manager listens on {control}")

    def python_workers(self) -> dict[int, str]:
        """Python workers since the last ``forget_workers``, with the address that controls each."""
        return {int(path.name): path.read_text() for path in self.workers.iterdir()}

    def forget_workers(self) -> None:
        """Forgets the workers of jobs that have ended."""
        for path in self.workers.iterdir():
            path.unlink()

    def _configure(self, name: str) -> None:
        folder, temporary = self.folder / name, self.temporary / name
        folder.mkdir(exist_ok=True)
        temporary.mkdir(exist_ok=True)
        text = _CONFIGURATION.format(
            rpc_port=self._rpc_port,
            rest_port=self._rest_port,
            slots=SLOTS,
            temporary=temporary,
        )
        (folder / "config.yaml").write_text(text, encoding="utf-8")

    def _start_job_server(self) -> pathlib.Path:
        """Starts Beam's job server, and returns its log.

        The server sends its own jar to the cluster with each job: about 200 MB, several times.
        This cluster already has the jar, like one with Beam in Flink's folder lib/. So the
        server's jar gets another name, which is removed once the server has opened it; a missing
        jar is not sent.
        """
        jar = self.folder / "job-server.jar"
        jar.symlink_to(os.path.abspath(self.jar))
        self._configure("job-server")
        ports = [f"--{name}-port=0" for name in ("job", "artifact", "expansion")]
        arguments = [
            f"--flink-master={self.master}",
            f"--flink-conf-dir={self.folder / 'job-server'}",
            f"--artifacts-dir={self.temporary / 'job-server' / 'artifacts'}",
            *ports,
        ]
        _, log = self._java("job-server", 512, _JOB_SERVER, arguments, jar=str(jar))
        wait_for("the job server", lambda: "JobService started" in log.read_text("utf-8"))
        jar.unlink()
        return log

    def _start_pool(self) -> None:
        path = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        temporary = self.temporary / "python"
        temporary.mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "TMPDIR": str(temporary),
            **self.environment,
        }
        command = [sys.executable, "-m", "engines.worker_pool"]
        command += [str(self._pool_port), str(self.workers)]
        self._run("worker-pool", command, environment)

    def _java(
        self, name: str, heap: int, program: str, arguments: Sequence[str], jar: str | None = None
    ) -> tuple[subprocess.Popen[bytes], pathlib.Path]:
        command = ["java", f"-Xmx{heap}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in _OPENED]
        command += [f"-Djava.io.tmpdir={self.temporary / name}", "-cp", jar or self.jar, program]
        process, log = self._run(name, [*command, *arguments], dict(os.environ))
        (self.temporary / name / "pid").write_text(str(process.pid))
        return process, log

    def _run(
        self, name: str, command: list[str], environment: dict[str, str]
    ) -> tuple[subprocess.Popen[bytes], pathlib.Path]:
        self._num_logs += 1
        log = self.folder / f"{self._num_logs}-{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # so that it can be killed with all that it started
            )
        self.processes.append(process)
        return process, log


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills a process that leads its group, and the group, with signal 9."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_ports(number: int) -> list[int]:
    """Free ports of the loopback interface."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind((_HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def answers(host: str, port: int) -> bool:
    """Whether something listens on the port."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=HANG_SECONDS):
        return True
    return False


def wait_for_server(process: subprocess.Popen[Any], port: int, log: pathlib.Path | None) -> None:
    """Waits until a process listens on a port; fails with the end of its log if it ends before."""
    wait_for(f"port {port}", lambda: answers("localhost", port) or process.poll() is not None)
    said = "" if log is None else log.read_text(encoding="utf-8", errors="replace")[-3000:]
    assert process.poll() is None, f"the server did not start:\n{said}"


def _listening_inode(port: int) -> str:
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                return fields[9]
    raise LookupError(f"nobody listens on port {port}")


def main() -> int:
    """Runs a cluster until it is interrupted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jar", default=find_jar(), help="the job server; by default make flink's")
    arguments = parser.parse_args()
    if arguments.jar is None:
        print(f"error: --jar: missing; {missing()}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with FlinkCluster(arguments.jar) as cluster, contextlib.suppress(KeyboardInterrupt):
        print(f"Flink's pages: http://{cluster.master}  Logs: {cluster.folder}")
        print("Run a program with:", *cluster.flags(), flush=True)
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
