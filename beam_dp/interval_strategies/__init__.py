"""Matrices to measure for interval counts; ``mechanisms.intervals.plan`` chooses their sizes."""
