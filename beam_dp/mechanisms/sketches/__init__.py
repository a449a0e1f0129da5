"""Counts of keys from a huge universe: hashed projections, sketches, stability histograms."""
