"""Laplace and Gaussian answers to any linear queries: to all, or to those with the largest."""
