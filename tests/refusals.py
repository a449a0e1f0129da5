"""What the package says of arguments that it refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from beam_dp.errors import InputError


def refusal(call: Callable[..., object], *args: Any, **named: Any) -> str:
    """Returns the message of the ``InputError`` that a call must raise: one line."""
    with pytest.raises(InputError) as caught:
        call(*args, **named)
    message = str(caught.value)
    assert "\n" not in message
    return message
