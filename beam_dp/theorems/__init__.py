"""Theorems on the errors of mechanisms, each once, with its constants, from public numbers."""
