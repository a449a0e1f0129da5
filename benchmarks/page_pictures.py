"""Pictures of recorded runs: this project beside its peers, and its pass beside bare readers."""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks import error_pictures, window_pictures
from benchmarks.page_regions import pass_beside_readers, peers, rows, systems
from benchmarks.pictures import Axis, Mark, Track, tracks
from benchmarks.recorded import Figure
from benchmarks.tables import told


def picture_of_peers() -> str:
    """Returns the picture of errors beside this project's."""
    groups, ratio = {}, "total variation, times"
    for name, found in systems():
        heading = f"{name}, {peers()['tables'][name]['ways']}-way marginals"
        groups[heading] = [
            Track(row.what, told(row.figures[ratio]), [_mark(row.figures[ratio])]) for row in found
        ]
    axis = Axis("total variation distance, times that of beam_dp", (1, 3, 10, 30, 100))
    return tracks("Error of released records beside that of beam_dp", groups, axis, ("",))


def _mark(figure: Figure, kind: int = 0) -> Mark:
    return Mark(figure.value, figure.error or 0.0, kind)


def picture_of_readers() -> str:
    """Returns the picture of the pass beside bare readers, by both times."""
    groups: dict[str, list[Track]] = {}
    for row in pass_beside_readers():
        both = [row.figures[f"by {name} time"] for name in ("CPU", "elapsed")]
        marks = [_mark(figure, kind) for kind, figure in enumerate(both)]
        label = re.sub(r", [\d,]+ rows", "", row.what)
        track = Track(label, " / ".join(map(told, both)), marks)
        groups.setdefault(f"beside {row.beside.replace('`', '')}", []).append(track)
    axis = Axis("time of the pass, times that of the reader", (1, 2, 5))
    kinds = ("CPU time of all threads and processes", "elapsed time, the second figure")
    return tracks("Time of the distributed pass beside bare readers", groups, axis, kinds)


PICTURES: dict[str, Callable[[], str]] = {
    "docs/error_beside_peers.svg": picture_of_peers,
    "docs/time_beside_readers.svg": picture_of_readers,
    "docs/error_by_queries.svg": lambda: error_pictures.picture(rows("error_by_queries")),
    "docs/error_by_windows.svg": window_pictures.picture,
}
