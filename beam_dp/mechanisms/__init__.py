"""Mechanisms: the only door from the secret side, a summary, to the public side, a release."""

from beam_dp.mechanisms.gaussian import Gaussian
from beam_dp.mechanisms.laplace import Laplace
from beam_dp.mechanisms.mwem import MWEM
from beam_dp.mechanisms.plan import Mechanism, Plan

__all__ = ["MWEM", "Gaussian", "Laplace", "Mechanism", "Plan"]
