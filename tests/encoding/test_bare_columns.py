"""Columns in an environment that holds nothing but what setup.py requires."""

import json
import os
import pathlib
import subprocess
import sys

from declared_packages import undeclared_modules
from every_column import everything_read

HERE = pathlib.Path(__file__).parent
READ_BARELY = """
import json
from declared_packages import forbid_undeclared
forbid_undeclared()
from every_column import everything_read
print(json.dumps(everything_read()))
"""


def test_undeclared_packages_include_those_of_tests_only():
    assert {"pytest", "hypothesis"} <= undeclared_modules()
    assert not {"numpy", "pyarrow", "apache_beam", "grpc", "yaml"} & undeclared_modules()


def test_reads_columns_of_every_type_without_undeclared_packages():
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
