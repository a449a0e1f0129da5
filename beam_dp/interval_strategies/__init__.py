"""Strategies for interval counts: integer matrices, how to answer from them, and how wrong."""
