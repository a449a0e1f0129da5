"""Interval counts: their values, files, verification, and the words about them."""
