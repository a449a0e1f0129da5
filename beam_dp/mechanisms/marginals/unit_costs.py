"""What the records of one privacy unit cost, where residuals are measured with Gaussian noise."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from beam_dp.checks import checked_number
from beam_dp.domain import Domain
from beam_dp.encoding.unit_costs import MAX_ATTRIBUTES, MAX_RECORDS, PARTS, UnitCosts
from beam_dp.errors import InputError
from beam_dp.flags.numbers import number
from beam_dp.flags.options import option
from beam_dp.mechanisms.contract import NumRecords
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import joins_fit
from beam_dp.mechanisms.marginals.strategies import agreement_overlaps
from beam_dp.privacy.guarantee import RECORD, Guarantee, Neighboring
from beam_dp.privacy.rounding import UNIT
from beam_dp.queries.workload import Workload

MAX_UNIT_COST = option(
    "a unit's records are kept up to this cost, at which C equal records would be: more of them the"
    " less they are alike",
    "C",
    number,
)


def unit_costs(
    domain: Domain, measurements: Sequence[Measurement], max_unit_cost: float
) -> UnitCosts:
    """Returns the limit under which a unit moves residual measurements no more than C records do.

    Privacy: the measurements are one Gaussian mechanism. Let phi(x) be what a record x adds to all
    of them, each in units of its noise: their L2 norm. A unit adds the sum of its records' phi, so
    that mu^2 is at most the largest squared norm of such a sum, which is the sum over all ordered
    pairs of a unit's records of <phi(x), phi(y)>. That is a public function of where x and y agree:

        <phi(x), phi(y)> = sum over residuals S of precision_S
                           times the product over i in S of ([x_i = y_i] - 1 / size_i)

    It is ``one`` for x = y, whatever x is, and by Cauchy and Schwarz no more for any pair. What
    stays of a unit costs at most C^2 ``one``, by ``UnitCosts.keeps``: exactly, whatever the data,
    for costs are rounded up. Hence mu <= C sqrt(one), as of C equal records, under
    add-or-remove-one. (A replacement moves the difference of two such sums, at most twice as much;
    equal units would cancel, but none must, so it is refused.)

    Args:
        domain: the universe.
        measurements: residuals with discrete Gaussian noise: all that is drawn from the records.
        max_unit_cost: C >= 1.
    """
    supports = [domain.axes(each.names) for each in measurements]
    # As ``discrete_gaussian_mu`` counts: the squared change over s^2 - 4, in grid units.
    precisions = np.array([each.grid**2 / (each.scale**2 - 4) for each in measurements])
    used = sorted({axis for support in supports for axis in support})
    # The pattern's first bit is of the first attribute, hence the fastest axis.
    overlaps = agreement_overlaps(domain, used, supports, precisions).transpose().ravel()
    # No more than the rounding of so many sums and products, whose terms are below their sum.
    slack = (len(supports) + 8 * len(used) + 16) * UNIT * float(precisions.sum())
    one = float(overlaps[-1])
    above = overlaps + slack
    shares = above / np.where(above > 0, one - slack, one + slack)
    pairs = np.minimum(np.ceil((shares + 8 * UNIT) * PARTS), PARTS).astype(np.int64)
    pairs[-1] = PARTS
    return UnitCosts(tuple(used), pairs, int(Fraction(max_unit_cost) ** 2 * PARTS))


def check_max_unit_cost(max_unit_cost: float | None, calibration: str) -> None:
    """Refuses a limit of what a unit costs that is none, whatever is asked.

    Raises:
        InputError: naming the parameter.
    """
    if max_unit_cost is None:
        return
    checked_number("max_unit_cost", max_unit_cost, least=1)
    if calibration == "textbook":
        condition = "must be left out with calibration textbook, which measures no residuals"
        raise InputError("max_unit_cost", max_unit_cost, condition)


def check_unit_cost(
    workload: Workload, guarantee: Guarantee, num_records: NumRecords, max_unit_cost: float
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
    if not 1 <= max_unit_cost <= most:
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
