"""The cluster that tests of engines share."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from engines import moments
from engines.cluster import FlinkCluster, find_jar, missing
from engines.moments import Moments


@pytest.fixture(scope="session")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Moments:
    """The moments at which Python workers of the cluster can be made to wait."""
    return Moments(tmp_path_factory.mktemp("moments"))


@pytest.fixture(scope="session")
def cluster(waiting: Moments) -> Iterator[FlinkCluster]:
    """A cluster of two task managers; a skip that says what is missing."""
    reason = missing()
    jar: pathlib.Path | str | None = find_jar()
    if reason is not None or jar is None:
        pytest.skip(reason or "no job server")
    with FlinkCluster(jar, environment={moments.VARIABLE: str(waiting.folder)}) as started:
        yield started
