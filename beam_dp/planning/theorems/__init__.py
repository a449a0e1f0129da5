"""Theorems on the errors of mechanisms, with all constants, computed from public numbers."""
