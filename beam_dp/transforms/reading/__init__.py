"""Reads files and elements as batches of columns."""
