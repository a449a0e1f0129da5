"""Strategies for interval counts: matrices, how to answer from them, and their errors."""
