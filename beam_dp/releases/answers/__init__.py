"""Answers to queries: their values, files, verification, and the words about them."""
