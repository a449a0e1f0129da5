"""Reports: one self-contained HTML page for people, from a release alone, or with its records."""

from beam_dp.reports.about import Beside as Beside, name_of as name_of, paid_by as paid_by
from beam_dp.reports.page import report_page as report_page
