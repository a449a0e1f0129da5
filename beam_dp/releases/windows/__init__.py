"""Releases of windows of a stream: values, files, verification and descriptions."""
