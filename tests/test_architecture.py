"""Rules for every source file: who imports Beam, where randomness is drawn, how long a file is.

The rules are functions of source texts, so that the self-test at the end can show, for each one,
a source that breaks it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

import pytest
from declared_packages import declared_modules
from source_imports import cycles, importing, imports, is_under, module_name, nodes

MAX_LINES = 500

BEAM_SIDE = ("beam_dp/transforms/", "pipelines/")
RANDOM_MODULES = ("opendp", "secrets", "random", "uuid")
RANDOM_ALLOWED = "beam_dp/noise/source.py"
# Counts from the card of a committed release, never from records.
METRICS_ALLOWED = "beam_dp/transforms/job_page.py"
_NO_COUNTERS = ("opendp.metrics", "sklearn.metrics")
# What extras bring, imported where it is used; and what Beam itself is made of.
UNDECLARED_ALLOWED = {
    "beam_dp/releases/synthetic_database/learned.py": ("sklearn",),
    "beam_dp/reports/notebook.py": ("matplotlib",),
    "beam_dp/schemas/sql.py": ("sqlglot",),
    "beam_dp/storage/amazon.py": ("boto3", "botocore"),
    "beam_dp/storage/google.py": ("google", "requests"),
    "beam_dp/transforms/reading/read_kafka.py": ("confluent_kafka",),
    "pipelines/runners.py": ("grpc",),
}


def outside(files: dict[str, str], *places: str) -> dict[str, str]:
    return {path: source for path, source in files.items() if not path.startswith(places)}


def beam_violations(files: dict[str, str]) -> list[str]:
    return importing(outside(files, *BEAM_SIDE), "apache_beam")


def attributes(files: dict[str, str]) -> Iterator[tuple[str, str, ast.Attribute]]:
    """Yields each attribute that sources read: its path, its place and text, and its node."""
    for path, source in files.items():
        for node in nodes(path, source):
            if isinstance(node, ast.Attribute):
                yield path, f"{path}:{node.lineno} uses {ast.unparse(node)}", node


def randomness_violations(files: dict[str, str]) -> list[str]:
    others = outside(files, RANDOM_ALLOWED)
    drawn = [text for _, text, node in attributes(others) if node.attr in ("urandom", "getrandom")]
    return importing(others, *RANDOM_MODULES, "os.urandom", "os.getrandom") + drawn


def numpy_random_violations(files: dict[str, str]) -> list[str]:
    aliases = {
        path: {"numpy"}
        | {
            alias.asname or alias.name
            for node in nodes(path, source)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "numpy"
        }
        for path, source in files.items()
    }
    return importing(files, "numpy.random") + [
        text
        for path, text, node in attributes(files)
        if node.attr == "random" and getattr(node.value, "id", None) in aliases[path]
    ]


def audit_tools_violations(files: dict[str, str]) -> list[str]:
    """What runs in production never depends on what tests it."""
    return importing(outside(files, "beam_dp/testing/"), "beam_dp.testing")


def metrics_violations(files: dict[str, str]) -> list[str]:
    """A counter at or before the draw may depend on records."""
    found = []
    for path, source in outside(files, METRICS_ALLOWED).items():
        for node in nodes(path, source):
            names = []
            if isinstance(node, ast.Name):
                names = [node.id]
            elif isinstance(node, ast.Attribute):
                names = [node.attr]
            elif isinstance(node, ast.ImportFrom) and node.module not in _NO_COUNTERS:
                names = [alias.name for alias in node.names] + (node.module or "").split(".")
            elif isinstance(node, ast.Import):
                names = [part for alias in node.names for part in alias.name.split(".")]
            if any(name in ("Metrics", "metrics", "MetricsLogger") for name in names):
                found.append(f"{path}:{getattr(node, 'lineno', 0)} names Beam metrics")
    return found


def length_violations(files: dict[str, str]) -> list[str]:
    return [
        f"{path} has {source.count(chr(10))} lines"
        for path, source in files.items()
        if source.count("\n") >= MAX_LINES
    ]


def layout_violations(files: dict[str, str]) -> list[str]:
    """A checkout and an install run the same program: pipelines/ imports itself relatively."""
    return [
        f"{path} imports {name} absolutely"
        for path, source in files.items()
        for node in nodes(path, source)
        if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
        if is_under(name, "pipelines")
    ]


def cycle_violations(files: dict[str, str]) -> list[str]:
    """Cycles among imports that happen when a file is imported."""
    paths = {module_name(path): path for path in files}
    graph: dict[str, set[str]] = {}
    for path, source in files.items():
        edges = set()
        for name, at_import in imports(path, source):
            # `from a.b import c` names the module a.b.c, or the name c of the module a.b.
            target = name if name in paths else name.rpartition(".")[0]
            if at_import and target in paths and target != module_name(path):
                edges.add(target)
        graph[module_name(path)] = edges
    return cycles(graph)


def privacy_of_development_violations(files: dict[str, str]) -> list[str]:
    """No path of one particular machine is shipped."""
    return [
        f"{path} names {match.group()}"
        for path, source in files.items()
        for match in re.finditer(r"/(?:work|home|tmp|root)/\w+", source)
    ]


def undeclared_violations(files: dict[str, str]) -> list[str]:
    """The package imports what setup.py requires: nothing that happens to be installed, too."""
    for_beam = {"docstring_parser", "jinja2", "jsonschema", "pandas", "yaml"}  # for Beam YAML
    known = {"beam_dp", "pipelines", *declared_modules() - for_beam, *sys.stdlib_module_names}
    return [
        f"{path} imports {name}, which is undeclared"
        for path, source in files.items()
        for name, _ in imports(path, source)
        if name.partition(".")[0] not in {*known, *UNDECLARED_ALLOWED.get(path, ())}
    ]


RULES = {
    "undeclared": undeclared_violations,
    "beam": beam_violations,
    "randomness": randomness_violations,
    "numpy random": numpy_random_violations,
    "testing": audit_tools_violations,
    "metrics": metrics_violations,
    "length": length_violations,
    "layout": layout_violations,
    "cycle": cycle_violations,
    "machine paths": privacy_of_development_violations,
}


@pytest.mark.parametrize("rule", RULES)
def test_package_breaks_no_import_rule(rule, sources):
    assert RULES[rule](sources) == []


BROKEN = [
    ("undeclared", {"beam_dp/domain/a.py": "import pandas as pd\n"}),
    ("undeclared", {"pipelines/a.py": "def f():\n    from pytz import utc\n"}),
    ("beam", {"beam_dp/domain/a.py": "import apache_beam as beam\n"}),
    ("beam", {"beam_dp/cli/a.py": "def f():\n    from apache_beam.io import avroio\n"}),
    *(
        ("randomness", {"beam_dp/mechanisms/mwem.py": source})
        for source in (
            *("import random\n", "import secrets\n", "import opendp.prelude as op\n"),
            *("import os\nos.urandom(8)\n", "from os import urandom\n"),
        )
    ),
    *(
        ("numpy random", {"beam_dp/noise/source.py": source})
        for source in (
            "import numpy as np\nnp.random.default_rng()\n",
            *("from numpy.random import default_rng\n", "from numpy import random\n"),
        )
    ),
    ("testing", {"beam_dp/transforms/x.py": "from beam_dp.testing.audit import audit_law\n"}),
    ("metrics", {"beam_dp/transforms/x.py": "from apache_beam.metrics import Metrics\n"}),
    ("metrics", {"beam_dp/x.py": "import apache_beam as b\nb.metrics.Metrics\n"}),
    ("length", {"beam_dp/domain/a.py": "x = 1\n" * MAX_LINES}),
    ("layout", {"pipelines/a.py": "from pipelines.flags import x\n"}),
    ("cycle", {"beam_dp/a.py": "import beam_dp.b\n", "beam_dp/b.py": "from beam_dp import a\n"}),
    (
        "cycle",
        {"beam_dp/a.py": "from .b import f\n", "beam_dp/b.py": "class C:\n    from .a import g\n"},
    ),
    ("machine paths", {"beam_dp/a.py": "PATH = '/home/somebody'\n"}),
]


@pytest.mark.parametrize(("rule", "files"), BROKEN)
def test_each_rule_catches_a_file_that_breaks_it(rule, files):
    assert RULES[rule](files)


def test_every_rule_has_a_broken_example():
    assert {rule for rule, _ in BROKEN} == set(RULES)


INNOCENT = {
    "beam_dp/transforms/x.py": "import apache_beam as beam\nfrom beam_dp.mechanisms import mwem\n",
    "beam_dp/noise/source.py": "import opendp.prelude\nimport secrets\n",
    "beam_dp/transforms/job_page.py": "from apache_beam.metrics import Metrics\n",
    # An import inside a function closes no cycle.
    "beam_dp/a.py": "import beam_dp.b\n",
    "beam_dp/storage/a.py": "from beam_dp.errors import InputError\nfrom .store import Store\n",
    "beam_dp/releases/__init__.py": "from beam_dp.releases.kinds import read_release\n",
    "beam_dp/releases/files/a.py": "from beam_dp.releases.a import A\n",
    "beam_dp/b.py": "def f():\n    import beam_dp.a\n",
    "beam_dp/mechanisms/mwem.py": "from ..noise import x\nfrom ..summaries import x\n",
    "pipelines/a.py": "from .flags import x\n",
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_accept_allowed_sources(rule):
    assert RULES[rule](INNOCENT) == []
