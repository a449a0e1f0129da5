"""This project with the methods of SDV's synthesizers of one table, and as one of SDGym.

    synthesizer = PrivateSynthesizer(metadata, epsilon=1.0)
    synthesizer.fit({"visits": frame})
    copy = synthesizer.sample(1000)["visits"]

The functions at the end are what ``sdgym.create_single_table_synthesizer`` asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

import beam_dp as dp

# What SDV calls the types of columns. All others identify people or things, and are not released.
_TYPES = {
    "boolean": "boolean",
    "categorical": "categorical",
    "datetime": "datetime",
    "numerical": "numeric",
}


class PrivateSynthesizer:
    """A release of all pairs of columns, whose values and bins are found privately.

    Privacy: what is sampled is (epsilon, delta)-differentially private for adding or removing a
    unit, if the metadata does not depend on the records. SDV's ``detect_from_dataframes`` reads
    them; write the metadata, or check what it guessed. Each ``fit`` pays again.

    Args:
        metadata: SDV's of one table, or a dict in its form.
        epsilon: the privacy loss of a fit.
        delta: the same.
        privacy_unit: the column that identifies a person; of each, one row is used. By default
            single rows are protected.
    """

    def __init__(
        self,
        metadata: Any,
        epsilon: float = 1.0,
        delta: float = 1e-9,
        privacy_unit: str = "record",
    ) -> None:
        self.metadata = metadata
        self.guarantee = dp.Guarantee(epsilon, delta, "add_or_remove_one", privacy_unit, 1)
        self.release: dp.SyntheticDatabase | None = None
        self._name = ""
        self._dtypes: Mapping[str, Any] = {}

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the table and SDV's types of them."""
        stated = self.metadata if isinstance(self.metadata, dict) else self.metadata.to_dict()
        (table,) = stated.get("tables", {"": stated}).values()
        return {name: column["sdtype"] for name, column in table["columns"].items()}

    def fit(self, data: Mapping[str, pd.DataFrame]) -> None:
        """Makes a release of one table, by its name; samples do not read the table again."""
        ((self._name, table),) = data.items()
        types = {name: _TYPES[kind] for name, kind in self.columns.items() if kind in _TYPES}
        whole = [name for name in types if pd.api.types.is_integer_dtype(table[name].dtype)]
        types |= {name: "integer" for name in whole if types[name] == "numeric"}
        draft = dp.domain_draft(table[[*types]], types=types, null="undiscovered")
        self.release = dp.release(table, draft.domain(), guarantee=self.guarantee)
        self._dtypes = table.dtypes.to_dict()

    def sample(self, num_rows: int) -> dict[str, pd.DataFrame]:
        """Returns the rows of the release in random order; beyond their number, new draws."""
        if self.release is None:
            raise ValueError("sample: fit must be called first")
        rows = self.release.to_pandas()
        if num_rows > len(rows):
            more = self.release.sample(num_rows - len(rows), seed=len(rows)).to_pandas()
            rows = pd.concat([rows, more])
        rows = rows.sample(num_rows, random_state=0).reset_index(drop=True)
        made = pd.DataFrame(index=rows.index)
        for name in self.columns:
            values = rows.get(name, pd.Series(range(num_rows)))  # no identifier is released
            dtype = self._dtypes[name]
            if pd.api.types.is_numeric_dtype(dtype):
                values = pd.to_numeric(values, errors="coerce")
            if pd.api.types.is_integer_dtype(dtype) and values.notna().any():
                values = values.fillna(values.mode()[0])  # rare categories have no number
            made[name] = values if values.hasnans else values.astype(dtype)
        return {self._name: made}


def get_trained_synthesizer(data: pd.DataFrame, metadata: dict[str, Any]) -> PrivateSynthesizer:
    """Returns a fitted synthesizer, as SDGym asks for."""
    synthesizer = PrivateSynthesizer(metadata)
    synthesizer.fit({"": data})
    return synthesizer


def sample_from_synthesizer(synthesizer: PrivateSynthesizer, num_rows: int) -> pd.DataFrame:
    """Returns rows of a fitted synthesizer, as SDGym asks for."""
    return synthesizer.sample(num_rows)[""]
