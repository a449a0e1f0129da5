"""Two distributions of one package: what reads releases, and what makes them."""

from __future__ import annotations

import ast
import pathlib

import pytest
from declared_packages import modules_of
from source_imports import ROOT, imports, is_under, module_name

from beam_dp import installed

SETUPS = (ROOT / "setup.py", ROOT / "reader" / "setup.py")
# Of the rooms that both have, what only makes releases: the reader carries it, and can't load it.
MAKES_RELEASES = {
    "beam_dp/cli/plan_command.py",
    "beam_dp/cli/plan_queries.py",
    "beam_dp/cli/plan_table.py",
    "beam_dp/cli/plan_target.py",
    "beam_dp/cli/plan_windows.py",
    "beam_dp/hypotheses/denoised_attributes.py",
    "beam_dp/hypotheses/record_moves.py",
    "beam_dp/noise/source.py",
    "beam_dp/privacy/ledger/ledger.py",
    "beam_dp/privacy/ledger/rows.py",
    "beam_dp/privacy/ledger/storage.py",
    "beam_dp/privacy/ledger/url.py",
    "beam_dp/reports/truth.py",
}


def literal(setup: pathlib.Path, name: str) -> object:
    """What a module assigns to a name, or gives as an argument of that name."""
    for node in ast.walk(ast.parse(setup.read_text("utf-8"))):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
        if isinstance(node, ast.keyword) and node.arg == name:
            return ast.literal_eval(node.value)
    raise KeyError(name)


def test_every_file_that_names_the_version_names_the_same() -> None:
    whole, reader = SETUPS
    version = literal(whole, "VERSION")
    assert literal(reader, "version") == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    heading = "## [Unreleased]" if str(version).endswith(".dev0") else f"## [{version}] - 20"
    assert f"\n{heading}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_every_room_is_of_one_of_them() -> None:
    whole, reader = SETUPS
    rooms = literal(whole, "MAKING")
    assert rooms == literal(reader, "MAKING")
    assert isinstance(rooms, list)
    assert all((ROOT / "beam_dp" / room / "__init__.py").is_file() for room in rooms)


def test_what_reads_releases_loads_nothing_that_only_makes_them(
    sources: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "only_reads", lambda: True)
    rooms = literal(SETUPS[0], "MAKING")
    assert isinstance(rooms, list)
    making = tuple(f"beam_dp.{room}" for room in rooms)
    others = modules_of("beam_dp") - modules_of("beam_dp_reader") - {"beam_dp"}

    def loads(path: str, source: str) -> bool:
        return any(
            at_import
            and (name.partition(".")[0] in others or any(is_under(name, room) for room in making))
            for name, at_import in imports(path, source)
        )

    found = {
        path
        for path, source in sources.items()
        if path.startswith("beam_dp/")
        and not any(is_under(module_name(path), room) for room in making)
        and loads(path, source)
    }
    assert found == MAKES_RELEASES
    asked = {
        name.partition(".")[0]
        for path, source in sources.items()
        if path.startswith("beam_dp/") and not any(is_under(module_name(path), r) for r in making)
        for name, _ in imports(path, source)
    }
    # Each is answered by how to get it; a module that should be here is not.
    for name in asked & others:
        assert installed.missing_part(ModuleNotFoundError(name=name)) is not None, name
    assert installed.missing_part(ModuleNotFoundError(name="rich")) is None
