"""Leaks that a change might add, one by one. Each replaces something of the package."""

import logging
import pathlib
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.metrics import Metrics

import beam_dp.mechanisms.marginals.synthesis as synthesis
import beam_dp.transforms.counting.limit_contributions as limit_module
import beam_dp.transforms.counting.summarise as encode_module

Leak = Callable[[pytest.MonkeyPatch], None]


def encoding(leak: Callable[[int, int], object]) -> Leak:
    """Returns a leak that is given the numbers of rows of a batch and of those kept."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        original = encode_module.encode_records

        def leaking(domain: Any, unit: str, as_cells: bool, batch: Any) -> Any:
            encoded = original(domain, unit, as_cells, batch)
            kept = len(encoded.cells) if encoded.cells is not None else len(encoded.codes[0])
            leak(batch.num_rows, kept)
            return encoded

        patch.setattr(encode_module, "encode_records", leaking)

    return apply


def warn(rows: int, kept: int) -> None:
    if kept < rows:
        warnings.warn("some records are outside the domain", stacklevel=1)


def fail(rows: int, kept: int) -> None:
    if kept < rows:
        raise ValueError("malformed record")


def dump(rows: int, kept: int) -> None:
    """Exact values that a debugging step leaves in the temporary directory."""
    pathlib.Path(tempfile.gettempdir(), "debug.txt").write_text(f"{kept} of {rows}")


def leak_temporary_file(patch: pytest.MonkeyPatch) -> None:
    """A file for each unit's partition, removed at once."""
    original = limit_module.select_records

    def spilling(*given: Any) -> Any:
        with tempfile.NamedTemporaryFile(prefix="spill-"):
            return original(*given)

    patch.setattr(limit_module, "select_records", spilling)


def leak_card(patch: pytest.MonkeyPatch) -> None:
    counted = []
    encoding(lambda rows, kept: counted.append(kept))(patch)
    original = synthesis.SyntheticDatabase

    def with_count(**fields: Any) -> Any:
        fit = {**fields.pop("fit", {}), "records_read": sum(counted)}
        return original(**fields, fit=fit)

    patch.setattr(synthesis, "SyntheticDatabase", with_count)


PROGRESS = logging.getLogger("beam_dp.progress")
LEAKS: dict[str, tuple[Leak, str]] = {
    "a counter of dropped records": (
        encoding(lambda rows, kept: Metrics.counter("beam_dp", "dropped records").inc(rows - kept)),
        "metrics",
    ),
    "a log line with a count": (
        encoding(lambda rows, kept: logging.getLogger("x").debug("%d of %d", kept, rows)),
        "logs",
    ),
    "a warning": (encoding(warn), "logs"),
    "an exception on a malformed record": (encoding(fail), "exit_code"),
    "a print": (encoding(lambda rows, kept: print("encoded", kept)), "stdout"),
    "progress that counts records": (
        encoding(lambda rows, kept: PROGRESS.info("encoded %d of %d", kept, rows)),
        "stderr",
    ),
    "temporary files by partition": (leak_temporary_file, "written"),
    "a file of exact values": (encoding(dump), "files"),
    "a field of the card": (leak_card, "card"),
}
