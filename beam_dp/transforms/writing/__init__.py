"""Releases and answers into files."""
