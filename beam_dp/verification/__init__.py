"""Recomputes the privacy loss of a release from the noise that its card states."""
