"""Releases of answers to queries: values, files, verification and descriptions."""
