"""The environment that all tests of the wheel share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from newcomers import Home, installed


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """An empty environment, outside of the checkout, with the wheel and what setup.py requires."""
    made = installed(tmp_path_factory.mktemp("home"))
    yield made
    assert os.listdir(made.folder / "temporary") == []
