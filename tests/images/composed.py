"""The services of compose.yaml, started in the order that it asks for, with podman-compose."""

import json
import pathlib
import shutil
import subprocess

import yaml
from images.building import LIMITS, ROOT, TOOLS, Storage, run, without_digests
from patience import wait_for

# An internal network of this podman knows no names.
_INTERNAL, _OPEN = "internal: true", "internal: false"


class Composed:
    """A folder with compose.yaml and what it mounts, and the services that were started there.

    Podman-compose waits for no health check before version 4.6 of podman: it is told to start one
    service at a time, once what `depends_on` says is true.

    Args:
        storage: of the images.
        folder: which must be empty.
        settings: of ``.env``.
    """

    def __init__(self, storage: Storage, folder: pathlib.Path, settings: dict[str, str]) -> None:
        self.storage, self.settings = storage, settings
        self.folder = folder / "deploy"
        text = without_digests("compose.yaml")
        assert _INTERNAL in text
        (self.folder / "landing").mkdir(parents=True)
        (self.folder / "compose.yaml").write_text(text.replace(_INTERNAL, _OPEN), encoding="utf-8")
        shutil.copytree(ROOT / "examples" / "stream", folder / "examples" / "stream")
        self.services = yaml.safe_load(text)["services"]
        self._started: set[str] = set()
        self.set_up()

    def set_up(self, **settings: str) -> None:
        """Writes ``.env``, with some settings changed for services that are started from now on."""
        self.settings.update(settings)
        lines = [f"{name}={value}\n" for name, value in self.settings.items()]
        (self.folder / ".env").write_text("".join(lines), encoding="utf-8")

    def arrive(self, number: int) -> subprocess.Popen[bytes]:
        """Lets so many files arrive, one every five seconds."""
        command = [
            str(self.folder.parent / "examples" / "stream" / "arrive.sh"),
            "landing",
            str(number),
        ]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL)

    def compose(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command of podman-compose."""
        options = " ".join(self.storage.podman_options)
        program = [str(TOOLS / "podman-compose"), "--in-pod=0", f"--podman-args={options}"]
        program.append(f"--podman-run-args={' '.join(LIMITS)}")
        quiet = {"DISABLE_HC_SYSTEMD": "true"}
        return run([*program, *command], folder=self.folder, environment=quiet, check=check)

    def start(self, service: str) -> None:
        """Starts a service, after those that it depends on."""
        if service in self._started:
            return
        self._started.add(service)
        for other, asked in self.services[service].get("depends_on", {}).items():
            self.start(other)
            self._wait(other, asked["condition"])
        self.compose("up", "--detach", "--no-build", "--no-deps", service)

    def run(self, service: str, *command: str) -> str:
        """What a command of one's own says in a new container of a service."""
        return self.compose("run", "--rm", "--no-deps", "-T", service, *command).stdout

    def logs(self, service: str) -> str:
        """What a service has said."""
        done = self.storage.podman("logs", self.container(service))
        return done.stdout + done.stderr

    def state(self, service: str) -> dict[str, object]:
        """Of its container: whether it runs, and how it ended."""
        told = self.storage.podman("inspect", self.container(service))
        state: dict[str, object] = json.loads(told.stdout)[0]["State"]
        return state

    def container(self, service: str) -> str:
        """The name of a service's container."""
        return f"beam_dp_{service}_1"

    def wait_until_it_ends(self, service: str) -> int:
        """Returns the exit code of a service."""
        wait_for(f"the end of {service}", lambda: not self.state(service)["Running"])
        return int(str(self.state(service)["ExitCode"]))

    def _wait(self, service: str, condition: str) -> None:
        if condition == "service_completed_successfully":
            assert self.wait_until_it_ends(service) == 0, self.logs(service)
        elif condition == "service_healthy":

            def healthy() -> bool:
                assert self.state(service)["Running"], self.logs(service)
                check = ("healthcheck", "run", self.container(service))
                return self.storage.podman(*check, check=False).returncode == 0

            wait_for(f"{service} to be healthy", healthy)
