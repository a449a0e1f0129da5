"""Checks for public arguments. Where a number is required, booleans and NaN are refused."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from numbers import Number
from typing import Any, TypeGuard

from beam_dp.errors import InputError

_LEAST_WRITTEN_AS_POWER = 2**20
# Expressions that create objects of the package's classes, by class name.
_SUCH_AS = {
    "AnswersPlan": "dp.plan_private_mw(...)",
    "Domain": "dp.read_domain(FILE)",
    "DomainPlan": "dp.plan_domain(domain, guarantee)",
    "DomainRelease": "dp.read_release(FOLDER)",
    "Guarantee": "dp.Guarantee(1.0, 1e-9, 'add_or_remove_one', 'record', 1)",
    "Horizon": "dp.Horizon(...)",
    "KeyColumns": "dp.KeyColumns(COLUMN)",
    "KeyProfile": "dp.KeyProfile(...)",
    "OpenDomain": "dp.read_open_domain(FILE)",
    "LinearWorkload": "dp.parse_linear_workload(SPEC, domain)",
    "Mechanism": "dp.MWEM()",
    "PlanningJob": "dp.PlanningJob(...)",
    "PrivateMWPlan": "dp.plan_private_mw(...)",
    "SparseMWPlan": "dp.plan_sparse_mw(...)",
    "SparsePlan": "dp.CountSketch().plan(...)",
    "SparsePlanningJob": "dp.SparsePlanningJob(...)",
    "Token": "Ledger.spend(...)",
    "WindowDatabasesPlan": "dp.plan_window_databases(...)",
    "WindowTablesPlan": "dp.plan_window_tables(...)",
    "WindowUnit": "dp.WindowUnit(...)",
    "Workload": "dp.marginals(domain, ways=2)",
    "TopChoice": "dp.top_choice(...)",
    "TopQueriesPlan": "dp.plan_top_queries(...)",
    "WorkloadAnswersPlan": "dp.plan_workload_answers(...)",
}
# Messages show values of these types; for other objects, messages show only the class.
_PLAIN = (str, bytes, int, float, dict, list, tuple)


def is_integer(value: object) -> TypeGuard[int]:
    """Returns whether a value is a Python integer; False for booleans and numpy's integers."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Returns whether a value is an integer or a float, finite or not; False for booleans."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_id(value: object) -> TypeGuard[str]:
    """Returns whether a value is the id of a draw or a horizon: 32 hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) is not None


def check_id(name: str, value: object) -> None:
    """Refuses a value that is not the id of a draw or a horizon."""
    if not is_id(value):
        raise InputError(name, value, "must be 32 hexadecimal digits")


def as_float(name: str, value: object) -> float:
    """Returns a number as a float, or infinity if it is too large; does not check its range."""
    if not is_number(value):
        raise InputError(name, value, "must be a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf  # every check of a range refuses infinity


def checked_integer(
    name: str, value: object, least: int | None = None, most: int | None = None, note: str = ""
) -> int:
    """Returns the value if it is an integer in the range; otherwise raises."""
    if is_integer(value) and (least is None or value >= least) and (most is None or value <= most):
        return value
    limits = _range(least=least, most=most)
    raise InputError(name, value, f"must be an integer{limits}{note}{_of_python(value)}")


def checked_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    note: str = "",
) -> float:
    """Returns a finite number in the range as a float; ``above`` and ``below`` are excluded."""
    number = as_float(name, value) if is_number(value) else math.nan
    if (
        math.isfinite(number)
        and (above is None or number > above)
        and (least is None or number >= least)
        and (most is None or number <= most)
        and (below is None or number < below)
    ):
        return number
    kind = "a finite number" if most is None and below is None else "a number"
    limits = _range(above, least, most, below)
    raise InputError(name, value, f"must be {kind}{limits}{note}{_of_python(value)}")


def checked_weight(name: str, value: object, note: str = "") -> float:
    """Returns a weight as a float: in a range where products and sums of weights stay finite."""
    number = value.item() if hasattr(value, "item") else value  # of numpy
    return checked_number(name, number, least=1e-100, most=1e100, note=note)


def _of_python(value: object) -> str:
    """Returns a hint for numbers of other libraries: cards need Python's own types."""
    is_of_python = isinstance(value, int | float) or not isinstance(value, Number)
    return "" if is_of_python else ", of Python's own type"


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuses a value that is not one of a few strings."""
    texts = tuple(choices)
    if value not in texts:
        *others, last = map(repr, texts)
        condition = f"must be {', '.join(others)}{' or ' * bool(others)}{last}"
        raise InputError(name, value, condition)


def check_is(name: str, value: object, *kinds: type[Any], methods: tuple[str, ...] = ()) -> None:
    """Refuses a value that is not an object of one of ``kinds``, for example the class itself.

    ``methods``: an object with all of these methods is accepted, too.
    """
    is_class = isinstance(value, type)  # a class has the methods of its objects
    if isinstance(value, kinds) and not is_class:
        return
    has_methods = methods and all(callable(getattr(value, method, None)) for method in methods)
    if has_methods and not is_class:
        return
    if isinstance(value, type):
        given: object = f"the class {value.__name__}"
    else:
        is_plain = value is None or isinstance(value, _PLAIN)
        given = value if is_plain else with_article(type(value))
    ways = [_SUCH_AS[kind.__name__] for kind in kinds if kind.__name__ in _SUCH_AS]
    classes = " or ".join(map(with_article, kinds))
    raise InputError(name, given, f"must be {', such as '.join([classes, ' or '.join(ways)])}")


def with_article(kind: type[Any]) -> str:
    """Returns the name of a class with its article, such as ``an int``."""
    name = kind.__name__
    return f"{'an' if name[0].upper() in 'AEIO' else 'a'} {name}"


def _range(
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> str:
    if least is not None and most is not None:
        return f" from {_written(least)} to {_written(most)}"
    ends = (">", above), (">=", least), ("<=", most), ("<", below)
    return " and".join(f" {sign} {_written(end)}" for sign, end in ends if end is not None)


def _written(limit: float) -> str:
    """Returns a limit in a few characters: a large power of two is written ``2^N``."""
    if limit != int(limit):
        return f"{limit:g}"
    size, power = abs(limit), int(limit).bit_length() - 1
    if size >= _LEAST_WRITTEN_AS_POWER and size == 2**power:
        return f"{'-' if limit < 0 else ''}2^{power}"
    return f"{limit:g}" if isinstance(limit, float) and size >= 10**18 else f"{int(limit):,}"
