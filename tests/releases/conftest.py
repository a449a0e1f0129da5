"""Fixtures of this folder."""

from places import place  # noqa: F401
from seeded_releases import seeded_releases  # noqa: F401
