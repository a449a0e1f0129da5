"""What may be in a distribution: files of the commit, byte for byte, and what is generated.

Each function returns a line for each oddity: a test, a cache, a file that was changed on the way, a
kernel that is missing, or is for another machine than the wheel's name says.
"""

from __future__ import annotations

import pathlib
import tarfile
import zipfile

KERNEL = "beam_dp/hashing/_kernel.abi3.so"
# Where setup.py puts packages that lie elsewhere in a checkout.
MOVED = {"beam_dp/pipelines/": "pipelines/"}
# Machines by their number in the header of an ELF file, which is at byte 18.
ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
METADATA |= {"sboms/beam_dp.cdx.json"}
SOURCES = (
    "beam_dp/",
    "pipelines/",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "pyproject.toml",
    "setup.py",
)
GENERATED = ("PKG-INFO", "setup.cfg")


def _is_of(path: pathlib.Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def odd_in_sources(archive: pathlib.Path, source: pathlib.Path) -> list[str]:
    """Returns what is odd in a source distribution.

    Args:
        archive: the file.
        source: a copy of what is committed.
    """
    odd = []
    with tarfile.open(archive) as opened:
        for member in opened:
            name = member.name.partition("/")[2]
            file = opened.extractfile(member)
            if file is None or name in GENERATED or ".egg-info/" in name:
                continue
            if not name.startswith(SOURCES) or not _is_of(source / name, file.read()):
                odd.append(f"{archive.name}: {name} does not belong there, or is not as committed")
    return odd


def odd_in_wheel(wheel: pathlib.Path, machine: str, glibc: str, commit: pathlib.Path) -> list[str]:
    """Returns what is odd in a wheel.

    Args:
        wheel: the file.
        machine: that it is for.
        glibc: the oldest GNU C library that it may say to need.
        commit: a copy of what is committed.
    """
    odd = []
    tag = f"cp311-abi3-manylinux2014_{machine}.manylinux_{glibc.replace('.', '_')}_{machine}"
    if not wheel.stem.endswith(f"-{tag}"):
        odd.append(f"{wheel.name}: not named as a wheel for {machine} of glibc {glibc}")
    with zipfile.ZipFile(wheel) as opened:
        files = {name: opened.read(name) for name in opened.namelist() if name[-1] != "/"}
    for name, content in files.items():
        folder, _, inner = name.partition(".dist-info/")
        if name == KERNEL:
            found = ELF_MACHINES.get(int.from_bytes(content[18:20], "little"))
            if found != machine:
                odd.append(f"{wheel.name}: its kernel is for {found}")
        elif inner in METADATA and "/" not in folder:
            continue
        else:
            place = name
            for moved, original in MOVED.items():
                place = place.replace(moved, original, 1)
            if not name.startswith("beam_dp/") or not _is_of(commit / place, content):
                odd.append(f"{wheel.name}: {name} does not belong there, or is not as committed")
    if [name for name in files if name.endswith((".so", ".pyd"))] != [KERNEL]:
        odd.append(f"{wheel.name}: not exactly one compiled file: {KERNEL}")
    return odd
