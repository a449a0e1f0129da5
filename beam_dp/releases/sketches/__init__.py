"""Releases that answer sparse queries: values, files, verification and descriptions."""
