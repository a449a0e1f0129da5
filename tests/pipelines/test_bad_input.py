"""Every bad input costs one line that names flag, value and condition, and exit code 2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import job_flags, refused_line
from pytest import CaptureFixture

from pipelines.release_synthetic_database import main

ROOT = Path(__file__).resolve().parent.parent.parent


def refused(capfd: CaptureFixture[str], folder: Path, argv: list[str], *patterns: str) -> None:
    refused_line(main, argv, capfd, *patterns, folder=folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_refuses_unreadable_input(tmp_path, capfd):
    argv = job_flags(tmp_path)
    (tmp_path / "people.parquet").chmod(0)
    refused(capfd, tmp_path, argv, r"--input: '.*people\.parquet' is not valid: must")


def test_refuses_binary_domain_file(tmp_path, capfd):
    argv = job_flags(tmp_path)
    (tmp_path / "domain.json").write_bytes(b'{"age": \xff}')
    refused(capfd, tmp_path, argv, r"--domain: '.*domain\.json' is not valid: must be UTF-8")


def test_domain_file_may_start_with_a_byte_order_mark(tmp_path, capfd):
    argv = [*job_flags(tmp_path), "--validate_only"]
    path = tmp_path / "domain.json"
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert main(argv) == 0, capfd.readouterr().err


@pytest.mark.part
def test_refusal_in_a_new_process_prints_only_one_line(tmp_path):
    argv = job_flags(tmp_path, epsilon="0")
    result = subprocess.run(
        [sys.executable, "-m", "pipelines.release_synthetic_database", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert re.fullmatch(r"error: --epsilon: 0(\.0)? is not valid: [^\n]+\n", result.stderr)
