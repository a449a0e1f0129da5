"""What differs from a page is found, and what noise decides is not."""

import pytest
from documents.outputs import missing

TABLE = """\
records in groups
sex       count  ± (95 %)  ± (proved)  error
Female  3,392.0     10.47       24.87  exact
Male    2,762.0     10.47       24.87  exact
"""
SPENT = "spent  epsilon 1\nvisits/1  released\n2026-11-23 13:07:11 UTC by alice\n"
RECORDS = "protects  persons\nrecords   11,992 (a noisy count, standard error 9.4)\n"
DIFFERENCES = """\
cell         A     B  difference  standard error      z
a 0, c 1  30.1  41.9       +11.8             6.9  +1.72
0 of 26 cells differ by more than 3 standard errors (z).
"""


@pytest.mark.parametrize(
    ("printed", "old", "new", "is_alike"),
    [
        (TABLE, "", "", True),
        (TABLE, "3,392.0", "3,401.5", True),
        (TABLE, "3,392.0", "3,492.0", False),
        (TABLE, "10.47", "10.48", False),
        (TABLE, "exact", "approximate", False),
        (TABLE, "Female", "Woman", False),
        (TABLE, "records in groups\n", "", True),
        (SPENT, "13:07:11", "14:00:00", True),
        (SPENT, "epsilon 1", "epsilon 2", False),
        (SPENT, "visits/1  released\n", "visits/1  released\nvisits/2  spent\n", False),
        (RECORDS, "11,992", "12,050", True),
        (RECORDS, "11,992", "12,992", False),
        (RECORDS, "error 9.4", "error 9.5", False),
        (DIFFERENCES, "a 0, c 1  30.1", "b 2, c 3  -0.5", True),
        (DIFFERENCES, "0 of 26", "1 of 26", True),
        (DIFFERENCES, "0 of 26", "0 of 27", False),
    ],
)
def test_only_noisy_numbers_may_differ(printed, old, new, is_alike):
    shown = printed.removeprefix("records in groups\n")
    assert (missing(shown, printed.replace(old, new)) == "") == is_alike


def test_ellipsis_matches_any_lines():
    assert missing("a\n...\nd\n", "a\nb\nc\nd\n") == ""
    assert missing("a\nd\n", "a\nb\nc\nd\n") == "a\nd\n"
    assert missing("d\n...\na\n", "a\nb\nc\nd\n") == "a\n"
