"""Counts of a huge universe: hashed projections, sketches and stability histograms."""
