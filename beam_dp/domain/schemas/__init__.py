"""Drafts of domains from declared schemas: names and types, never records or statistics."""
