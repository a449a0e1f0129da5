"""Sketches and counts that answer sparse queries: their values, files, verification, and words."""
