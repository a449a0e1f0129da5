"""Fixtures that tests of several folders share."""

import functools
from collections.abc import Iterator

import pytest
from audit_table import pytest_terminal_summary  # noqa: F401
from databases import BACKENDS, new_database, postgresql_server

pytest_plugins = ["tiers", "processor_time", "quick_beam", "seeds"]


@pytest.fixture(scope="session")
def sources() -> dict[str, str]:
    """Every Python file that is shipped, by its path from the root; parsed once for all rules."""
    from source_imports import imports, package_sources

    texts = package_sources()
    for path, source in texts.items():
        imports(path, source)
    return texts


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The folder of a PostgreSQL server, which runs while the tests do."""
    with postgresql_server() as folder:
        yield folder


@pytest.fixture(params=BACKENDS)
def ledger_url(request, tmp_path) -> str:
    """The URL of an empty database, once for each backend."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.sqlite"
    folder = request.getfixturevalue("postgresql")
    return new_database(folder)


@pytest.fixture
def weights_once(monkeypatch) -> None:
    """Samplers of small databases compute each weight once: it is the same in every draw."""
    from beam_dp.mechanisms.small_db import enumerated, nested, searched

    sampler = enumerated.EnumerationSampler
    monkeypatch.setattr(sampler, "_weigh", functools.cache(sampler._weigh))
    for module in (enumerated, nested, searched):
        monkeypatch.setattr(module, "exp_bounds", functools.cache(module.exp_bounds))
