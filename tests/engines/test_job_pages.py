"""Counters of committed releases on engines, whose own counters of elements stay private."""

import pytest
from job_pages import KINDS, NEIGHBOURS, counters, expected, run

pytestmark = [pytest.mark.engines, pytest.mark.part]


@pytest.mark.parametrize("engine", ["prism", "flink"])
@pytest.mark.parametrize("kind", KINDS)
def test_counters_of_neighbours_are_functions_of_the_release(kind, engine, tmp_path, request):
    flags = request.getfixturevalue(engine)
    for number, people in enumerate(NEIGHBOURS):
        out = tmp_path / str(number)
        assert counters(run(kind, people, out, flags)) == expected(out)
