"""Tables of windows that are damaged anywhere: refused in one line, or read and usable."""

from __future__ import annotations

from functools import cache

import numpy as np
from fuzz.damaged_releases import damaged_release
from fuzz.mutations import raised_by

from beam_dp.domain.attributes import BooleanAttribute
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload
from beam_dp.releases.files.card import ReleaseError, card_text
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.releases.windows.describe import describe_window_tables
from beam_dp.releases.windows.files import payload
from beam_dp.releases.windows.release import WindowTables

DRAW = "0123456789abcdef0123456789abcdef"


@cache
def _good() -> tuple[WindowTables, dict[str, bytes]]:
    domain = Domain((IntegerAttribute("age", -1, 3), BooleanAttribute("member")))
    workload = Workload(domain, (("age", "member"), ("member",)))
    release = WindowTables(
        draw_id=DRAW,
        guarantee=Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 2),
        horizon_id=DRAW,
        level="window",
        number=7,
        start=1_795_402_800,
        end=1_795_406_400,
        workload=workload,
        tables={("age", "member"): np.arange(10.0).reshape(5, 2), ("member",): np.ones(2)},
        measured=(
            MeasuredTable(("age", "member"), "table", "discrete_laplace", 2.5),
            MeasuredTable(("member",), "residual", "discrete_gaussian", 700.0, 200),
        ),
        plan={"strategy": "independent"},
    )
    return release, payload(release)


def read_window_target(data: bytes) -> None:
    """A valid release, damaged in its card or in its file; checksums made to fit."""
    release, files = _good()
    folder = damaged_release(
        data, files, lambda damaged: card_text("window_tables", DRAW, release.card, damaged)
    )
    raised_by(lambda: _use(read_release(folder)), ReleaseError)


def _use(release: Release) -> None:
    """What was read is a release: it can be described, asked, and written again."""
    assert isinstance(release, WindowTables)
    repr(release)
    describe_window_tables(release)
    for answer in release.answer(release.workload):
        assert np.isfinite(answer.values).all() and answer.standard_error is not None
    card_text("window_tables", DRAW, release.card, payload(release)).encode()
