"""Builds the images where neither Docker nor a registry of images can be reached.

A builder that needs no daemon, Buildah, builds the Dockerfile as it stands, in a storage of its
own that is gone afterwards. The images that it begins with are stand-ins, made of a bare Debian
that debootstrap makes (``stand_ins/Dockerfile``), and of Beam's Go module.
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Sequence

from engines.cluster import find_jar, missing as missing_of_flink
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOLS = ROOT / ".venv-images" / "bin"
_STAND_INS = pathlib.Path(__file__).with_name("stand_ins")
_SUITE = "bookworm"
_BARE = "python3-pip,python3-dev,python-is-python3,ca-certificates"
_BOOT = "github.com/apache/beam/sdks/v2/python/container"
# How programs of an image reach the registry of packages as this machine does.
_SETTINGS = ("/etc/pip.conf", "/etc/ssl/certs", "/usr/share/ca-certificates")
_SETTINGS += ("/usr/local/share/ca-certificates", str(pathlib.Path.home() / ".config" / "pip"))
# A container's own limits may not be above those of this machine.
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=8192:8192")


def missing() -> str | None:
    """What building lacks on this machine, in a line; None if nothing."""
    if os.geteuid() != 0:
        return "images are built by root only"
    programs = ("buildah", "podman", "runc", "debootstrap", "go")
    absent = [name for name in programs if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if not (TOOLS / "podman-compose").exists():
        return "no .venv-images: `make test-images` makes it"
    return missing_of_flink()


def without_digests(name: str) -> str:
    """A file of ``deploy/``, whose images are known by their tags: stand-ins have other digests."""
    text = (ROOT / "deploy" / name).read_text(encoding="utf-8")
    return re.sub(r"@sha256:[0-9a-f]{64}\b", "", text)


@functools.cache
def arguments() -> dict[str, str]:
    """The arguments of the Dockerfile that have a default, and the version of Beam in its image."""
    found = dict(re.findall(r"^ARG (\w+)=(\S+)$", without_digests("Dockerfile"), re.M))
    return {**found, "BEAM": found["BEAM_IMAGE"].rpartition(":")[2]}


@functools.cache
def pinned() -> dict[str, str]:
    """The versions of the packages that an image has, by their names, in its Python."""
    version = arguments()["PYTHON_IMAGE"].partition(":")[2].partition("-")[0]
    text = (ROOT / "deploy" / "images" / "requirements.txt").read_text(encoding="utf-8")
    stated = map(Requirement, re.findall(r"^(\S+==.+) \\$", text, re.M))
    where = {"python_version": version, "python_full_version": f"{version}.0"}
    return {
        each.name: str(each.specifier).removeprefix("==")
        for each in stated
        if each.marker is None or each.marker.evaluate(where)
    }


def stand_ins() -> dict[str, str]:
    """The images that are played: which stage of ``stand_ins/Dockerfile`` plays each."""
    pattern = r"^ +image: (flink|apache/\S+_job_server|postgres):(\S+)$"
    named = re.findall(pattern, without_digests("compose.yaml"), re.M)
    stages = {"flink": "flink", "postgres": "postgres"}
    played = {f"{name}:{tag}": stages.get(name, "job-server") for name, tag in named}
    bases = {
        arguments()[f"{stage.upper()}_IMAGE"]: stage for stage in ("python", "beam", "launcher")
    }
    return {**bases, **played}


class Storage:
    """Images and containers of these tests alone.

    Args:
        folder: that holds them, which must be empty.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.options = [f"--root={folder / 'images'}", f"--runroot={folder / 'running'}"]
        self.podman_options = [*self.options, "--runtime=runc", "--cgroup-manager=cgroupfs"]

    def build(self, context: pathlib.Path, tag: str, *given: str) -> None:
        """Builds an image; what it says is in the error."""
        exist = [path for path in _SETTINGS if pathlib.Path(path).exists()]
        # A stand-in takes packages of Debian only, and may write such files itself.
        mounted = [f"--volume={path}:{path}:ro" for path in exist if context == ROOT]
        command = ["buildah", *self.options, "build", "--isolation=chroot", "--network=host"]
        command += ["--pull=never", "--layers", *mounted, f"--tag={tag}", *given]
        file = context / "Dockerfile"
        if context == ROOT:
            file = self.folder / "Dockerfile"
            file.write_text(without_digests("Dockerfile"), encoding="utf-8")
        command += [f"--file={file}", str(context)]
        run(command)

    def build_stand_ins(self) -> None:
        """Builds what plays the images of others."""
        context = self.folder / "context"
        shutil.copytree(_STAND_INS, context)
        bare, programs = self.folder / "bare", self.folder / "programs"
        run(["debootstrap", "--variant=minbase", f"--include={_BARE}", _SUITE, str(bare)])
        run(["tar", "-C", str(bare), "-cf", str(context / "bare.tar"), "."])
        shutil.rmtree(bare)
        built = {"GOBIN": str(programs), "CGO_ENABLED": "0"}
        run(["go", "install", f"{_BOOT}@v{arguments()['BEAM']}"], environment=built)
        shutil.copy(programs / "container", context / "boot")
        shutil.copy(str(find_jar()), context / "job-server.jar")
        for name, stage in stand_ins().items():
            library = "" if "/" in name else "library/"
            registry = "" if "." in name.rpartition("/")[0] else "docker.io/"
            self.build(context, f"{registry}{library}{name}", f"--target={stage}")

    def podman(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command of podman, whose health checks nothing runs by itself here."""
        quiet = {"DISABLE_HC_SYSTEMD": "true"}
        return run(["podman", *self.podman_options, *command], environment=quiet, check=check)

    def inside(
        self, image: str, *command: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in a new container of an image."""
        return self.podman("run", "--rm", "--network=none", *LIMITS, image, *command, check=check)


def run(
    command: Sequence[str],
    *,
    folder: pathlib.Path | None = None,
    environment: dict[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs a command; the end of what it says is in the error."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode != 0:
        said = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        raise AssertionError(f"{' '.join(command)}\nended with {done.returncode}\n{said}")
    return done
