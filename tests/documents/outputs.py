"""Whether what a command prints has the form that a page shows: the same words and exact numbers.

Noise decides some numbers. Those may differ, but where an error bar stands beside one no further
than noise explains: both are then draws of the same law.
"""

import math
import re
from collections.abc import Sequence

# Two draws differ by more than so many of their 95 % margins with a probability below 1e-50 if the
# noise is Gaussian, and below 1e-12 if it is Laplace noise of one scale: e^-x (1 + x / 2) with
# x = 1.96 sqrt(2) 11. The pages show fewer than 20 such numbers.
MARGINS = 11.0
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
# Columns that noise decides. Of a table of differences it also decides which cells are shown, for
# those that differ most stand first.
NOISY_COLUMNS = {"count"}
DIFFERENCES = ["A", "B", "difference", "standard error", "z"]
NOISY_WORDS = (
    re.compile(r"(?P<value>[\d,]+) \(a noisy count, standard error (?P<error>[\d.]+)\)"),
    re.compile(r"(?P<value>[\d,.]+) ± (?P<margin>[\d.]+)"),
    re.compile(r"(?P<value>[\d,.]+) records, of"),
    re.compile(r"standard error is (?P<value>[\d,.]+); "),  # of a sketch, estimated
    re.compile(r"the error is at most (?P<value>[\d,]+\.\d)"),
    re.compile(r"(?P<value>\d+) of \d+ (?:cells differ|answers|groups)"),
    re.compile(r"(?P<value>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC"),
)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def _is_near(shown: str, printed: str, margin: float) -> bool:
    return abs(number(shown) - number(printed)) <= MARGINS * margin


def _alike_in_words(shown: str, printed: str) -> bool:
    """Whether two texts are one, but for the noisy numbers that their words name."""
    for words in NOISY_WORDS:
        here, there = words.search(shown), words.search(printed)
        if here is None or there is None:
            continue
        stated = here.groupdict()
        margin = number(stated.get("margin", "inf"))
        margin = 2 * number(stated["error"]) if "error" in stated else margin
        if math.isfinite(margin) and not _is_near(here["value"], there["value"], margin):
            return False
        printed = printed.replace(there["value"], here["value"], 1)
    return shown.split() == printed.split()


def _columns(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def _alike(shown: str, printed: str, header: Sequence[str]) -> bool:
    """Whether two lines are alike, below a line that may be the header of both."""
    here, there = _columns(shown), _columns(printed)
    if header[1:] == DIFFERENCES and len(here) == len(header):
        return len(there) == len(here) and all(map(NUMBER.fullmatch, there[1:]))
    if len(header) != len(here) or len(here) != len(there) or not {*header} & NOISY_COLUMNS:
        return _alike_in_words(shown, printed)
    margin = next(place for place, name in enumerate(header) if name in ("± (95 %)", "margin"))
    for name, old, new in zip(header, here, there, strict=True):
        if name not in NOISY_COLUMNS and old != new:
            return False
        if name in NOISY_COLUMNS and not (
            NUMBER.fullmatch(new) and _is_near(old, new, number(here[margin]))
        ):
            return False
    return True


def _matches(shown: Sequence[str], printed: Sequence[str]) -> bool:
    header: list[str] = []
    for here, there in zip(shown, printed, strict=True):
        if not _alike(here, there, header):
            return False
        if not any(map(NUMBER.fullmatch, _columns(here))):
            header = _columns(here)
    return True


def missing(shown: str, printed: str) -> str:
    """Returns the first part of what is shown that was not printed; empty if all of it was.

    A line of three points stands for any lines; what is between two of them was printed as one.
    """
    there = [line.rstrip() for line in printed.splitlines()]
    for part in re.split(r"^ *\.\.\.\n", shown.rstrip() + "\n", flags=re.M):
        here = [line.rstrip() for line in part.rstrip().splitlines()]
        for start in range(len(there) - len(here) + 1):
            if _matches(here, there[start : start + len(here)]):
                there = there[start + len(here) :]
                break
        else:
            return part
    return ""
