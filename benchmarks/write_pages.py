"""Writes what was recorded into the documents and the pictures: `make generated` runs it.

A document holds `<!-- recorded: NAME -->` and `<!-- end of what was recorded -->`; what stands
between them is one of the regions of ``page_regions.py``, made of the files of ``results/`` alone.
"""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.page_pictures import PICTURES  # noqa: E402
from benchmarks.page_regions import REGIONS, page_of_peers  # noqa: E402

DOCUMENTS = (
    "README.md",
    "docs/accuracy.md",
    "docs/alternatives.md",
    "docs/benchmarks.md",
    "benchmarks/results/*.md",
)
REGION = re.compile(
    r"(<!-- recorded: ([^\n]+) -->\n).*?(<!-- end of what was recorded -->)", re.DOTALL
)
PEERS = ROOT / "benchmarks" / "results" / "peers.md"


def filled(text: str) -> str:
    """Returns a document with its regions made anew."""
    return REGION.sub(lambda found: f"{found[1]}\n{REGIONS[found[2]]()}\n{found[3]}", text)


def documents() -> list[pathlib.Path]:
    """Returns the documents that hold regions, and may."""
    return [path for each in DOCUMENTS for path in sorted(ROOT.glob(each))]


def main() -> None:
    """Writes all, and prints what changed."""
    new = {ROOT / name: make() for name, make in PICTURES.items()}
    new |= {path: filled(path.read_text("utf-8")) for path in documents()}
    new[PEERS] = page_of_peers()
    for path, text in new.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
