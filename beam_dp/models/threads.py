"""A decorator that keeps matrix products on the caller's thread."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@functools.cache
def _libraries() -> ThreadpoolController:
    """Returns the linear algebra that is loaded: looking for it takes milliseconds, once."""
    return ThreadpoolController()


def on_one_thread(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Returns the function with its linear algebra on one thread.

    Thousands of small products gain nothing from more threads, and lose a factor of thirty where
    a worker shares its cores: the library's threads then wait for each other.
    """

    @functools.wraps(function)
    def limited(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with _libraries().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited
