"""The ledgers of these tests are sqlite files; ``test_ledger_postgresql.py`` runs them again."""

import pytest


@pytest.fixture
def ledger_url(tmp_path) -> str:
    """The URL of an empty database."""
    return f"sqlite:///{tmp_path}/ledger.sqlite"
