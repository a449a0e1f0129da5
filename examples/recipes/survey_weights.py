"""Weighted counts, shares and means of a survey, and a calibration that costs nothing.

    python made_up.py && python survey_weights.py

Possible: weights that follow from the design, such as 1 / (rate of the stratum). They are a column
like others. Calibrate after the release, on public totals.

Not possible: weights that were calibrated on the records (raking, nonresponse models), because each
depends on the answers of others; copies of a row by its weight, because a person then has many
rows; errors of the design (strata, clusters, replicate weights). Error bars are of noise only.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import beam_dp as dp

# Weights in tens are whole numbers from 2 to 5: sums of integers are exact but for the noise, and
# sums of numbers in bins are not. The largest product of a weight and a charge is 50 * 300.
DOMAIN = """{"attributes": [
    {"name": "sex", "type": "categorical", "values": ["Female", "Male"]},
    {"name": "smoker", "type": "boolean"},
    {"name": "tens", "type": "integer", "min": 2, "max": 5},
    {"name": "weighted_charge", "type": "numeric",
     "edges": [0, 500, 1000, 1500, 2000, 3000, 4000, 6000, 9000, 15000]}]}"""
# Of a census, with all people and not only those who were asked.
CENSUS = {"sex": {"Female": 220_000.0, "Male": 190_000.0}}

people = pq.read_table("survey.parquet")
product = pc.multiply(people["weight"], people["charge"])
people = people.append_column("weighted_charge", product)
people = people.append_column("tens", pc.divide(people["weight"], 10.0))
domain = dp.parse_domain(DOMAIN)
guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", max_records_per_unit=1)
release = dp.release(people, domain, dp.marginals(domain, ways=2), guarantee, output="out/survey")


def total(column: str, where: str = "") -> float:
    """Returns a released sum."""
    answer = release.query(where) if where else release.query()
    return float(answer.sum(column).to_arrow()[f"sum_{column}"][0].as_py())


print("weighted counts of smokers, in tens, with error bars:")
print(release.query("smoker").group_by("sex").sum("tens"))
population = 10 * total("tens")
print(f"smokers: {10 * total('tens', 'smoker') / population:.1%} of the population")
print(f"mean charge: {total('weighted_charge') / population:.2f}")

# Raking of released rows costs nothing. With several columns, repeat until it settles.
copy = release.to_arrow()
weights = 10.0 * np.array(copy["tens"])
for column, totals in CENSUS.items():
    values = np.array(copy[column])
    for value, size in totals.items():
        weights[values == value] *= size / weights[values == value].sum()
copy = copy.append_column("calibrated", pa.array(weights))
pq.write_table(copy, "out/calibrated.parquet")
print(f"calibrated smokers: {weights[np.array(copy['smoker'])].sum():,.0f}")
