"""Mechanisms that measure marginals: Laplace, Gaussian and multiplicative weights."""

from beam_dp.mechanisms.marginals.gaussian import Gaussian
from beam_dp.mechanisms.marginals.laplace import Laplace
from beam_dp.mechanisms.marginals.mwem import MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism

__all__ = ["MWEM", "Gaussian", "Laplace", "MarginalsPlan", "Mechanism"]
