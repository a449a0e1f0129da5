"""Rules for every source file: who imports Beam, where randomness is drawn, how long a file is.

What no file of the package may use at all, randomness and metrics, ruff bans: its settings in
``pyproject.toml`` name the exceptions. The other rules are functions of source texts, so that the
self-test at the end can show, for each one, a source that breaks it.
"""

import fnmatch
import re
import sys
import tomllib

import pytest
import test_layers
from declared_packages import declared_modules
from source_imports import ROOT, banned_lines, importing, imports, is_under

MAX_LINES = 700
DRAWS = "beam_dp/privacy/noise/source.py"
# From the card of a committed release: a counter at or before the draw may depend on records.
COUNTS = "beam_dp/transforms/job_page.py"
BEAM_SIDE = ("beam_dp/transforms/", "pipelines/")
# What extras bring, imported where it is used; and what Beam itself is made of.
UNDECLARED_ALLOWED = {
    "beam_dp/releases/synthetic_database/release.py": ("polars",),
    "beam_dp/views/cells.py": ("pandas",),
    "beam_dp/views/columns.py": ("pandas",),
    "beam_dp/views/terminal.py": ("matplotlib",),
    "beam_dp/domain/schemas/sql.py": ("sqlglot",),
    "beam_dp/storage/amazon.py": ("boto3", "botocore"),
    "beam_dp/storage/google.py": ("google", "requests"),
    "beam_dp/transforms/reading/read_kafka.py": ("confluent_kafka",),
    "pipelines/runners.py": ("grpc",),
}


def outside(files: dict[str, str], *places: str) -> dict[str, str]:
    return {path: source for path, source in files.items() if not path.startswith(places)}


def beam_violations(files: dict[str, str]) -> list[str]:
    return importing(outside(files, *BEAM_SIDE), "apache_beam")


def audit_tools_violations(files: dict[str, str]) -> list[str]:
    """What runs in production never depends on what tests it."""
    return importing(outside(files, "beam_dp/testing/"), "beam_dp.testing")


def metrics_violations(files: dict[str, str]) -> list[str]:
    """Beam's, also where they are read; those of other libraries measure something."""
    named = re.compile(r"\.metrics\b(?! import \w+_distance)|\bMetrics(?:Logger)?\b")
    return [
        f"{path} names {match.group()}"
        for path, source in outside(files, COUNTS).items()
        for match in named.finditer(source)
    ]


def length_violations(files: dict[str, str]) -> list[str]:
    return [path for path, source in files.items() if source.count("\n") >= MAX_LINES]


def layout_violations(files: dict[str, str]) -> list[str]:
    """A checkout and an install run the same program: pipelines/ imports itself relatively."""
    absolute = re.compile(r"^ *(?:from|import) pipelines\b.*", re.M)
    return [f"{path}: {line}" for path, text in files.items() for line in absolute.findall(text)]


def privacy_of_development_violations(files: dict[str, str]) -> list[str]:
    """No path of one particular machine is shipped."""
    place = re.compile(r"/(?:work|home|tmp|root)/\w+")
    return [f"{path}: {each}" for path, text in files.items() for each in place.findall(text)]


def undeclared_violations(files: dict[str, str]) -> list[str]:
    """The package imports what pyproject.toml requires: nothing else that is installed."""
    for_beam = {"docstring_parser", "jinja2", "jsonschema", "pandas", "yaml"}  # for Beam YAML
    known = {"beam_dp", "pipelines", *declared_modules() - for_beam, *sys.stdlib_module_names}
    return [
        f"{path} imports {name}, which is undeclared"
        for path, source in files.items()
        for name, _ in imports(path, source)
        if name.partition(".")[0] not in {*known, *UNDECLARED_ALLOWED.get(path, ())}
    ]


RANDOM = """\
import random
import secrets
import opendp.prelude as op
import os
os.urandom(8)
from os import urandom
os.getrandom(8)
import uuid
import numpy as np
np.random.default_rng()
from numpy.random import default_rng
from numpy import random
from apache_beam.metrics import Metrics
import apache_beam as b
b.metrics.Metrics
"""
HARMLESS = ("import os", "import numpy as np", "import apache_beam as b")


def test_ruff_refuses_every_source_of_randomness_and_metrics():
    lines = RANDOM.splitlines()
    expected = {row for row, line in enumerate(lines, 1) if line not in HARMLESS}
    for path in ("beam_dp/mechanisms/mwem.py", "pipelines/a.py"):
        assert banned_lines(path, RANDOM) == expected


