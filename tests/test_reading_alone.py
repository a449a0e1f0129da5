"""Reading a release needs no Beam and no packages for noise, tables or ledgers."""

import importlib.util
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from newcomers import GOLDEN, GOLDEN_RELEASES

import beam_dp as dp
from beam_dp import installed
from beam_dp.releases.synthetic_database.records_columns import read_columns

WITHOUT = tuple(module.partition(".")[0] for module in installed.MAKING.values())
PROGRAM = """
import importlib.abc
import sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in WITHOUT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())

from beam_dp.cli.main import main

for arguments in COMMANDS:
    assert main(arguments) == 0, arguments
"""


DOMAIN = {
    "attributes": [
        {"name": "age", "type": "numeric", "edges": [0, 18, 65, 120]},
        {"name": "children", "type": "integer", "min": 0, "max": 2, "other": True},
        {"name": "day", "type": "date", "edges": ["2026-01-01", "2026-07-01", "2027-01-01"]},
        {"name": "education", "type": "categorical", "values": ["HS", 12], "nullable": True},
        {"name": "smokes", "type": "boolean", "nullable": True},
    ]
}
# An answer of each form, for groups of each type of column.
ANSWERS = (
    ["--where", "age < 18", "--group_by", "smokes,children"],
    ["--where", "smokes == True", "--group_by", "education"],
    ["--group_by", "day,age", "--mean", "children"],
    ["--group_by", "children", "--share", "smokes == True", "--json"],
    ["--quantile", "0.5", "--of", "age"],
    ["--marginal", "education,smokes"],
)


def told(without: tuple[str, ...], commands: list[list[str]]) -> str:
    """What commands print where some packages are not there."""
    program = f"WITHOUT = {without}\nCOMMANDS = {commands}\n{PROGRAM}"
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("missing", ["apache_beam", "apache-beam", "opendp"])
def test_names_missing_library_and_its_install_command(missing):
    told = installed.missing_part(ModuleNotFoundError(name=missing))
    assert told is not None and told.endswith("needs it: pip install beam_dp")
    absent = ModuleNotFoundError(name="apache_beam.io.absent")
    assert installed.missing_part(absent) is None


@pytest.mark.parametrize(
    ("made", "library"),
    [(made, "pyarrow") for made in ("tables", "records", "answers")]
    + [(made, "pandas") for made in ("head", "frame", "frame of answers")]
    + [("frame of polars", "polars"), ("bars", "matplotlib")],
)
def test_names_the_missing_library_of_tables(made, library, monkeypatch):
    release = dp.read_release(GOLDEN / "synthetic_database", kind=dp.SyntheticDatabase)
    answers = release.query("age < 25").count()
    make = {
        "tables": release.to_arrow,
        "records": lambda: read_columns(b"", release.domain, 1, "parquet"),
        "answers": answers.to_arrow,
        "frame of polars": release.to_polars,
        "bars": answers.plot,
        "head": release.head,
        "frame": release.to_pandas,
        "frame of answers": answers.to_pandas,
    }
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == library else find(name)
    )
    with pytest.raises(ModuleNotFoundError, match=f"pip install {library}") as told:
        make[made]()
    assert told.value.name == library and installed.missing_part(told.value) == str(told.value)


@pytest.mark.part
def test_reading_without_heavy_packages_gives_the_same_values(tmp_path):
    domain = dp.parse_domain(DOMAIN)
    rows = [
        {"age": age, "children": age % 4, "day": None, "education": "HS", "smokes": age % 3 == 0}
        for age in range(100)
    ]
    promise = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    workload = dp.marginals(domain, ways=2)
    places = [str(tmp_path / name) for name in ("a", "b")]
    for place in places:
        dp.release(pa.Table.from_pylist(rows), domain, workload, promise, output=place)
    commands = [["describe", places[0]], ["verify", places[0]], ["diff", *places]]
    commands += [["answer", places[0], *flags] for flags in ANSWERS]
    assert told(WITHOUT, commands) == told((), commands)


def test_reads_every_kind_without_heavy_packages(tmp_path):
    commands = []
    for release in GOLDEN_RELEASES:
        place, page = str(GOLDEN / release), str(tmp_path / f"{release}.html")
        commands += [["describe", place], ["report", place, "--output", page]]
        commands.append(["verify", place])
        if release.startswith("intervals"):
            commands.append(["answer", place, "--interval", "18", "19"])
    assert told(WITHOUT, commands)
    assert {path.stem for path in tmp_path.iterdir()} == {*GOLDEN_RELEASES}
