"""Guarantees and how they compose."""
