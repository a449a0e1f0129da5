"""What people copy from the README passes a type checker, as the package's own code does."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
from documents.blocks import ROOT, blocks_of


def checked(folder: pathlib.Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "block.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml"]
    return subprocess.run(
        [*command, str(folder / "block.py")], capture_output=True, text=True, cwd=ROOT, check=False
    )


@pytest.mark.slow
def test_readme_code_passes_mypy(tmp_path):
    """Read from the top: a block may use what an earlier one has named."""
    blocks = [block.text for block in blocks_of("README.md") if block.kind == "python"]
    assert blocks
    done = checked(tmp_path, "".join(blocks))
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_mypy_infers_the_kind_and_finds_a_misspelt_relation(tmp_path):
    done = checked(
        tmp_path,
        "import beam_dp as dp\n"
        'dp.read_release("out", kind=dp.IntervalRelease).answer([1], [2]).no_such_field\n'
        'dp.read_release("out").answer\n'
        'dp.Guarantee(1, 0, "add_or_remove_two", "record", 1)\n',
    )
    found = re.findall(r"block\.py:(\d+): error: .*\[([\w-]+)\]", done.stdout)
    assert found == [("2", "attr-defined"), ("3", "attr-defined"), ("4", "arg-type")], done.stdout
