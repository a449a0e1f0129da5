"""Releases of interval counts: values, files, verification and descriptions."""
