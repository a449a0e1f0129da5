"""Fixtures of this folder."""

from places import place  # noqa: F401
