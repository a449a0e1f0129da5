"""One row for each person from many: any, min, max and first, before a release.

    python made_up.py && python one_row_per_person.py

A row may depend on the rows of its own person only. A rank among all people, or a difference from
their mean, depends on others: no program can see this, and the guarantee is lost.
"""

from __future__ import annotations

import json

import pyarrow.parquet as pq

import beam_dp as dp

# Public knowledge, as always: nobody looked at the rows for these bins.
DOMAIN = {
    "attributes": [
        {"name": "smoker_any", "type": "boolean"},
        {"name": "age_min", "type": "numeric", "edges": [17, 25, 35, 45, 55, 65, 91]},
        {"name": "charge_max", "type": "numeric", "edges": [0, 25, 50, 75, 100, 150, 200, 300]},
        {"name": "education_first", "type": "categorical", "values": ["HS", "BA", "MA"],
         "other": True},
    ]
}  # fmt: skip

visits = pq.read_table("visits.parquet").sort_by([("person_id", "ascending"), ("day", "ascending")])
kept = [("smoker", "any"), ("age", "min"), ("charge", "max"), ("education", "first")]
people = visits.group_by("person_id", use_threads=False).aggregate(kept)  # threads know no order

# The right way: person_id stays the unit, so the release protects people even if a row is doubled.
guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", max_records_per_unit=1)
domain = dp.parse_domain(json.dumps(DOMAIN))
release = dp.release(people, domain, dp.marginals(domain, ways=2), guarantee, output="out/people")
print(release.query("charge_max >= 100").group_by("smoker_any").count())

# With the visits themselves and a limit of 1, one visit of each person is used, chosen at random:
# private, but the answer is about a visit, not about the largest charge of a person.

# A wrong way: many rows for each person, and each row its own unit. A person with 10 visits loses
# 10 times epsilon. Without a ledger this is only warned of, because the rows may be of 10 people.
ledger = dp.Ledger("budgets.sqlite")
ledger.declare("visits-2026", 3, 1e-9, "person_id", "add_or_remove_one")
rows = dp.read_domain("visits.json")
record = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", max_records_per_unit=1)
try:
    dp.release(
        visits,
        rows,
        dp.marginals(rows, ways=2),
        record,
        ledger=ledger,
        dataset_id="visits-2026",
    )
except dp.LedgerError as error:
    print(f"refused: {error}")

# Another wrong way: a row for each day sums up many people, and names none of them.
days = visits.group_by("day", use_threads=False).aggregate(kept)
try:
    dp.release(days, domain, dp.marginals(domain, ways=2), guarantee)
except dp.InputError as error:
    print(f"refused: {error}")
print(f"paid: {ledger.total('visits-2026'):g}")
