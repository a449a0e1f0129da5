"""Turns records into exact summaries: encodes records, limits contributions, and counts."""
