"""Releases of synthetic databases: values, files, verification and descriptions."""
