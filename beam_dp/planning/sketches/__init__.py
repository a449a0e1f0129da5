"""Planning of releases for sparse queries: which sketch, how wrong and how large."""
