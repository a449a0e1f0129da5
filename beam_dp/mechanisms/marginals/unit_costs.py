"""Where records may be limited by what those of their unit cost, and the flag that asks for it."""

from __future__ import annotations

from typing import Literal

from beam_dp.checks import checked_number
from beam_dp.errors import InputError
from beam_dp.flags.numbers import number
from beam_dp.flags.options import OrWord, option
from beam_dp.mechanisms.contract import NumRecords
from beam_dp.mechanisms.marginals.plan import joins_fit
from beam_dp.privacy.guarantee import RECORD, Guarantee, Neighboring
from beam_dp.privacy.unit_costs import MAX_ATTRIBUTES, MAX_RECORDS
from beam_dp.queries.workload import Workload

UnitCost = float | Literal["planned"]

MAX_UNIT_COST = option(
    "a unit's records are kept up to the cost of C equal ones, which are more of them the less they"
    " are alike; 'planned': up to that of max_records_per_unit which agree by chance alone",
    "C",
    OrWord(number, "planned"),
)


def check_max_unit_cost(max_unit_cost: UnitCost | None, calibration: str) -> None:
    """Refuses a limit of what a unit costs that is none, whatever is asked.

    Raises:
        InputError: naming the parameter.
    """
    if max_unit_cost is None:
        return
    if max_unit_cost != "planned":
        checked_number("max_unit_cost", max_unit_cost, least=1, note=" or 'planned'")
    if calibration == "textbook":
        condition = "must be left out with calibration textbook, which measures no residuals"
        raise InputError("max_unit_cost", max_unit_cost, condition)


def check_unit_cost(
    workload: Workload, guarantee: Guarantee, num_records: NumRecords, max_unit_cost: UnitCost
) -> None:
    """Refuses a limit of what a unit costs where nothing is planned that it could be of.

    Raises:
        InputError: naming the parameter.
    """

    def refuse(condition: str) -> InputError:
        return InputError("max_unit_cost", max_unit_cost, condition)

    if guarantee.privacy_unit == RECORD:
        raise refuse("must be left out where the privacy unit is a record")
    most = guarantee.max_records_per_unit
    if max_unit_cost != "planned" and not 1 <= max_unit_cost <= most:
        raise refuse(f"must be from 1 to max_records_per_unit, which is {most:,}")
    if most > MAX_RECORDS:
        condition = f"must be at most {MAX_RECORDS:,} where max_unit_cost is given"
        raise InputError("max_records_per_unit", most, condition)
    if guarantee.neighboring is not Neighboring.ADD_OR_REMOVE_ONE:
        raise refuse("must be left out under replace_one: use add_or_remove_one")
    if guarantee.delta == 0:
        raise refuse("must be left out where delta is 0: Gaussian noise needs a delta > 0")
    if num_records != "noisy":
        raise refuse("must be left out where num_records is public: use num_records noisy")
    if not joins_fit(workload):
        raise refuse(
            "must be left out where noise selects what is measured, as it does for a workload that"
            " no one model can hold: use fewer or smaller marginals"
        )
    used = {name for names in workload for name in names if workload.domain[name].size > 1}
    if len(used) > MAX_ATTRIBUTES:
        raise refuse(
            f"must be left out where the workload has more than {MAX_ATTRIBUTES} attributes;"
            f" it has {len(used)}"
        )
