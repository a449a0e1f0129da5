"""Builds what is published into `dist/`: `make dist`, of the last commit, the same bytes each time.

Each wheel is made from the source distribution, so that one is complete. Wheels of Linux hold the
kernel for one kind of machine: the compiler of this one, which must be x86-64, and Zig's for the
other. Whatever is odd ends the build (`checks.py`).
"""

from __future__ import annotations

import gzip
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

from checks import odd_in_sources, odd_in_wheel

ROOT = pathlib.Path(__file__).resolve().parents[2]
GLIBC = "2.17"
# Zig must not compile for x86-64: its run-time library takes every processor for the oldest, so
# that the kernel would be right and many times slower.
COMPILERS = {
    "x86_64": "cc",
    "aarch64": f"{sys.executable} -m ziglang cc -target aarch64-linux-gnu.{GLIBC}",
}


def run(*command: str | pathlib.Path, folder: pathlib.Path, **environment: str) -> str:
    """Runs a command with the tools of this environment; what it prints is shown if it fails."""
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nerror: {' '.join(map(str, command))}: failed")
    return done.stdout


def committed(folder: pathlib.Path) -> pathlib.Path:
    """Returns a copy of the last commit: nothing else that lies in a checkout is ever published."""
    archive = folder / "commit.tar"
    run("git", "archive", "--output", archive, "HEAD", folder=ROOT)
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "commit", filter="tar")
    return folder / "commit"


def source_distribution(source: pathlib.Path, output: pathlib.Path, moment: int) -> pathlib.Path:
    """Builds a source distribution; its archive is packed anew, without times and owners."""
    made = source / "made"
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", made, folder=source)
    (archive,) = made.iterdir()
    plain = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=plain, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    packed = output / archive.name
    with packed.open("wb") as file, gzip.GzipFile("", "wb", 9, file, moment) as zipped:
        zipped.write(plain.getvalue())
    return packed


def wheel(sources: pathlib.Path, machine: str, output: pathlib.Path) -> pathlib.Path:
    """Builds a wheel from the unpacked source distribution, for a kind of machine."""
    made = sources.parent / f"made-{machine}"
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", made)
    compiler = COMPILERS[machine]
    run(
        *build,
        folder=sources,
        CC=compiler,
        CFLAGS="-g0",
        LDSHARED=f"{compiler} -shared -s",
        _PYTHON_HOST_PLATFORM=f"linux-{machine}",
    )
    shutil.rmtree(sources / "build")  # no other machine's kernel may be taken for built
    (built,) = made.iterdir()
    # Of other machines than this, auditwheel takes no name of a platform, but finds the right one.
    platform = f"manylinux_{GLIBC.replace('.', '_')}_{machine}" if machine == "x86_64" else "auto"
    repair = ("auditwheel", "repair", "--only-plat", "--plat", platform)
    run(*repair, "--wheel-dir", made, built, folder=sources)
    built.unlink()
    (repaired,) = made.iterdir()
    return pathlib.Path(shutil.move(repaired, output))


def build(output: pathlib.Path) -> None:
    """Builds and checks the source distribution and the wheels of the last commit.

    Args:
        output: an empty folder.
    """
    if os.uname().machine != "x86_64":
        sys.exit(f"error: dist: this machine is '{os.uname().machine}'; must be x86_64")
    os.umask(0o022)  # modes of files are part of an archive
    os.environ["SOURCE_DATE_EPOCH"] = run("git", "log", "-1", "--format=%ct", folder=ROOT).strip()
    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    with tempfile.TemporaryDirectory() as scratch:
        commit = committed(pathlib.Path(scratch))
        archive = source_distribution(commit, output, moment)
        odd = odd_in_sources(archive, commit)
        unpacked = pathlib.Path(scratch) / archive.name.removesuffix(".tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(scratch, filter="data")
        for machine in COMPILERS:
            odd += odd_in_wheel(wheel(unpacked, machine, output), machine, GLIBC, commit)
    if odd:
        sys.exit("\n".join(f"error: {line}" for line in odd))
    files = sorted(output.iterdir())
    wheels = [path for path in files if path.suffix == ".whl"]
    run("twine", "check", "--strict", *files, folder=output)
    run("check-wheel-contents", *wheels, folder=output)
    run("abi3audit", "--strict", *wheels, folder=output)
    for path in files:
        print(f"{path.stat().st_size:>9,} bytes  {path.name}")


def main() -> None:
    """Builds into `dist/`, or the folder that the command line names, emptied before."""
    output = pathlib.Path(*sys.argv[1:2] or [ROOT / "dist"]).resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    build(output)


if __name__ == "__main__":
    main()
