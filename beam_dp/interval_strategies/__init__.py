"""Strategies for interval counts: matrices to measure, their answers and errors."""
