"""Privacy guarantees and their composition."""
