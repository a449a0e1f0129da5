"""Reports of small releases, as parsed by an HTML parser."""

import html.parser
import pathlib
from collections.abc import Sequence

import numpy as np

import beam_dp as dp
from beam_dp.releases.kinds import read_any
from beam_dp.releases.parts import view_of
from beam_dp.releases.synthetic_database.records import distinct_records
from beam_dp.views.page import Beside, report_page

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
KINDS = [path.parent.name for path in sorted(GOLDEN.glob("*/*.json"))]
_VOID = {"meta", "br", "hr", "img", "link", "input"}
# SVG elements that are self-closing.
_SHAPES = {"line", "rect", "path", "circle", "polyline"}


class Parsed(html.parser.HTMLParser):
    """A page: its elements, its texts, and its markup errors."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.faults: list[str] = []
        self.feed(page)
        self.close()
        self.faults += [f"{tag} is left open" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _SHAPES:
            self.faults.append(f"{tag} closes itself")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"{tag} is closed and was not open")

    def handle_data(self, data):
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)


def read(directory: pathlib.Path):
    return read_any(directory)


def page_of(release, **beside) -> str:
    return report_page(release, Beside(view_of(release.KIND).describe(release), **beside))


def random_release(domain: dp.Domain, num_records: int = 50) -> dp.SyntheticDatabase:
    """A release of random records whose hypothesis is uniform over all cells."""
    rng = np.random.default_rng(0)
    return release_of(domain, [rng.integers(0, size, num_records) for size in domain.shape])


def release_of(domain: dp.Domain, records: Sequence[np.ndarray]) -> dp.SyntheticDatabase:
    """A release of these records, given by the codes of each attribute."""
    codes, counts = distinct_records(domain, records)
    return dp.SyntheticDatabase(
        domain=domain,
        workload=dp.marginals(domain, ways=1),
        guarantee=dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1),
        mechanism="gaussian",
        num_records=len(records[0]),
        num_records_is_public=False,
        codes=codes,
        counts=counts,
        potentials=[],
        draw_id="0123456789abcdef" * 2,
    )
