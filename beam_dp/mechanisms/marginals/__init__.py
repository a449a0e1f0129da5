"""Mechanisms that measure marginals: Laplace, Gaussian and multiplicative weights."""
