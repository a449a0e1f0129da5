"""Strategies for interval counts: matrices to measure, their answers and errors.

``mechanisms.intervals.plan`` chooses the sizes of the levels, and so the branches of a tree.
"""
