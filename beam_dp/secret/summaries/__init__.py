"""Exact integer tables that the distributed pass computes. Secret."""
