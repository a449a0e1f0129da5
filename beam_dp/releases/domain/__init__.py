"""Releases of domains: found values and edges, files, verification and descriptions."""
