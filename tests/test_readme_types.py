"""What people copy from the README passes a type checker, as the package's own code does."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from documents.blocks import ROOT, blocks_of

WRONG = """\
import beam_dp as dp
dp.read_release("out", kind=dp.IntervalRelease).answer([1], [2]).no_such_field
dp.read_release("out").answer
dp.Guarantee(1, 0, "add_or_remove_two", "record", 1)
"""


@pytest.mark.part
def test_mypy_accepts_the_readme_and_finds_a_wrong_kind_field_and_relation(tmp_path):
    """Read from the top: a block may use what an earlier one has named."""
    blocks = [block.text for block in blocks_of("README.md") if block.kind == "python"]
    assert blocks
    (tmp_path / "readme.py").write_text("".join(blocks), encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml"]
    files = [str(tmp_path / name) for name in ("readme.py", "wrong.py")]
    done = subprocess.run([*command, *files], capture_output=True, text=True, cwd=ROOT, check=False)
    found = re.findall(r"(\w+)\.py:(\d+): error: .*\[([\w-]+)\]", done.stdout)
    lines = (("2", "attr-defined"), ("3", "attr-defined"), ("4", "arg-type"))
    assert found == [("wrong", *line) for line in lines], done.stdout
