"""Systems without POSIX, such as Windows, can read releases.

The tests remove the modules that such a system lacks before the package is loaded.
"""

import pathlib
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.job
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
LESS = """
import os, posixpath, sys

for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fork", "getuid", "mkfifo"):
    delattr(os, name)
"""
READ = """
from beam_dp.cli.main import main
for release in sys.argv[1:]:
    for command in (["describe"], ["report", f"--output={release.rpartition('/')[2]}.html"]):
        assert main([*command, release]) == 0
"""
WRITE = """
from beam_dp.releases.kinds import read_release, write_release
write_release(read_release(sys.argv[1]), "again")
print(read_release("again").query("member").count())
"""
JOIN = """
import ntpath
os.path = sys.modules["os.path"] = ntpath
from beam_dp.releases.windows.horizon_files import block_directory, window_directory
print(window_directory("s3://a/b", 7), block_directory(r"C:\\week", 24, 0))
"""


def run(program: str, folder: pathlib.Path, *releases: pathlib.Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", LESS + program, *map(str, releases)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_reads_releases_without_posix(tmp_path):
    done = run(READ, tmp_path, GOLDEN / "horizon", GOLDEN / "synthetic_database")
    assert (done.returncode, done.stderr) == (0, "")


def test_writes_a_release_without_posix(tmp_path):
    done = run(WRITE, tmp_path, GOLDEN / "synthetic_database")
    assert done.returncode == 0, done.stderr


def test_rejects_link_as_a_file_of_a_release(tmp_path):
    copied = tmp_path / "copied"
    shutil.copytree(GOLDEN / "synthetic_database", copied)
    (payload,) = copied.glob("records-*")
    payload.rename(tmp_path / "elsewhere")
    payload.symlink_to(tmp_path / "elsewhere")
    done = run(READ, tmp_path, copied)
    assert done.returncode != 0 and "is not a regular file" in done.stderr


def test_window_directories_have_slashes_on_every_system(tmp_path):
    done = run(JOIN, tmp_path)
    assert done.stdout == "s3://a/b/windows/000007 C:\\week/levels/24/000000\n", done.stderr
