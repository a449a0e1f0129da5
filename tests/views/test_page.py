"""Pages of releases: well formed, offline, accessible and safe to open; their cells and markup."""

import dataclasses
import functools
import html
import itertools
import math
import re

import numpy as np
import pyarrow as pa
import pytest
from kind_examples import listed_keys
from open_domains import domain_release
from pages import GOLDEN, KINDS, Parsed, page_of, random_release, read, release_of
from release_examples import GUARANTEE
from rich.console import Console
from seeded_releases import seeded_releases  # noqa: F401

import beam_dp as dp
from beam_dp.domain.attributes import PaidRelease
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.earlier_stage import Discovered
from beam_dp.releases.error_bars import FROM_NOISE, Estimate
from beam_dp.releases.parts import view_of
from beam_dp.views.cells import Cell, Truth, cells_of, groups_of
from beam_dp.views.columns import column_state, counted_states
from beam_dp.views.marginals import headline, relation, tiles
from beam_dp.views.markup import MAX_ROWS, table
from beam_dp.views.pictures import bars
from beam_dp.views.synthetic_database import RecordAnswers
from beam_dp.views.terminal import summary_of
from pipelines.program import ReleaseJob
from pipelines.release_synthetic_database import Job

MAX_BYTES = 2_000_000
HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror=alert(1)>\"'\x1b[31m\u202e&"


