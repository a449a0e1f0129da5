"""Tests that need a newer library than the oldest that the package takes (`make test-oldest`)."""

import importlib.metadata

import pytest
from packaging.version import Version


def since(package: str, version: str) -> pytest.MarkDecorator:
    """Skips a test, and says so, where a package is older than a version."""
    found = importlib.metadata.version(package)
    reason = f"needs {package} {version}; {found} is here"
    return pytest.mark.skipif(Version(found) < Version(version), reason=reason)
