"""Hash families of exact r-wise independence, for projections of huge universes."""

from beam_dp.hashing.backend import (
    active_backend as active_backend,
    available_backends as available_backends,
)
from beam_dp.hashing.elements import universe_elements as universe_elements
from beam_dp.hashing.keys import HashKey as HashKey
from beam_dp.hashing.projections import BlockSigns as BlockSigns, DenseSigns as DenseSigns
