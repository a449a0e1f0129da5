"""Mechanisms that measure marginals: Laplace, Gaussian and multiplicative weights."""

from beam_dp.mechanisms.marginals.gaussian import Gaussian as Gaussian
from beam_dp.mechanisms.marginals.laplace import Laplace as Laplace
from beam_dp.mechanisms.marginals.mwem import MWEM as MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan as MarginalsPlan
