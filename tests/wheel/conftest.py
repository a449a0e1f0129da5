"""The environments that tests of the wheels share."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest
from newcomers import Home, built_wheels, installed


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """The wheels of both distributions, by name."""
    return built_wheels(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def home(
    tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, pathlib.Path]
) -> Iterator[Home]:
    """An empty environment, outside of the checkout, with the wheels and what they require."""
    made = installed(tmp_path_factory.mktemp("home"), *wheels.values())
    yield made
    assert os.listdir(made.folder / "temporary") == []


@pytest.fixture(scope="session")
def reading(
    tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, pathlib.Path]
) -> Iterator[Home]:
    """The same with what reads releases alone."""
    made = installed(tmp_path_factory.mktemp("reading"), wheels["beam_dp_reader"])
    yield made
    assert os.listdir(made.folder / "temporary") == []
