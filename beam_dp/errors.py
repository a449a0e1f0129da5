"""The errors that users of the package see."""

from __future__ import annotations


class InputError(ValueError):
    """A public parameter was refused: one line with its name, its value and what would be valid.

    Raised from public parameters only, when an object is constructed, so that neither its
    presence nor its text can depend on a record.

    Args:
        name: the argument, flag or field that was refused, such as ``epsilon``.
        value: the refused value.
        condition: what a valid value must satisfy.

    Example:
        >>> str(InputError("epsilon", 0, "must be finite and > 0"))
        'epsilon: 0 is refused; must be finite and > 0'
    """

    def __init__(self, name: str, value: object, condition: str) -> None:
        super().__init__(name, value, condition)
        self.name = name
        self.value = value
        self.condition = condition

    def __str__(self) -> str:
        return f"{self.name}: {self.value!r} is refused; {self.condition}"
