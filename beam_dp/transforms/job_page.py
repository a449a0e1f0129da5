"""What the page of a job shows of a release: its promise, and its size once it is committed.

No other module defines counters, because a counter at or before the draw could depend on records.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.display import DisplayDataItem

from beam_dp.mechanisms.contract import Plan
from beam_dp.releases.files.commit import committed_card
from beam_dp.storage.store import store_for

COUNTERS = "beam_dp"  # the namespace of the counters


class ShowsPromise(beam.PTransform):
    """A transform that shows the promise of its ``plan`` as display data and as an annotation.

    Everything shown is public: it is known before any record is read, and is on the card.
    """

    plan: Plan

    def display_data(self) -> dict[str, Any]:
        """Returns the mechanism, the guarantee and the ledger entry that paid."""
        return {
            name: DisplayDataItem(value, label=name.replace("_", " "))
            for name, value in self._promise().items()
        }

    def annotations(self) -> dict[str, Any]:
        """Returns the display data as JSON, under the name of the package."""
        promise = json.dumps(self._promise(), ensure_ascii=False)
        return {**super().annotations(), COUNTERS: promise}

    def _promise(self) -> dict[str, Any]:
        guarantee = self.plan.promised.to_json()
        shown = ("epsilon", "delta", "neighboring", "privacy_unit", "max_records_per_unit")
        promise = {name: guarantee[name] for name in shown if name in guarantee}
        promise = {"mechanism": self.plan.mechanism, **promise}
        # Programs pay after they have built the pipeline, when annotations are already made.
        with contextlib.suppress(RuntimeError):
            promise |= self.plan.payer()
        return promise


def count_committed(directory: str) -> None:
    """Counts the committed release of a directory: files, bytes, and records or answers.

    The counts are read from the committed card alone, so they depend on records only through the
    release. Call this after the commit, for any attempt: another draw may have won.
    """
    card = committed_card(store_for(directory, "output"), directory)
    if card is None:
        return
    sizes = [file.num_bytes for file in card.files.values()]
    numbers = {"releases": 1, "files": len(sizes), "bytes": sum(sizes)}
    if card.kind == "synthetic_database":
        (numbers["records"],) = card.fields["num_records"].values()
    elif card.kind == "answers":
        numbers["answers"] = card.fields["num_answers"]
    for name, number in numbers.items():
        Metrics.counter(COUNTERS, f"{name}_committed").inc(number)
