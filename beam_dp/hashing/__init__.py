"""Hash families of exact r-wise independence, for projections of huge universes."""

from beam_dp.hashing.backend import active_backend, available_backends
from beam_dp.hashing.elements import universe_elements
from beam_dp.hashing.keys import HashKey
from beam_dp.hashing.projections import BlockSigns, DenseSigns

__all__ = [
    "BlockSigns",
    "DenseSigns",
    "HashKey",
    "active_backend",
    "available_backends",
    "universe_elements",
]
