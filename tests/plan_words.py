"""Command lines of `beam-dp plan`, one for each kind of job."""

from collections.abc import Mapping

TABLE = {"num_records": "20000", "workload": "marginals:2", "domain": '{"a": 4, "b": 3, "c": 2}'}
KEYS = {"num_records": "1e5", "max_sparsity": "5", "num_keys": "1000", "largest_count": "500"}
KEYS |= {"size": "512", "num_questions": "4", "delta": "0"}  # quick: of one mechanism
WINDOWS = {"workload": "marginals:1", "domain": '{"a": 10}', "start": "2026-11-23T00:00Z"}
WINDOWS |= {"window": "1h", "num_windows": "168", "grace": "0s", "max_windows_per_unit": "7"}
WINDOWS |= {"protected_windows": "168", "windows": "true"}
SHARED: dict[str, str | None] = {"delta": "1e-9", "neighboring": "add_or_remove_one"}
SHARED |= {"privacy_unit": "person_id", "max_records_per_unit": "1"}
QUERIES: dict[str, str | None] = {"num_records": "1e6", "target_error": "1e5", "epsilon": "1"}
QUERIES |= {"delta": "0", "neighboring": "replace_one", "privacy_unit": "record"}
QUERIES |= {"max_records_per_unit": None, "num_cells": "1024"}
KINDS = {
    "marginals": TABLE,
    "intervals": {**TABLE, "workload": "intervals:a"},
    "conjunctions": {**TABLE, "workload": "conjunctions:2"},
    "keys": KEYS,
    "windows": WINDOWS,
}


def argv(given: Mapping[str, str | None], *more: str, **changed: str | None) -> list[str]:
    """Returns a command line; a flag that is None is left out."""
    texts = {
        name: text for name, text in {**SHARED, **given, **changed}.items() if text is not None
    }
    flags = (
        f"--{name}={text}" if name != "windows" else "--windows" for name, text in texts.items()
    )
    return ["plan", *flags, *more]
