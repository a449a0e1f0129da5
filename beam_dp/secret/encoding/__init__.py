"""Encodes records as cells, and limits units; ``records`` describes values outside the domain."""
