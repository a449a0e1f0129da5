"""Pictures of recorded runs: errors and times beside those of peers and of bare readers."""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks import error_pictures, window_pictures
from benchmarks.page_regions import pass_beside_readers, peers, rows, systems
from benchmarks.pictures import Axis, Line, Mark, Track, lines, tracks
from benchmarks.recorded import Figure
from benchmarks.tables import told


def picture_of_peers() -> str:
    """Returns the picture of errors beside this project's."""
    groups, ratio = {}, "total variation, ratio"
    for name, found in systems():
        heading = f"{name}, {peers()['tables'][name]['ways']}-way marginals"
        groups[heading] = [
            Track(row.what, told(row.figures[ratio]), [_mark(row.figures[ratio])]) for row in found
        ]
    axis = Axis("total variation distance, times that of beam_dp", (1, 3, 10, 30, 100))
    return tracks("Error of released records, as multiples of that of beam_dp", groups, axis, ("",))


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
        groups.setdefault(f"compared with {row.beside.replace('`', '')}", []).append(track)
    axis = Axis("time of the pass, times that of the reader", (1, 2, 5))
    kinds = ("CPU time of all threads and processes", "elapsed time, the second figure")
    return tracks("Time of the distributed pass, compared with bare readers", groups, axis, kinds)


# What is drawn by size: of counts the table of eight columns, in any formulation of an engine, as
# ratios, for machines differ.
_BY_SIZE = {
    "All pairs of 8 columns; times that of pyarrow": re.compile(
        r"all pairs of 8 columns, .* cells, (?P<records>.*) records:"
        r" (?P<name>beam_dp, [^:]+|\w+)[^:]*"
    ),
    "Whole releases in one process; seconds": re.compile(
        r"(?P<name>\d columns.*?), [\d,]+ cells, (?P<records>.*) records, 1 process"
    ),
}


def picture_of_sizes() -> str:
    """Returns the picture of the CPU time of counts and of releases against numbers of records."""
    panels, kinds = {}, ("", "dashed")
    for dash, (heading, pattern) in zip(kinds, _BY_SIZE.items(), strict=True):
        found: dict[str, dict[float, float]] = {}
        for row in rows("size"):
            if row.runs and (told := pattern.fullmatch(row.what)):
                number = float(told["records"].replace(",", ""))
                points = found.setdefault(told["name"], {})
                time = row.figures["CPU time, times" if row.beside else "CPU time"].value
                points[number] = min(time, points.get(number, time))
        panels[heading] = [
            Line(name, [(x, y, 0.0) for x, y in sorted(points.items())], colour % 7, dash)
            for colour, (name, points) in enumerate(found.items())
        ]
    title = "CPU time against the number of records"
    held = {heading: drawn for heading, drawn in panels.items() if drawn}
    return lines(title, held, Axis("records"), Axis("CPU time of all processes"))


PICTURES: dict[str, Callable[[], str]] = {
    "docs/error_beside_peers.svg": picture_of_peers,
    "docs/time_beside_readers.svg": picture_of_readers,
    "docs/error_by_queries.svg": lambda: error_pictures.picture(rows("error_by_queries")),
    "docs/error_by_windows.svg": window_pictures.picture,
    **({"docs/time_by_records.svg": picture_of_sizes} if rows("size") else {}),
}
