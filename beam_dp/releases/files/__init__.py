"""Releases as files: one module for each kind, and what all kinds share."""