@functools.cache
def small_release() -> dp.SyntheticDatabase:
    domain = dp.Domain(
        (dp.IntegerAttribute("age", 0, 59), dp.CategoricalAttribute("sex", ("f", "m")))
    )
    table = pa.table({"age": np.arange(600) % 60, "sex": ["f", "m"] * 300})
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    return dp.release(table, domain, dp.marginals(domain, ways=2), guarantee)


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
        assert not {"src", "srcset", "action", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    targets = {f"#{attributes['id']}" for _, attributes in parsed.elements if "id" in attributes}
    links = [(tag, each["href"]) for tag, each in parsed.elements if "href" in each]
    assert links and all(tag == "a" and link in targets for tag, link in links)
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
def test_every_kind_of_release_has_a_valid_page(kind):
    release = read(GOLDEN / kind)
    page = page_of(release)
    parsed = check_page(page)
    assert parsed.texts["h2"][-2:] == ["Guarantee and budget", "Noise and card"]
    parts = ["The guarantee", "The ledger", "How to cite"]
    assert [title for title in parsed.texts["h3"] if title in parts] == parts
    assert f"{release.guarantee.epsilon:g}" in parsed.texts["dd"]
    assert "PRIVATE" not in page
    assert page == page_of(read(GOLDEN / kind))


def hostile_answers() -> AnswersRelease:
    row = {"id": None, "query": HOSTILE, "value": 3.0, "standard_error": None, "bound": 1.0}
    rows = [{**row, "route": "noisy", "error": None}, {**row, "route": None, "error": HOSTILE}]
    card = {"mechanism": "private_mw", "plan": {"scale": 2.0, "ledger_release": "visits/7"}}
    guarantee = dp.Guarantee(1.0, 0.0, "replace_one", "record", 1)
    return AnswersRelease(draw_id="0" * 32, guarantee=guarantee, rows=rows, stated=card)


def hostile_domain() -> dp.Domain:
    names = (HOSTILE, f"b{HOSTILE}")
    return dp.Domain(tuple(dp.CategoricalAttribute(name, (HOSTILE, "x")) for name in names))


def hostile_keys() -> dp.SparseRelease:
    release = listed_keys()
    release.histogram.keys[-1] = HOSTILE
    return release


WITH_HOSTILE_TEXTS = {
    "answers": (hostile_answers, "Queries answered: 1; refused: 1"),
    "database": (lambda: random_release(hostile_domain()), "Pictures"),
    "keys": (hostile_keys, "and 19 more: release.listed_keys() in Python"),
    "domain": (lambda: domain_release((HOSTILE, "Oslo")), "2 values of city"),
}


@pytest.mark.parametrize("kind", WITH_HOSTILE_TEXTS)
def test_names_queries_keys_and_labels_are_escaped(kind):
    make, words = WITH_HOSTILE_TEXTS[kind]
    page, console = page_of(release := make()), Console(width=80)
    check_page(page)
    with console.capture() as captured:
        console.print(view_of(release.KIND).describe(release))
    assert words in page + captured.get()
    for shown in (page, captured.get()):
        assert "\x1b" not in shown and "\u202e" not in shown
    assert "<script" not in page and "&lt;script&gt;" in page


def states_of(page: str) -> dict[str, list[str]]:
    """The table of columns: what follows the name in each row."""
    shown = page[page.index("<caption>What each column is good for") :].partition("</table>")[0]
    rows = [re.sub("<[^>]*>", "\t", row).split("\t") for row in shown.split("<tr>")[2:]]
    cells = [[html.unescape(cell) for cell in filter(None, row)] for row in rows]
    return {name: others for name, *others in cells}


def test_page_begins_with_what_each_column_is_good_for(page):
    parsed = check_page(page)
    assert parsed.texts["h3"][:2] == ["age", "sex"]
    assert parsed.texts["h2"][:3] == ["Columns", "Pictures", "Pairs"]
    pictures = [each for tag, each in parsed.elements if each.get("class") == "picture"]
    assert len(pictures) >= 2 and all(each["role"] == "img" for each in pictures)
    assert re.search("Relations: the copy shows [01] of 1 pairs of columns; believe no other", page)
    whiskers = [each for _, each in parsed.elements if each.get("class") == "whisker"]
    assert len(whiskers) >= 30
    assert re.search(r"Error bars ± [0-9.]+ records \(from the noise alone\)\.", page)
    release = small_release()
    (answer,) = release.answer(dp.Workload(release.domain, (("sex",),)))
    # 300 records of each sex have an error bar of about 50.
    states = states_of(page)
    assert states["sex"][:4] == ["● good", "shares", "text, 2 values declared", "2 of 2"]
    assert any("whole number, 60 values declared: 0 to 59" in each for each in states["age"])
    assert re.match("[12] of 2 columns are good", parsed.texts["h1"][0])
    assert answer.values.min() > 100


def estimated(*pairs: tuple[float, float | None]) -> list[Cell]:
    return [Cell(("a",), Estimate(value, 1.0, margin, FROM_NOISE)) for value, margin in pairs]


def test_state_of_a_column_follows_from_its_noise_ends_and_other():
    bins = {"edges": (0.0, 10.0, 20.0, 30.0), "edges_from": PaidRelease(None, "0f" * 16)}
    age, code = (dp.NumericAttribute("age", whole=True, clip=True, **bins), None)
    code = dataclasses.replace(age, edges=(0.0, 1.0, 1.5))
    town = dp.CategoricalAttribute("town", ("x", "y"), other=True)
    good = estimated((500, 20), (300, 20), (200, 20))
    noisy = estimated((500, 20), (300, 20), (200, 120))
    hidden = estimated((400, 20), (300, 200), (300, 200))
    found = "whole number, 3 unequal bins found: 0 to 30"
    for attribute, cells, ends, word, uses, notes in (
        (age, good, (0.02, False), "good", "averages, spread, medians, shares", ""),
        (age, good, (0.03, False), "limited", "medians, shares; not averages",
         "at most 3 % moved into each end"),
        (age, good, (0.01, True), "limited", "medians, shares; not averages",
         "at most 1 % far values moved into each end"),
        (age, good, (0.26, False), "not usable", "nothing", "at most 26 % moved into each end"),
        (age, noisy, (0.02, False), "limited", "medians, shares", "20 % in noisy levels"),
        (age, hidden, (0.02, False), "not usable", "nothing", "60 % in noisy levels"),
        (age, estimated(*[(9, None)] * 3), (0.0, False), "of unknown accuracy",
         "its errors are not stated", ""),
        (code, good[:2], (0.09, False), "good", "averages, spread, shares",
         "at most 18 % other numbers, if any"),
        (town, good, (0.0, False), "limited", "shares", "20 % in other"),
        (town, estimated((40, 2), (30, 2), (80, 2)), (0.0, False), "not usable", "nothing",
         "53.3 % in other"),
        (town, estimated((500, 20), (300, 20), (15, 20)), (0.0, False), "good", "shares", ""),
    ):  # fmt: skip
        state = column_state(attribute, cells, *ends)
        assert (state.word, state.uses, state.notes) == (word, uses, notes), state
        assert attribute is not age or state.levels == found
    states = [column_state(age, cells, 0.0, False) for cells in (good, noisy, good, hidden)]
    numbers, named = counted_states(states)
    assert numbers == "2 of 4 columns are good, 1 limited, 1 not usable"
    assert named == "Limited: age. Not usable: age."


def test_pairs_stand_out_if_noise_does_not_explain_them():
    rng = np.random.default_rng(3)
    noise = [
        estimated(*[(100 + 10 * each, 19.6) for each in rng.normal(size=20)]) for _ in range(99)
    ]
    assert max(relation(cells, (4, 5))[1] for cells in noise) < 4
    strength, excess = relation(estimated((300, 50), (100, 50), (100, 50), (300, 50)), (2, 2))
    assert strength == 0.5 and excess > 4
    assert relation(estimated((300, 500), (100, 500), (100, 500), (300, 500)), (2, 2))[1] < 1
    assert relation(estimated(*[(5, None)] * 4), (2, 2)) == (0.0, math.inf)


@pytest.mark.part
@pytest.mark.filterwarnings("ignore:epsilon .* protects little")
def test_headline_counts_the_cells_of_a_release():
    """With next to no noise, all counts are good that have records."""
    domain = dp.Domain(
        (dp.IntegerAttribute("age", 0, 59), dp.CategoricalAttribute("sex", ("f", "m")))
    )
    table = pa.table({"age": np.arange(600) % 60, "sex": ["f", "m"] * 300})
    guarantee = dp.Guarantee(1e4, 1e-9, "add_or_remove_one", "record", 1)
    page = page_of(dp.release(table, domain, dp.marginals(domain, ways=2), guarantee))
    texts = Parsed(page).texts
    assert texts["h1"] == ["2 of 2 columns are good"]
    assert "Nearly all counts above about 2 records are good." in texts["p"]
    # As age tells the sex, the pair is shown.
    assert "Relations: the copy shows 1 of 1 pairs" in page and "age and sex" in texts["h3"]


@pytest.mark.filterwarnings("ignore:epsilon .* protects little")
def test_columns_that_are_not_usable_have_no_relations_and_null_is_not_the_last_bar():
    """The town tells the street, as does the age, but most towns are in other."""
    town = dp.CategoricalAttribute("town", ("x",), other=True)
    age = dp.NumericAttribute("age", (*range(0, 16, 2), 18, *range(19, 26)), nullable=True)
    domain = dp.Domain((town, age, dp.CategoricalAttribute("street", ("a", "b"))))
    ages = [None, *range(25)] * 40
    columns = {"town": ["x" if (each or 0) > 15 else "y" for each in ages], "age": ages}
    columns["street"] = ["a" if (each or 0) > 15 else "b" for each in ages]
    guarantee = dp.Guarantee(1e4, 1e-9, "add_or_remove_one", "record", 1)
    release = dp.release(pa.table(columns), domain, dp.marginals(domain, ways=2), guarantee)
    check_page(page := page_of(release))
    states = states_of(page)
    assert states["town"][0] == "○ not usable" and states["town"][-1] == "compare with none"
    assert (states["age"][-1], states["street"][-1]) == ("street", "age")
    assert "Relations: the copy shows 1 of 3 pairs of columns" in page
    assert "Drawn, strongest first: age and street. Of other pairs" in page
    assert "number, 15 unequal bins declared: 0 to 25. " in page
    assert "Not drawn: null: 40.0 records" in page
    assert "Counts of the copy&#x27;s rows differ from these by up to " in page
    assert "predicted by the model" not in page


def test_headline_counts_good_cells():
    cells = estimated
    known = cells(*[(100.0, 41.2)] * 7, (82.4, 41.2), (82.3, 41.2), (0.0, 41.2))
    assert headline(known) == "Nearly all counts above about 82 records are good: 8 of 10 cells"
    assert headline(known[:8]) == "Nearly all counts above about 82 records are good: all 8 cells"
    assert headline(known[8:]) == "Too noisy to use cell by cell: 0 of 2 cells"
    known += cells(*[(1e6, None)] * 4)
    assert headline(known) == "Nearly all counts above about 82 records are good: 8 of 14 cells"
    assert headline(known[10:]) == "No error bars: the accuracy of the counts is unknown"
    # One long error bar of twenty or more does not raise the threshold.
    assert "about 20 records are good: 30 of 31" in headline(
        cells(*[(50.0, 10.0)] * 30, (50.0, 400.0))
    )

    def cell(value: float, margin: float | None, truth: int | None = None) -> Cell:
        return Cell(("a",), Estimate(value, 1.0, margin, FROM_NOISE), truth)

    assert cell(10, 5.0).is_good and cell(0, 0.0).is_good
    assert not cell(-10, 5.0).is_good and not cell(10, None).is_good
    assert cell(10, 5.1).is_noisy and cell(-10, 5.1).is_noisy and cell(0, 0.1).is_noisy
    assert not cell(10, 5.0).is_noisy and not cell(0, None).is_noisy
    assert cell(10, 5.0, 16).is_missed
    assert not cell(10, 5.0, 15).is_missed and not cell(10, 5.0).is_missed


def test_maps_strike_counts_that_are_too_noisy():
    values = [30.0, 10.0, 20.0, 40.0]
    cells = [
        Cell(("a", "b"), Estimate(value, 1.0, margin, FROM_NOISE), 25)
        for value, margin in zip(values, (9.0, 11.0, None, 10.0), strict=True)
    ]
    counts = tiles(cells, is_true=False)
    assert [each.value for each in counts] == values
    assert [each.is_struck for each in counts] == [False, True, False, False]
    exact = tiles(cells, is_true=True)
    assert [each.value for each in exact] == [25.0] * 4
    assert not any(each.is_struck for each in exact)


def test_warns_of_columns_that_carry_no_information(capfd, monkeypatch):
    origin = {"draw_id": "0f" * 16}
    bins = {"type": "numeric", "whole": True, "clip": True}
    columns = [
        {"name": "year", **bins, "edges": [2000, 22000], "edges_from": origin},
        {"name": "age", **bins, "edges": [0, 50, 100]},
        {"name": "firm", "type": "categorical", "values": ["x"], "other": True},
        {"name": "town", "type": "categorical", "values": ["x"], "other": True},
    ]
    domain = dp.parse_domain({"attributes": columns})
    codes = [np.arange(100) >= first for first in (100, 50, 49, 50)]
    noise = {"distribution": "discrete_gaussian", "scale": 5.0, "grid": 1, "levels": [4]}
    found = Discovered(
        whole=GUARANTEE, main=GUARANTEE, noise=[{"measured": "age", **noise}], draw_id="0f" * 16
    )
    release = dataclasses.replace(release_of(domain, codes), discovered=found)
    warnings = [
        "Only one bin, so the values carry no information: year",
        "Far values may be cut (declare edges or raise --domain_share): age",
        "More than half of the rows are in one level: firm 51% in other",
    ]
    monkeypatch.setattr(ReleaseJob, "tell", lambda *_: None)
    Job.tell(object.__new__(Job), release)
    assert capfd.readouterr().err.splitlines() == [f"warning: {each}" for each in warnings]
    states = states_of(page := page_of(release))
    check_page(page)
    assert "only one bin: declare its edges" in states["year"][2]
    assert '<span class="flag">--where</span>' in page
    told = summary_of(release)
    assert all(each in told for each in warnings)
    assert "year, age: moved into the first or last level; their share is not known" in told


def test_says_which_level_missing_values_of_found_columns_have():
    origin = {"draw_id": "0f" * 16}
    bins = {"type": "numeric", "clip": True, "edges": [0, 50, 100, 150], "edges_from": origin}
    columns = [
        {"name": "age", **bins},
        {"name": "pay", **bins, "nullable": True},
        {"name": "town", "type": "categorical", "values": ["x"], "other": True,
         "values_from": origin},
        {"name": "road", "type": "categorical", "values": ["x"], "values_from": origin},
        {"name": "firm", "type": "categorical", "values": ["x"], "other": True},
    ]  # fmt: skip
    release = release_of(dp.parse_domain({"attributes": columns}), [np.zeros(100, np.int64)] * 5)
    missing = "age in [50, 100), pay in null, town in other, road left out"
    assert missing in " ".join(summary_of(release).split())
    assert missing in page_of(release)


def test_compares_answers_and_released_records_with_the_truth():
    """The answers are those of a uniform model, and all released records are in one cell."""
    domain = dp.Domain((dp.CategoricalAttribute("a", ("f", "m")), dp.IntegerAttribute("b", 0, 4)))
    codes = [np.zeros(1, np.int64)] * 2
    release = dataclasses.replace(
        random_release(domain), codes=codes, counts=np.array([50]), num_represented=100
    )
    page = page_of(release, truth=Truth(domain, [np.zeros(100, np.int64)] * 2, 0))
    check_page(page)
    assert (
        "In the answers, the mean share of records in the wrong cell is 65 % for single attributes,"
        " 90 % for pairs. In the released records, it is 0 % for single attributes, 0 % for pairs."
    ) in page


@pytest.mark.filterwarnings("ignore:epsilon .* protects little")
def test_lists_the_largest_cells_of_larger_tables_with_the_truth():
    """With next to no noise: 40, 20 and 10 records are in three of eight cells."""
    domain = dp.Domain(tuple(dp.CategoricalAttribute(name, ("f", "m")) for name in "abc"))
    columns = {"a": ["f"] * 60 + ["m"] * 10, "b": ["m"] * 40 + ["f"] * 30, "c": ["f"] * 70}
    guarantee = dp.Guarantee(1e4, 1e-9, "add_or_remove_one", "record", 1)
    workload = dp.marginals(domain, ways=3)
    release = dp.release(pa.table(columns), domain, workload, guarantee)
    # The owner's records differ from the released ones: five more are in the largest cell.
    codes = [np.array([0] * 65 + [1] * 10), np.array([1] * 45 + [0] * 30), np.zeros(75, np.int64)]
    page = page_of(release, truth=Truth(domain, codes, 0))
    parsed = check_page(page)
    assert parsed.texts["h2"][4] == "Three or more columns"
    (summary,) = [each for each in parsed.texts["summary"] if each.startswith("a, b and c: ")]
    assert summary == "a, b and c: Nearly all counts above about 2 records are good: 3 of 8 cells"
    folded = page[page.index(summary) :]
    rows = [
        re.findall("<t[hd][^>]*>([^<]*)", row)
        for row in re.findall("<tr>.*?</tr>", folded[: folded.index("</table>")])
    ]
    assert rows[0] == ["level", "records", "± (95 %)", "error bar", "truth", "difference"]
    found = [(row[0], float(row[1]), row[4], float(row[5])) for row in rows[1:4]]
    assert [each[0] for each in found] == ["f, m, f", "f, f, f", "m, f, f"]
    assert np.allclose([each[1] for each in found], [40, 20, 10], atol=0.1)
    assert [each[2] for each in found] == ["45", "20", "10"]
    assert np.allclose([each[3] for each in found], [-5, 0, 0], atol=0.1)
    assert re.search(r"for pairs, [0-9.]+ % for larger tables\.", page)


def test_states_how_many_larger_tables_are_shown():
    names = [f"c{place}" for place in range(6)]
    domain = dp.Domain(tuple(dp.IntegerAttribute(name, 0, 14) for name in names))
    release = dataclasses.replace(random_release(domain), workload=dp.marginals(domain, ways=3))
    page = page_of(release)
    parsed = check_page(page)
    assert "12 of 20 tables are shown" in page
    summaries = [each for each in parsed.texts["summary"] if each.startswith("c")]
    assert len(summaries) == 12 and summaries[0].startswith("c0, c1 and c2: ")
    assert page.count("3,375 cells, grouped. ") == 12
    assert "Three or more columns" not in page_of(random_release(domain))


def test_horizons_have_pictures_over_time():
    parsed = check_page(page_of(read(GOLDEN / "horizon")))
    assert parsed.texts["h2"][:2] == ["Over time", "Columns"]
    assert "These pictures" in parsed.texts["dt"]
    labels = [each.get("aria-label") or "" for tag, each in parsed.elements if tag == "svg"]
    assert any(each.startswith("Records by window.") for each in labels)
    assert any(" over time. Largest: " in each for each in labels)
    known, one = read(GOLDEN / "horizon"), read(GOLDEN / "synthetic_database")
    parsed = check_page(page_of(dataclasses.replace(known, windows={0: one, 1: one})))
    most = known.horizon.num_windows
    assert parsed.texts["h1"] == [f"2 of {most} windows are released"]
    assert parsed.texts["h2"][:2] == ["Over time", "Guarantee and budget"]
    parsed = check_page(page_of(dataclasses.replace(known, windows={})))
    assert parsed.texts["h1"] == ["No window is released yet"]


def test_intervals_and_ledger_entries_are_shown():
    release = read(GOLDEN / "intervals")
    parsed = check_page(page_of(release))
    assert parsed.texts["h2"][:3] == ["Columns", "Pictures", "Up to each value"]
    assert parsed.texts["h1"][0].startswith("Nearly all counts above about ")
    (total,) = release.answer([0], [release.num_leaves - 1]).values
    assert f"{total:,.1f}" in parsed.texts["td"]
    release = small_release()
    page = page_of(dataclasses.replace(release, plan={"ledger_release": "visits/3"}))
    assert "entry visits/3 of a ledger paid" in page
    assert "ledger entry visits/3" in Parsed(page).texts["dd"]


def test_as_many_labels_are_shown_as_fit():
    groups = [f"{first} to {first + 4}" for first in range(0, 100, 5)]
    cells = [Cell((label,), Estimate(10.0, 1.0, 2.0, FROM_NOISE)) for label in groups]
    shown = [each for each in Parsed(bars("Records by age", cells)).texts["text"] if " to " in each]
    assert shown == ["0 to 4", "95 to 99", "20 to 24", "40 to 44", "60 to 64"]
    days = [f"[2020-{month:02}-01, 2020-{month + 1:02}-01)" for month in range(1, 9)] * 2
    cells = [Cell((label,), Estimate(10.0, 1.0, 2.0, FROM_NOISE)) for label in days]
    shown = Parsed(bars("Records by day", cells)).texts["text"]
    assert "2020-01-01" in shown and "to 2020-09-01" in shown


@pytest.mark.part
def test_page_of_many_attributes_states_how_many_are_not_drawn():
    domain = dp.Domain(tuple(dp.IntegerAttribute(f"column {place}", 0, 99) for place in range(110)))
    page = page_of(random_release(domain, 1))
    check_page(page)
    assert "more columns are not shown" in page


def test_long_tables_are_cut():
    parsed = Parsed(table("t", ("a", "b"), (("x", "y") for _ in range(MAX_ROWS + 7)), (1,)))
    assert parsed.faults == []
    assert "and 7 more" in parsed.texts["td"]
    assert sum(tag == "tr" for tag, _ in parsed.elements) == MAX_ROWS + 2


DOMAIN = dp.Domain(
    (
        dp.IntegerAttribute("number", 0, 99, other=True),
        dp.NumericAttribute("age", tuple(range(0, 101, 2)), nullable=True),
        dp.CategoricalAttribute("place", tuple(f"p{place}" for place in range(40))),
    )
)
ANSWERS = RecordAnswers(random_release(DOMAIN))


def test_groups_of_levels_are_labelled_and_added():
    for axis, size in enumerate(DOMAIN.shape):
        for most in (5, 12, 48):
            groups = groups_of(ANSWERS, axis, most)
            codes = np.concatenate([each.codes for each in groups])
            assert sorted(codes.tolist()) == list(range(size)) and len(groups) <= max(most, 1)
    assert [each.label for each in groups_of(ANSWERS, 0, 3)] == ["0 to 49", "50 to 99", "other"]
    assert [each.label for each in groups_of(ANSWERS, 1, 3)] == ["[0, 50)", "[50, 100]", "null"]
    assert groups_of(ANSWERS, 2, 12)[-1].label == "29 others together"
    rng = np.random.default_rng(0)
    truth = Truth(DOMAIN, [rng.integers(0, size, 500) for size in DOMAIN.shape], 0)
    groups = (groups_of(ANSWERS, 0, 4), groups_of(ANSWERS, 2, 5))
    (cells,) = cells_of(ANSWERS, [((0, 2), groups)], truth)
    (answer,) = ANSWERS.release.answer(dp.Workload(DOMAIN, (("number", "place"),)))
    for place, cell in enumerate(cells):
        first, second = divmod(place, 5)
        codes = groups[0][first].codes, groups[1][second].codes
        assert cell.labels == (groups[0][first].label, groups[1][second].label)
        assert np.isclose(cell.answer.value, answer.values[np.ix_(*codes)].sum())
        inside = np.isin(truth.codes[0], codes[0]) & np.isin(truth.codes[2], codes[1])
        assert cell.truth == inside.sum()
    assert sum(cell.truth or 0 for cell in cells) == 500
