"""The page of a release of any kind: well formed, offline, accessible, and safe to open."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pyarrow as pa
import pytest
from pages import GOLDEN, KINDS, Parsed, page_of, random_release, read

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.in_memory import release as release_table
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

MAX_BYTES = 2_000_000
HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror=alert(1)>\"'\u202e&"


def small_release(**changed) -> SyntheticDatabase:
    domain = Domain((IntegerAttribute("age", 0, 59), CategoricalAttribute("sex", ("f", "m"))))
    table = pa.table({"age": np.arange(600) % 60, "sex": ["f", "m"] * 300})
    guarantee = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    return release_table(table, domain, marginals(domain, ways=2), guarantee, **changed)


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(small_release())


def check_page(page: str) -> Parsed:
    parsed = Parsed(page)
    assert parsed.faults == []
    assert len(page.encode()) < MAX_BYTES
    tags = [tag for tag, _ in parsed.elements]
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & set(tags)
    for _, attributes in parsed.elements:
        assert not {"src", "href", "srcset", "action", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"url\(|@import|http:|https:", page)
    assert parsed.elements[0] == ("html", {"lang": "en"})
    assert tags.count("title") >= 1 and tags.count("h1") == tags.count("main") == 1
    headings = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(headings))
    for tag, attributes in parsed.elements:
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
    return parsed


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_release_has_a_page(kind: str) -> None:
    release = read(GOLDEN / kind)
    page = page_of(release)
    parsed = check_page(page)
    assert {"The promise", "The ledger", "How to cite", "All that the card says"} <= {
        *parsed.texts["h2"]
    }
    assert f"{release.guarantee.epsilon:g}" in parsed.texts["dd"]
    assert "PRIVATE" not in page
    assert page == page_of(read(GOLDEN / kind))


def test_answers_have_a_page_and_their_queries_are_escaped() -> None:
    row = {"id": None, "query": HOSTILE, "value": 3.0, "standard_error": None, "bound": 1.0}
    rows = [{**row, "route": "noisy", "error": None}, {**row, "route": None, "error": HOSTILE}]
    card = {"mechanism": "private_mw", "plan": {"scale": 2.0, "ledger_release": "visits/7"}}
    guarantee = Guarantee(1.0, 0.0, "replace_one", "record", 1)
    page = page_of(AnswersRelease(draw_id="0" * 32, guarantee=guarantee, rows=rows, stated=card))
    check_page(page)
    assert "Queries answered: 1; refused: 1" in page and "visits/7" in page


def test_a_synthetic_database_shows_each_attribute_and_pair_with_error_bars(page: str) -> None:
    parsed = check_page(page)
    assert parsed.texts["h3"] == ["age", "sex", "age and sex"]
    pictures = [each for tag, each in parsed.elements if each.get("class") == "picture"]
    assert len(pictures) == 3 and all(each["role"] == "img" for each in pictures)
    whiskers = [each for _, each in parsed.elements if each.get("class") == "whisker"]
    assert len(whiskers) >= 30
    assert "Error bars: exact." in page


def test_cells_whose_bar_is_longer_than_half_their_value_are_listed(page: str) -> None:
    release = small_release()
    (answer,) = release.answer(Workload(release.domain, (("sex",),)))
    assert "cells that are too noisy" in page  # the 120 cells of both, of 5 records each
    # 300 records of each sex have a bar of some 50.
    assert not re.search(r'<th scope="row">sex [fm]</th>', page)
    assert answer.values.min() > 100


def test_names_and_labels_are_escaped_wherever_they_stand() -> None:
    names = (HOSTILE, f"b{HOSTILE}")
    domain = Domain(tuple(CategoricalAttribute(name, (HOSTILE, "x")) for name in names))
    table = pa.table({name: [HOSTILE, "x"] * 20 for name in names})
    guarantee = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    release = release_table(table, domain, marginals(domain, ways=2), guarantee)
    page = page_of(release)
    parsed = check_page(page)
    assert "<script" not in page and "\u202e" not in page
    assert any("<script>alert(1)</script>" in each for each in parsed.texts["h3"])


def test_a_page_of_many_attributes_stays_small() -> None:
    domain = Domain(tuple(IntegerAttribute(f"column {place}", 0, 99) for place in range(110)))
    page = page_of(random_release(domain, 1))
    check_page(page)
    assert "more attributes are not drawn" in page


def test_a_card_that_names_its_entry_shows_it() -> None:
    release = small_release()
    object.__setattr__(release, "plan", {"ledger_release": "visits/3"})
    assert "entry visits/3 of a ledger paid" in page_of(release)
