"""The environments that tests of the wheel share."""

import os
import pathlib
from collections.abc import Iterator

import pytest
from newcomers import Home, built_wheel, installed, reading_line


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> pathlib.Path:
    """The wheel of a checkout."""
    return built_wheel(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def home(tmp_path_factory, wheel) -> Iterator[Home]:
    """An environment outside of the checkout, filled with the wheel and what it requires."""
    made = installed(tmp_path_factory.mktemp("home"), wheel)
    yield made
    assert os.listdir(made.folder / "temporary") == []


@pytest.fixture(scope="session")
def reading(tmp_path_factory, wheel) -> Iterator[Home]:
    """The same with no more than what README installs to read releases."""
    made = installed(tmp_path_factory.mktemp("reading"), *reading_line(wheel))
    yield made
    assert os.listdir(made.folder / "temporary") == []
