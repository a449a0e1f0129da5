"""Chooses the hashing backend, a compiled kernel or numpy. The backends differ only in speed."""

from __future__ import annotations

import importlib
import logging
import os
from types import ModuleType

from beam_dp.errors import InputError

ENVIRONMENT_VARIABLE = "BEAM_DP_HASHING_BACKEND"

kernel: ModuleType | None
try:
    kernel = importlib.import_module("beam_dp.hashing._kernel")
except ImportError:
    kernel = None
    # Warn once per process: without the kernel a worker is 100 to 200 times slower, with no error.
    logging.getLogger(__name__).warning(
        "beam_dp was installed without its compiled hashing kernel (no C compiler?): "
        "projections give the same results, about 100 times slower"
    )


def available_backends() -> tuple[str, ...]:
    """Returns the backends that this machine and installation can run, fastest first."""
    # ``vpclmulqdq512``, ``vpclmulqdq256`` and ``pclmulqdq`` are named after CPU instructions,
    # ``portable`` is plain C, and ``numpy`` is always available.
    compiled: tuple[str, ...] = kernel.backends() if kernel else ()
    return (*compiled, "numpy")


def active_backend() -> str:
    """Returns the backend in use: BEAM_DP_HASHING_BACKEND if set, otherwise the fastest."""
    # If this returns ``numpy`` on a machine with a compiler, the extension was not built.
    available = available_backends()
    chosen = os.environ.get(ENVIRONMENT_VARIABLE) or available[0]
    if chosen not in available:
        raise InputError(
            ENVIRONMENT_VARIABLE, chosen, f"must be one of {', '.join(available)} on this machine"
        )
    return chosen
