"""Laplace and Gaussian answers to any linear queries, each with its own noise."""
