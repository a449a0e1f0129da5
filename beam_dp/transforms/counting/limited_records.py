"""Encoded records with limited contributions, and those that are left out."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import EncodedBatch
from beam_dp.mechanisms.left_out import LeftOutPlan
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.encode import INSIDE, LEFT_OUT, EncodeRecords
from beam_dp.transforms.counting.limit_contributions import limited
from beam_dp.transforms.counting.summarise import Summarise
from beam_dp.transforms.reading.records import refuse_windows


def limited_records(
    records: beam.PCollection[Any],
    domain: Domain,
    guarantee: Guarantee,
    *,
    as_cells: bool,
    unit_costs: UnitCosts | None,
    left_out: LeftOutPlan | None = None,
) -> tuple[beam.PCollection[EncodedBatch], beam.PCollection[tuple[int, bytes]] | None]:
    """Returns the records inside a domain, at most k a unit, and how many others there are.

    Records inside the domain and outside it are limited apart, each kind as a function of the
    unit's own records of that kind: those outside do not push out those inside.

    Args:
        records: of any kind that ``EncodeRecords`` reads.
        domain: the universe.
        guarantee: whose unit and limit are kept.
        as_cells: how to encode.
        unit_costs: the plan's, which limit the records inside the domain; None where only their
            number is limited.
        left_out: how the others are counted; None to forget them.

    Returns:
        Encoded records; and shards of the exact counts of ``left_out.domain``, or None. Both are
        as secret as the records.

    Raises:
        InputError: if the records are windowed or unbounded, or lack a column.
    """
    refuse_windows(records)
    unit = guarantee.privacy_unit
    encode = EncodeRecords(domain, unit, as_cells=as_cells, keep_left_out=left_out is not None)
    encoded = records | "Encode" >> encode
    if left_out is None:
        return limited(encoded, domain, guarantee, unit_costs=unit_costs), None
    inside = limited(encoded[INSIDE], domain, guarantee, unit_costs=unit_costs)
    # Their noise is that for k of them.
    outside = limited(
        encoded[LEFT_OUT], left_out.domain, guarantee, "Limit left out", unit_costs=None
    )
    accumulator = HistogramAccumulator(left_out.domain)
    return inside, outside | "Summarise left out" >> Summarise(accumulator)
