"""The noise source: the only place that draws noise.

OpenDP's exact samplers draw integer noise from the operating system's entropy. Noise is added to
integers, so floating-point rounding cannot reveal a record. Samplers cannot be pickled, so create a
``NoiseSource`` in the process that draws the noise.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import secrets
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.privacy.noise.bound import (
    Kind,
    exp_bounds,
    limit_share,
    step_exponent,
    step_scale,
    tail_limits,
)

if TYPE_CHECKING:
    from opendp.mod import Measurement

# OpenDP is loaded by the first draw, because plans draw no noise. If OpenDP is missing, the import
# of this module fails, and so no release is paid for. OpenDP's `prelude` would load scikit-learn if
# scikit-learn is installed.
if importlib.util.find_spec("opendp") is None:
    raise ModuleNotFoundError("No module named 'opendp'", name="opendp")

MAX_SCALE = 2.0**50
_FIRST_BITS = 32
_CHUNK = 2**20  # values that are looked at together


class NoiseSource:
    """Discrete noise from the operating system's entropy.

    Values are 64-bit integers. Sums wrap modulo 2^64, so even an overflow is post-processing of an
    exact sum. The source has no seed and no parameters.
    """

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """Adds discrete Laplace noise to the values; P(z) is proportional to exp(-|z| / scale).

        Privacy: pure differential privacy with epsilon = (L1 sensitivity of the values) / scale.

        ``scale``: the scale of the noise, in units of the values, in (0, 2^50].

        Cost: about 1e-5 s per value.
        Reference: Canonne, Kamath and Steinke (2020), Algorithm 2.
        """
        return _draw("laplace", values, scale)

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """Adds discrete Gaussian noise; P(z) is proportional to exp(-z^2 / (2 sigma^2)).

        Privacy: zero-concentrated, with rho = (L2 sensitivity of the values / sigma)^2 / 2. See
        ``privacy.accounting.discrete_gaussian_mu`` for a tighter account on a fine grid.

        ``sigma``: the parameter of the noise, in units of the values, in (0, 2^50].

        Cost: about 2e-5 s per value.
        Reference: Canonne, Kamath and Steinke (2020), Algorithm 3.
        """
        return _draw("gaussian", values, sigma)

    def reaching(
        self, kind: Kind, values: NDArray[np.int64], scale: float, threshold: int
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Returns the places of the values whose noisy values reach a threshold, and the latter.

        The law is exactly that of adding noise to every value (``laplace`` or ``gaussian``) and
        dropping what is below the threshold. The noise of a value that will hardly reach it is not
        drawn: one random number decides whether it does, and only then the rest is drawn.

        ``values``: shape (n,), at least 0 and below 2^62, as the threshold is.
        ``scale``: as for ``laplace`` or ``gaussian``. Places are ascending.

        Cost: about 3e-8 s per value far below the threshold, and 1e-5 s per other value.
        """
        _check_scale(scale)
        usual, hit, noisy = [], [], []
        for start in range(0, len(values), _CHUNK):
            limits, is_rare = tail_limits(kind, threshold - values[start:][:_CHUNK], scale)
            words = np.frombuffer(secrets.token_bytes(8 * len(limits)), np.uint64)
            usual.append(start + np.flatnonzero(~is_rare))
            for place in np.flatnonzero(is_rare & (words < limits)).tolist():
                distance = threshold - int(values[start + place])
                step = self._step(kind, distance, scale, int(limits[place]))
                if step is not None:
                    hit.append(start + place)
                    noisy.append(threshold + step)
        others = np.concatenate([np.zeros(0, np.intp), *usual])
        drawn = _draw(kind, values[others], scale)
        kept = drawn >= threshold
        places = np.concatenate([others[kept], np.array(hit, np.intp)])
        sums = np.concatenate([drawn[kept], np.array(noisy, np.int64)])
        order = np.argsort(places)
        return places[order], sums[order]

    def _step(self, kind: Kind, distance: int, scale: float, limit: int) -> int | None:
        """Returns how far noise exceeds a distance, after an event of probability limit / 2^64."""
        if not self.coin(functools.partial(limit_share, kind, distance, scale, limit)):
            return None
        (step,) = self.geometric(1, step_scale(kind, distance, scale)).tolist()
        exponent = step_exponent(kind, distance, scale, step)
        is_kept = not exponent or self.coin(functools.partial(exp_bounds, exponent))
        return int(step) if is_kept else None

    def select(self, scores: NDArray[np.int64], scale: float) -> int:
        """Returns an index drawn with probability proportional to exp(score / scale).

        The exponential mechanism. Privacy: epsilon = 2 (sensitivity of every score) / scale, and
        epsilon^2 / 8 zero-concentrated (bounded range), for scores that need not be monotone.

        ``scores``: one score per candidate, shape (num_candidates,), num_candidates >= 1.
        ``scale``: the scale of the selection, in units of the scores, in (0, 2^50].

        Reference: Durfee and Rogers (2019) for the bounded range; the sampler compares Gumbel noise
        exactly.
        """
        _check_scale(scale)
        return int(_noisy_max(len(scores), scale)(scores.tolist()))

    def permute_and_flip(self, scores: NDArray[np.int64], scale: float) -> int:
        """Returns the first accepted candidate in random order; each has chance exp(-gap / scale).

        A candidate's gap is its distance below the largest score. The best candidate is always
        accepted, so one visit per candidate suffices. Privacy: epsilon = 2 (sensitivity of every
        score) / scale, pure, for scores that need not be monotone. The loss has no bounded range,
        so its zero-concentrated bound is only epsilon^2 / 2.

        ``scores``: one score per candidate, shape (num_candidates,), num_candidates >= 1.
        ``scale``: the scale of the selection, in units of the scores, in (0, 2^50].

        Cost: up to 1e-5 s per candidate; the number of visits depends on the scores.
        Reference: McKenna and Sheldon (2020), Theorem 1. The coins have exact probabilities.
        """
        _check_scale(scale)
        exact, width = scores.tolist(), Fraction(scale)
        best, unvisited = max(exact), list(range(len(exact)))
        while True:
            position = self.below(len(unvisited))
            candidate, unvisited[position] = unvisited[position], unvisited[-1]
            unvisited.pop()
            exponent = (best - exact[candidate]) / width
            # The best candidate needs no coin: inexact bounds must not reject it.
            if not exponent or self.coin(functools.partial(exp_bounds, exponent)):
                return int(candidate)

    def geometric(self, size: int, scale: float) -> NDArray[np.int64]:
        """Returns one-sided geometric noise: P(z) is proportional to exp(-z / scale) for z >= 0.

        This is discrete Laplace noise conditioned on being >= 0. The result has shape (size,).

        Cost: about 2e-5 s per value.
        """
        _check_scale(scale)
        drawn = np.zeros(0, np.int64)
        while len(drawn) < size:
            more = self.laplace(np.zeros(2 * (size - len(drawn)) + 8, np.int64), scale)
            drawn = np.concatenate([drawn, more[more >= 0]])
        return drawn[:size]

    def below(self, bound: int) -> int:
        """Returns a uniform integer in 0..bound-1, for a bound >= 1 of any size."""
        bits = (bound - 1).bit_length()
        while True:
            drawn = self.bits(bits) if bits else 0
            if drawn < bound:
                return drawn

    def coin(self, bounds: Callable[[int], tuple[int, int]]) -> bool:
        """Returns True with exactly the probability p to which a sequence of bounds converges.

        Compares a uniform number with p, and draws more bits until the bounds decide.

        ``bounds``: a function that returns, for a number of bits, integers low <= p 2^bits <= high
        such that (high - low) / 2^bits tends to 0.
        """
        bits, uniform = _FIRST_BITS, self.bits(_FIRST_BITS)
        while True:
            low, high = bounds(bits)
            if uniform < low:
                return True
            if uniform >= high:
                return False
            uniform = uniform << bits | self.bits(bits)
            bits *= 2

    def bits(self, number: int) -> int:
        """Returns a uniform integer of ``number`` >= 1 bits."""
        return secrets.randbits(number)

    def signs(self, size: int) -> NDArray[np.float64]:
        """Returns independent fair signs for post-processing; shape (size,), float64."""
        bits = np.unpackbits(np.frombuffer(secrets.token_bytes((size + 7) // 8), dtype=np.uint8))
        return np.where(bits[:size] == 1, -1.0, 1.0)

    def draw_id(self) -> str:
        """Returns 32 random hexadecimal digits that name one draw of noise."""
        return secrets.token_hex(16)


def _check_scale(scale: float) -> None:
    # A scale of 0 would publish the exact values, and the sampler itself accepts it. Noise of a
    # scale above MAX_SCALE might not fit 64 bits.
    if not 0 < scale <= MAX_SCALE:
        raise InputError("scale", scale, "noise must have a scale > 0 and at most 2^50")


def _draw(kind: Kind, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    _check_scale(scale)
    if values.dtype != np.int64:
        raise InputError("values", str(values.dtype), "noise is added to int64 values only")
    sampler = _sampler(kind, values.size, scale)
    if sampler is None:
        raise InputError("scale", scale, "is too small to give any privacy")
    # The sampler does not add the noise to the values: its sums saturate, which reveals more.
    noise = np.array(sampler(np.zeros(values.size, np.int64)), dtype=np.int64)
    return values + noise.reshape(values.shape)


# Creating a sampler takes two to three times as long as drawing a few values. A sampler keeps no
# state (entropy or input) between draws.
_remembered = functools.lru_cache(maxsize=256)


@_remembered
def _sampler(kind: Kind, size: int, scale: float) -> Measurement | None:
    """Returns a sampler of ``size`` values; None if the scale is too small to give any privacy."""
    from opendp import domains, measurements, mod
    from opendp.metrics import l1_distance, l2_distance

    mod.enable_features("contrib")
    domain = domains.vector_domain(domains.atom_domain(T="i64"), size=size)
    if kind == "laplace":
        measurement = measurements.make_laplace(domain, l1_distance(T="i64"), scale=scale)
        loss = measurement.map(1)
    else:
        measurement = measurements.make_gaussian(domain, l2_distance(T="f64"), scale=scale)
        loss = measurement.map(1.0)
    return measurement if loss < math.inf else None


@_remembered
def _noisy_max(size: int, scale: float) -> Measurement:
    from opendp import domains, measurements, measures, mod
    from opendp.metrics import linf_distance

    mod.enable_features("contrib")
    return measurements.make_noisy_max(
        domains.vector_domain(domains.atom_domain(T="i64"), size=size),
        linf_distance(T="i64", monotonic=False),
        measures.zero_concentrated_divergence(),
        scale=scale,
    )
