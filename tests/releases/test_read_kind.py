"""Reading a release as a given kind returns that kind, or fails in one line."""

from __future__ import annotations

import pathlib

import pytest
from release_examples import release_of, same_release

import beam_dp as dp
from beam_dp.releases.release import Release


@pytest.fixture
def directory(tmp_path) -> pathlib.Path:
    dp.write_release(release_of(), tmp_path / "out")
    return tmp_path / "out"


@pytest.mark.parametrize("kind", [Release, dp.SyntheticDatabase])
def test_reads_a_release_of_the_kind(directory, kind):
    same_release(dp.read_release(directory, kind=kind), release_of())


def test_rejects_a_release_of_another_kind(directory):
    told = "is refused; must hold a SparseRelease; this is a SyntheticDatabase$"
    with pytest.raises(dp.ReleaseError, match=told):
        dp.read_release(directory, kind=dp.SparseRelease)


@pytest.mark.parametrize("kind", ["synthetic_database", None, dict, dp.MWEM])
def test_rejects_a_kind_that_is_not_a_class_of_releases(directory, kind):
    told = "^kind: .* is refused; must be a class of releases, such as dp.SyntheticDatabase$"
    with pytest.raises(dp.InputError, match=told):
        dp.read_release(directory, kind=kind)
