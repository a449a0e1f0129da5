"""Noise sources for tests: none at all, or a script, so that what a mechanism draws can be seen."""

import dataclasses
import functools
import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from beam_dp.privacy.noise import source as noise_module
from beam_dp.privacy.noise.bound import Kind
from beam_dp.privacy.noise.source import NoiseSource


@dataclasses.dataclass(frozen=True)
class Draw:
    """One call: the exact integers that were handed in, and the scale of their noise."""

    kind: str
    exact: NDArray[np.int64]
    scale: float

    @property
    def is_selection(self) -> bool:
        return self.kind in ("select", "permute_and_flip")


class DrawsAll(NoiseSource):
    """Draws the noise of every value, also of those of which only large ones are kept."""

    def reaching(
        self, kind: Kind, values: NDArray[np.int64], scale: float, threshold: int
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        noisy = (self.laplace if kind == "laplace" else self.gaussian)(values, scale)
        kept = np.flatnonzero(noisy >= threshold)
        return kept, noisy[kept]


class NoNoise(DrawsAll):
    """Adds nothing, selects the best score, and keeps what it was handed."""

    def __init__(self) -> None:
        self.draws: list[Draw] = []

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        self.draws.append(Draw("laplace", np.array(values), scale))
        return self.noisy(values)

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        self.draws.append(Draw("gaussian", np.array(values), sigma))
        return self.noisy(values)

    def select(self, scores: NDArray[np.int64], scale: float) -> int:
        self.draws.append(Draw("select", np.array(scores), scale))
        return self.selected(scores)

    def permute_and_flip(self, scores: NDArray[np.int64], scale: float) -> int:
        self.draws.append(Draw("permute_and_flip", np.array(scores), scale))
        return self.selected(scores)

    def signs(self, size: int) -> NDArray[np.float64]:
        return np.where(np.arange(size) % 2 == 0, 1.0, -1.0)

    def draw_id(self) -> str:
        return "0" * 32

    def noisy(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array(values)

    def selected(self, scores: NDArray[np.int64]) -> int:
        return int(np.argmax(scores))


class Scripted(NoNoise):
    """Selects and answers what it is told, whatever the data: the same outputs for any data set.

    Args:
        selections: indices to select, in order, modulo how many there are to select from; the
            last one for ever after.
        answer: noisy values to answer with, by the number of the draw and the shape.
    """

    def __init__(
        self,
        selections: Iterable[int] = (0,),
        answer: Callable[[int, tuple[int, ...]], NDArray[np.int64]] | None = None,
    ) -> None:
        super().__init__()
        self._selections = list(selections)
        self._answer = answer or (lambda _, shape: np.zeros(shape, np.int64))

    def noisy(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(self._answer(len(self.draws), values.shape), np.int64)

    def selected(self, scores: NDArray[np.int64]) -> int:
        if len(self._selections) > 1:
            return self._selections.pop(0) % len(scores)
        return self._selections[0] % len(scores)


class Seeded(DrawsAll):
    """The right laws from a seeded generator, fast: for many runs of one mechanism."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._bits = random.Random(seed)  # ten times as fast as numpy's, a few bits at a time

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        success = -np.expm1(-1 / scale)
        first, second = self._generator.geometric(success, (2, *values.shape))
        return values + first - second

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        return values + np.rint(self._generator.normal(0, sigma, values.shape)).astype(np.int64)

    def select(self, scores: NDArray[np.int64], scale: float) -> int:
        return int(np.argmax(scores / scale + self._generator.gumbel(size=len(scores))))

    def bits(self, number: int) -> int:
        return self._bits.getrandbits(number)

    def signs(self, size: int) -> NDArray[np.float64]:
        return self._generator.choice([-1.0, 1.0], size)

    def draw_id(self) -> str:
        return self._generator.bytes(16).hex()


class SeededEntropy:
    """The laws of the production samplers, from a seed: what they are made of is replaced.

    All above is as shipped. The samplers themselves cannot be seeded: ``audit_noise`` tests them.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._bits = random.Random(seed)

    def put_in(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(noise_module, "secrets", self)
        patch.setattr(noise_module, "_sampler", self.sampler)
        patch.setattr(noise_module, "_noisy_max", self.noisy_max)

    def randbits(self, number: int) -> int:
        return self._bits.getrandbits(number)

    def token_bytes(self, number: int) -> bytes:
        return self._generator.bytes(number)

    def token_hex(self, number: int) -> str:
        return self._generator.bytes(number).hex()

    def sampler(self, kind: str, size: int, scale: float) -> Callable[[Any], Any]:
        if kind == "laplace":
            success = -math.expm1(-1 / scale)
            return lambda _: np.subtract(*self._generator.geometric(success, (2, size)))
        if scale > 1000:  # rounding is then the same to 1e-7
            return lambda _: np.rint(self._generator.normal(0, scale, size))
        values, shares = gaussian_law(scale)
        return lambda _: self._generator.choice(values, size, p=shares)

    def noisy_max(self, size: int, scale: float) -> Callable[[Any], int]:
        return lambda scores: int(
            np.argmax(np.asarray(scores) / scale + self._generator.gumbel(size=size))
        )


@functools.cache
def gaussian_law(scale: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    from beam_dp.testing.audit import discrete_gaussian

    law = discrete_gaussian(scale, 0, -math.ceil(10 * scale), math.ceil(10 * scale))
    return np.array(list(law)), np.array(list(law.values()))


class Batched(NoiseSource):
    """The production noise, many values at a time: single ones take 100 times as long."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: dict[tuple[str, float], list[int]] = {}

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        return self._noisy("laplace", values, scale)

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        return self._noisy("gaussian", values, sigma)

    def _noisy(self, kind: str, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        drawn = self._drawn.setdefault((kind, scale), [])
        while len(drawn) < values.size:
            drawn += getattr(super(), kind)(np.zeros(4096, np.int64), scale).tolist()
        noise = np.array([drawn.pop() for _ in range(values.size)], np.int64)
        return values + noise.reshape(values.shape)


def watch_draws(patch: pytest.MonkeyPatch, draws: list[str]) -> list[str]:
    """Notes the names of all draws of programs, whose noise stays real; returns the empty list."""
    draws.clear()

    class Watched(NoiseSource):
        def draw_id(self) -> str:
            draws.append(super().draw_id())
            return draws[-1]

    patch.setattr("beam_dp.transforms.drawing.one_worker.NoiseSource", Watched)
    return draws
