"""Releases of a table in memory."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
from surfaces import Surface
from surfaces_values import guarantee

import beam_dp as dp

DOMAIN = dp.read_domain('{"age": 100, "sex": 2}')
TABLE = pa.table({"person_id": [1, 2, 3], "age": [30, 41, 41], "sex": [0, 1, 1]})


def release(table: Any = TABLE, **changed: Any) -> dp.SyntheticDatabase:
    """A valid release, but for what is changed."""
    valid = {
        "domain": DOMAIN,
        "workload": dp.marginals(DOMAIN, ways=2),
        "guarantee": guarantee(),
    }
    return dp.release(table, **{**valid, **changed})


SURFACES: dict[str, Surface] = {
    "jobs in memory": {
        "release": release,
        "guarantee": guarantee,
        "DOMAIN": DOMAIN,
        "TABLE": TABLE,
        "dp": dp,
        "pa": pa,
        "pd": pd,
    }
}
