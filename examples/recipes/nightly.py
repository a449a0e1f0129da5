"""A nightly release that is paid for once, however often a scheduler starts it.

    python nightly.py RUN_ID

RUN_ID names the night, not the try: ``{{ ds }}`` in Airflow, or the name of the Job in Kubernetes
(``nightly.yaml``). The exit code is 0 if the release of the night is complete, also if an earlier
start made it. It is 3 if another start has paid, and its release is not complete: another draw
would be a second release, for which nobody paid. Then ask `beam-dp ledger`, and do not try again.
"""

from __future__ import annotations

import os
import sys

import apache_beam as beam

import beam_dp as dp
from beam_dp.releases.kinds import finish_writing

LEDGER = os.environ.get("LEDGER", "budgets.sqlite")
INPUT = os.environ.get("INPUT", "visits.parquet")
DOMAIN = os.environ.get("DOMAIN", "visits.json")
OUTPUT = os.environ.get("OUTPUT", "out")
DATASET = "visits-2026"


def release(ledger: dp.Ledger, run_id: str) -> None:
    """Pays and releases; does nothing if another start of the same night pays first."""
    domain = dp.read_domain(DOMAIN)
    workload = dp.marginals(domain, ways=2)
    guarantee = dp.Guarantee(0.1, 1e-9, "add_or_remove_one", "person_id", max_records_per_unit=2)
    plan = dp.ReleaseSyntheticDatabase(domain, workload, guarantee).plan
    output = f"{OUTPUT}/{run_id}"
    read, write = dp.ReadRecords(INPUT), dp.WriteRelease(output)  # check before anything is paid
    entry, is_paid_now = ledger.spend_once(
        DATASET,
        guarantee=guarantee,
        loss=plan.loss,
        mechanism=plan.mechanism,
        parameters={**plan.public, "run_id": run_id},
        key="run_id",
    )
    if not is_paid_now:
        return
    ledger.mark_submitted(entry)
    draw = dp.ReleaseSyntheticDatabase(domain, workload, guarantee, ledger_token=entry)
    try:
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            pipeline | read | draw | write
    finally:
        finish_writing(output)
    ledger.mark_released(entry, dp.read_release(output, kind=dp.SyntheticDatabase).draw_id)


def main(run_id: str) -> int:
    """Releases unless the ledger has an entry of this night; returns the exit code."""
    ledger = dp.Ledger(LEDGER)
    if run_id not in {entry.parameters.get("run_id") for entry in ledger.entries(DATASET)}:
        release(ledger, run_id)
    entries = ledger.entries(DATASET)
    (entry,) = [entry for entry in entries if entry.parameters.get("run_id") == run_id]
    print(f"{run_id}: {entry.release_id} is {entry.state}")
    return 0 if entry.state == "released" else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
