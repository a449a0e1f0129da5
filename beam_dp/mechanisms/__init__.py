"""Mechanisms: the only door from the secret side, a summary, to the public side, a release."""
