"""Matrices to measure for interval counts; ``mechanisms.intervals`` sizes trees."""
