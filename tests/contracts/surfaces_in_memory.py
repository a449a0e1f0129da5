"""Releases of a table in memory; refusals name all that this module imports or defines."""
# ruff: noqa: F401

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from surfaces import Surface
from surfaces_values import guarantee

import beam_dp as dp

DOMAIN = dp.read_domain('{"age": 100, "sex": 2}')
TABLE = pa.table({"person_id": [1, 2, 3], "age": [30, 41, 41], "sex": [0, 1, 1]})
VALID = {"domain": DOMAIN, "workload": dp.marginals(DOMAIN, ways=2), "guarantee": guarantee()}


def release(table: Any = TABLE, **changed: Any) -> dp.SyntheticDatabase:
    """A valid release, but for what is changed."""
    return dp.release(table, **{**VALID, **changed})


def frame_of(entry: dict[str, Any], values: Any) -> dp.SyntheticDatabase:
    """A release of a pandas column, read by an attribute."""
    domain = dp.read_domain({"attributes": [{"name": "x", **entry}]})
    frame = pd.DataFrame({"x": values})
    return release(frame, domain=domain, workload=dp.marginals(domain, ways=1))


SURFACES: dict[str, Surface] = {"jobs in memory": globals()}
