"""The environments that tests of the wheel share."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest
from newcomers import Home, built_wheels, installed, reading_line


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> pathlib.Path:
    """A folder with the wheel of a checkout, and of all that it requires."""
    return built_wheels(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def home(tmp_path_factory, wheels) -> Iterator[Home]:
    """An empty environment outside of the checkout, filled from that folder without a network."""
    offline = ("--no-index", "--find-links", wheels)
    made = installed(tmp_path_factory.mktemp("home"), *offline, "beam_dp")
    yield made
    assert os.listdir(made.folder / "temporary") == []


@pytest.fixture(scope="session")
def reading(tmp_path_factory, wheels) -> Iterator[Home]:
    """The same with no more than what README installs to read releases."""
    offline = ("--no-index", "--find-links", wheels)
    made = installed(tmp_path_factory.mktemp("reading"), *offline, *reading_line())
    yield made
    assert os.listdir(made.folder / "temporary") == []
