"""Audits of differential privacy, for the mechanisms of this package and for yours.

Three kinds, each of which sees what the others cannot:

* ``audit_law``: the exact output laws on all neighbours over a tiny universe. Refutes a wrong
  calibration; knows nothing of the code that draws.
* ``audit_sampler``: draws of the production sampler against the closed form, by chi-square.
* ``audit_black_box``: whole runs on two neighbouring data sets. Bounds epsilon from below
  whatever the code does, and fails as well if it saw less than it should have.

An audit can refute a guarantee and never proves one. Break your mechanism on purpose, halve its
noise, and see each audit that should notice fail.

Example: a histogram over a declared universe, and the same with empty cells left out.
    >>> from beam_dp import Guarantee
    >>> promise = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
    >>> def histogram(data):
    ...     return product_law([discrete_laplace(1.0, data.count(cell), -6, 8) for cell in "ab"])
    >>> audit_law(histogram, "ab", promise).is_private
    True
    >>> def without_empty_cells(data):
    ...     cells = [cell for cell in "ab" if cell in data]
    ...     laws = [discrete_laplace(1.0, data.count(cell), -6, 8) for cell in cells]
    ...     return {(*cells, *outcome): p for outcome, p in product_law(laws).items()}
    >>> audit_law(without_empty_cells, "ab", promise).epsilon
    inf
"""

from beam_dp.testing.black_box import (
    FALSE_ALARM as FALSE_ALARM,
    BlackBoxAudit as BlackBoxAudit,
    Event as Event,
    ForeseenEvent as ForeseenEvent,
    audit_black_box as audit_black_box,
    choose_event as choose_event,
    epsilon_lower_bound as epsilon_lower_bound,
)
from beam_dp.testing.exact import (
    ExactAudit as ExactAudit,
    audit_law as audit_law,
    neighbouring_units as neighbouring_units,
    unit_holdings as unit_holdings,
)
from beam_dp.testing.laws import (
    Law as Law,
    discrete_gaussian as discrete_gaussian,
    discrete_laplace as discrete_laplace,
    exponential_mechanism as exponential_mechanism,
    geometric_noisy_max as geometric_noisy_max,
    geometric_noisy_top as geometric_noisy_top,
    hockey_stick as hockey_stick,
    in_rounds as in_rounds,
    largest_log_ratio as largest_log_ratio,
    permute_and_flip as permute_and_flip,
    product_law as product_law,
)
from beam_dp.testing.samplers import SamplerAudit as SamplerAudit, audit_sampler as audit_sampler