def test_only_two_files_may_use_what_is_banned(sources):
    """In the one that draws, other generators than the system's are banned nevertheless."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    exempt = {path for path, rules in settings["per-file-ignores"].items() if "TID251" in rules}
    assert exempt & {*sources} == {DRAWS, COUNTS}
    assert exempt - {*sources} == {"benchmarks/**", "examples/**", "tools/**"}
    assert [path for path, text in sources.items() if "TID251" in text] == []
    assert importing({DRAWS: sources[DRAWS]}, "numpy.random", "random", "uuid") == []
    assert re.findall(r"np\.random|urandom|getrandom", sources[DRAWS]) == []
    assert importing({COUNTS: sources[COUNTS]}, "random", "secrets", "opendp", "numpy") == []


_SECRET = ("secret", "privacy.noise.source")
# Imports that the floors of ``test_layers.py`` would allow. Releases and their readers are public:
# none of them can import, hold or pickle exact data. Verification shares no code with the planner's
# accountant.
APART = {
    "secret/summaries/": ("privacy.noise", "models"),
    "models/": ("privacy.noise",),
    "releases/": ("secret", "privacy.noise.source", "privacy.budget"),
    "releases/*/release.py": ("releases.files",),
    "privacy/steps.py": ("privacy.accounting", "privacy.budget", *_SECRET),
    "privacy/discovery.py": ("privacy.accounting", "privacy.budget", *_SECRET),
    "releases/verdict.py": ("privacy.accounting",),
    "domain/": ("privacy.noise.source",),
    "views/": _SECRET,
    "planning/theorems/": ("releases", *_SECRET),
    "planning/": _SECRET,
    "testing/": ("mechanisms", "releases", "privacy.noise", *_SECRET),
    "cli/": _SECRET,
}
# Only `plan` needs mechanisms; only the owner's report reads records.
EXCEPT = dict.fromkeys(("views/truth.py", "views/window_truth.py"), ("secret",))


def joined(files: dict[str, str]) -> list[str]:
    """Returns imports that ``APART`` forbids."""
    found = []
    for path, source in files.items():
        inner = path.removeprefix("beam_dp/")
        forbidden = {
            name
            for part, names in APART.items()
            if (inner.startswith(part) or fnmatch.fnmatch(inner, part))
            for name in names
        } - {*EXCEPT.get(inner, ())}
        if inner.startswith("cli/") and not inner.startswith("cli/plan"):
            forbidden.add("mechanisms")
        for name, _ in imports(path, source):
            for other in forbidden:
                target = f"beam_dp.{other}"
                # An import of a whole folder includes the file in it.
                wholes = (target.rpartition(".")[0], target.rpartition(".")[0] + ".*")
                if is_under(name, target) or ("." in other and name in wholes):
                    found.append(f"{path} imports {name}")
    return found


RULES = {
    "undeclared": undeclared_violations,
    "beam": beam_violations,
    "testing": audit_tools_violations,
    "metrics": metrics_violations,
    "length": length_violations,
    "layout": layout_violations,
    "machine paths": privacy_of_development_violations,
    "apart": joined,
    **test_layers.RULES,
}


@pytest.mark.parametrize("rule", RULES)
def test_package_breaks_no_rule(rule, sources):
    assert RULES[rule](sources) == []


BROKEN = [
    ("undeclared", "beam_dp/domain/a.py", "import pandas as pd\n"),
    ("undeclared", "pipelines/a.py", "def f():\n    from pytz import utc\n"),
    ("beam", "beam_dp/domain/a.py", "import apache_beam as beam\n"),
    ("beam", "beam_dp/cli/a.py", "def f():\n    from apache_beam.io import avroio\n"),
    ("testing", "beam_dp/transforms/x.py", "from beam_dp.testing.audit import audit_law\n"),
    ("metrics", "beam_dp/transforms/x.py", "from apache_beam.metrics import metric\n"),
    ("metrics", "beam_dp/transforms/x.py", "from apache_beam import metrics as a, Metrics\n"),
    ("metrics", "pipelines/a.py", "print(pipeline.run().metrics().query())\n"),
    ("length", "beam_dp/domain/a.py", "x = 1\n" * MAX_LINES),
    ("layout", "pipelines/a.py", "from pipelines.flags import x\n"),
    ("layout", "beam_dp/a.py", "def f():\n    import pipelines\n"),
    ("machine paths", "beam_dp/a.py", "PATH = '/home/somebody'\n"),
    ("apart", "beam_dp/releases/intervals/release.py", "from ..files.card import Card\n"),
    ("apart", "beam_dp/releases/a.py", "from beam_dp.privacy import noise\n"),
    (
        "apart",
        "beam_dp/releases/a.py",
        "def f():\n    from beam_dp.secret.encoding import records\n",
    ),
    ("apart", "beam_dp/planning/a.py", "import beam_dp.privacy.noise as noise\n"),
    ("apart", "beam_dp/cli/a.py", "from beam_dp.privacy.noise import *\n"),
    ("apart", "beam_dp/cli/ledger.py", "from beam_dp.mechanisms.registry import plan_release\n"),
    ("apart", "beam_dp/privacy/steps.py", "from beam_dp.privacy.accounting import zcdp_rho\n"),
    *test_layers.BROKEN,
]


@pytest.mark.parametrize(("rule", "path", "source"), BROKEN)
def test_each_rule_catches_a_file_that_breaks_it(rule, path, source):
    files = test_layers.TARGETS
    if rule == "circle":
        files = {**files, "beam_dp/a.py": "from beam_dp import errors\n"}
    assert RULES[rule](files) == []
    assert RULES[rule]({**files, path: source})


def test_every_rule_has_a_broken_example():
    assert {rule for rule, _, _ in BROKEN} == set(RULES)
