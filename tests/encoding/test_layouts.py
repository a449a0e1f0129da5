"""Columns of every Arrow type and layout are read like their values one by one."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pyarrow as pa
import pytest
from arrow_layouts import INDIRECT, UNIONS
from declared_packages import undeclared_modules
from every_column import contributions, every_column, everything_read, levels

from beam_dp.encoding.units import arrow_column

HERE = pathlib.Path(__file__).parent
INDIRECTLY = [*UNIONS, *INDIRECT]
READ_BARELY = """
import json
from declared_packages import forbid_undeclared
forbid_undeclared()
from every_column import everything_read
print(json.dumps(everything_read()))
"""


def test_values_of_a_column_contribute_as_they_do_alone():
    for column in [*INDIRECTLY, *every_column()]:
        alone = [contributions(arrow_column([value]))[0] for value in column]
        assert contributions(column) == alone, column.type


def test_chunks_contribute_like_the_whole_column():
    for column in [*INDIRECTLY, *every_column()]:
        whole = contributions(column)
        chunks = pa.chunked_array([column[1:], column[:1]], column.type)
        assert contributions(chunks) == whole[1:] + whole[:1], column.type
        assert levels(column[1:]) == levels(column)[1:], column.type
    assert contributions(pa.chunked_array([], pa.string())) == []


@pytest.mark.part
@pytest.mark.parametrize("read", [contributions, levels])
def test_every_slice_of_a_column_is_read_like_its_values(read):
    for column in [*INDIRECTLY, *every_column()]:
        whole = read(column)
        for start in range(len(column) + 1):
            for stop in range(start, len(column) + 1):
                assert read(column[start:stop]) == whole[start:stop], (column.type, start, stop)


def test_undeclared_packages_include_those_of_tests_only():
    assert {"pytest", "hypothesis"} <= undeclared_modules()
    assert not {"numpy", "pyarrow", "apache_beam", "grpc", "yaml"} & undeclared_modules()


@pytest.mark.job
def test_reads_columns_of_every_type_without_undeclared_packages():
    """In an environment that holds nothing but what setup.py requires."""
    folders = (HERE.parent.parent, HERE.parent, HERE)
    result = subprocess.run(
        [sys.executable, "-c", READ_BARELY],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
    )
    assert result.returncode == 0, result.stderr
    bare, here = json.loads(result.stdout), json.loads(json.dumps(everything_read()))
    assert [name for name in here if bare[name] != here[name]] == []
