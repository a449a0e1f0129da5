"""Matrices to measure for interval counts; ``mechanisms.intervals.plan`` sizes trees."""
