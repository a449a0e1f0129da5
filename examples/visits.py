"""A made-up table of visits to a clinic, for the tutorials. Its seed is public."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

NUM_PEOPLE = 12_000
SEED = 20_240_229
EDUCATION = ("HS", "BA", "MA")

# Public knowledge: the form that visitors fill in, and round numbers of years and euros. Any other
# education counts as "other". The privacy unit, person_id, is not in the domain.
DOMAIN = {
    "attributes": [
        {"name": "age", "type": "numeric", "edges": [17, 25, 35, 45, 55, 65, 91], "whole": True},
        {"name": "sex", "type": "categorical", "values": ["Female", "Male"]},
        {"name": "education", "type": "categorical", "values": [*EDUCATION], "other": True},
        {"name": "smoker", "type": "boolean"},
        {"name": "charge", "type": "numeric", "edges": [0, 25, 50, 75, 100, 150, 200, 300]},
    ]
}
# Each person made one or two visits, so none has to be left out.
MAX_VISITS = 2


def visits() -> pa.Table:
    """Returns the table: about 16,000 visits of 12,000 people, in no order, a visit in each row."""
    generator = np.random.default_rng(SEED)
    ages = np.clip(generator.normal(44, 17, NUM_PEOPLE).round(), 17, 90).astype(np.int64)
    is_female = generator.random(NUM_PEOPLE) < 0.55
    # Younger people have studied longer.
    taste = generator.normal(size=NUM_PEOPLE) - (ages - 44) / 40
    education = np.digitize(taste, [0.1, 0.9])
    is_doctor = generator.random(NUM_PEOPLE) < 0.02
    written = np.where(is_doctor, "PhD", np.array(EDUCATION)[education])
    smokes = generator.random(NUM_PEOPLE) < 0.32 - 0.09 * education
    rows = np.repeat(np.arange(NUM_PEOPLE), 1 + (generator.random(NUM_PEOPLE) < 0.35))
    generator.shuffle(rows)
    means = 35 + 0.9 * ages[rows] + 25 * smokes[rows]
    charges = np.minimum(means * generator.gamma(6, 1 / 6, rows.size), 299.0).round(2)
    return pa.table(
        {
            "person_id": rows,
            "age": ages[rows],
            "sex": np.where(is_female, "Female", "Male")[rows],
            "education": written[rows],
            "smoker": smokes[rows],
            "charge": charges,
        }
    )
