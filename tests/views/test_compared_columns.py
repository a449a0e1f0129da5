"""Columns of a release beside those of the exact records, before they are put into bins."""

import html
import pathlib
import re

import numpy as np
import pytest
from pages import Parsed, page_of, release_of

from beam_dp.domain.files import parse_domain
from pipelines.flags import read_truth

NUM = 4_000
DOMAIN = parse_domain(
    {
        "attributes": [
            {"name": "income", "type": "numeric", "edges": [0, 100, 1000], "clip": True},
            {
                "name": "age",
                "type": "integer",
                "min": 0,
                "max": 99,
                "nullable": True,
                "null_values": ["-9"],
            },
            {"name": "day", "type": "date", "edges": ["2020-01-01", "2020-07-01", "2021-01-01"]},
            {"name": "town", "type": "categorical", "values": ["Ulm"], "other": True},
        ]
    }
)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """The release has the records' own codes, so nothing but the bins differs."""
    age = np.arange(NUM) % 100
    income = np.where(age < 60, 3000.0 + age, 20.0 + age)
    lines = [
        f"{x},{-9 if a == 7 else a},2020-{1 + a % 3:02}-01,{'Ulm' if a < 40 else 'Bonn'},{a % 9}"
        for x, a in zip(income, age, strict=True)
    ]
    path = tmp_path_factory.mktemp("records") / "people.csv"
    path.write_text("\n".join(["income,age,day,town,shoe", *lines]) + "\n")
    codes = [(income >= 100) * 1, np.where(age == 7, 100, age), age * 0, (age >= 40) * 1]
    release = release_of(DOMAIN, codes)
    return page_of(release, truth=read_truth(release, str(path)))


def rows_of(page: str, caption: str) -> dict[str, list[str]]:
    shown = page[page.index(f"<caption>{caption}") :].partition("</table>")[0]
    rows = [re.findall("<t[hd][^>]*>([^<]*)", row) for row in re.findall("<tr>.*?</tr>", shown)]
    return {row[0]: [html.unescape(each) for each in row[1:]] for row in rows}


def test_columns_of_records_are_compared_before_their_bins(page):
    assert Parsed(page).faults == []
    rows = rows_of(page, "Columns")
    mean = 0.6 * 3029.5 + 0.4 * 99.5
    assert rows["income: records"][0] == f"{mean:,.0f}"
    known = np.delete(np.arange(100), 7).repeat(NUM // 100)  # without nulls
    figures = [known.mean(), known.std(), *np.quantile(known, (0.05, 0.5, 0.95))]
    assert rows["age: records"][:5] == [f"{each:.3g}" for each in figures]
    assert rows["age: their bins"] == rows["age: release"] == rows["age: records"]
    assert rows["day: records"][0] == "2020-01-31" and rows["day: records"][3] == "2020-02-01"
    assert rows["day: records"][1].endswith(" days")
    # Within its bin, an income is uniform: 550 and 50 on average.
    for of in ("their bins", "release"):
        found = float(rows[f"income: {of}"][0])
        assert abs(found - (0.8 * 550 + 0.2 * 50)) < 8 * 306 / NUM**0.5  # drawn from its name
        assert "2020-03-24" < rows[f"day: {of}"][0] < "2020-04-07"  # the middle of the first bin


def test_correlations_are_those_of_the_columns_themselves(page):
    found = rows_of(page, "Correlations")["income, age"]
    assert float(found[0]) < -0.8 and abs(float(found[1]) - float(found[2])) < 0.1


def test_comparison_begins_with_a_verdict_in_words(page):
    head = Parsed(page.partition("<nav")[0] + "</header></body></html>").texts["p"]
    assert any("Not counted: the columns shoe." in each for each in head)
    words = page[page.index('class="verdict">') :].partition("</p>")[0]
    # Most incomes are beyond the edges, most towns in other, and most days moved within a bin.
    assert (
        "As in the records, 1 of 4: age. Right for medians and shares only, 0 of 4: none." in words
    )
    assert "Different, 3 of 4: income, day, town." in words
    assert "furthest off: " in words
    shares = rows_of(page, "Shares of the rows")
    assert shares["income"] == ["60.0%", "0.0%", "0.0%", "0.0%"]
    assert shares["town"] == ["0.0%", "60.0%", "0.0%", "60.0%"]


def test_page_of_no_rows_or_of_extreme_values(tmp_path: pathlib.Path):
    path = tmp_path / "people.csv"
    path.write_text("income,age,day,town\n")
    release = release_of(DOMAIN, [np.zeros(5, np.int64)] * 4)
    assert "The columns themselves" not in page_of(release, truth=read_truth(release, str(path)))
    rows = ["1e308,1,9999-12-31,", "-1e308,1,0001-01-01,", "inf,x,x,", "-inf,,,", "nan,,,"]
    path.write_text("\n".join(["income,age,day,town", *rows]) + "\n")
    truth = read_truth(release, str(path))
    with np.errstate(all="raise"):
        found = rows_of(page_of(release, truth=truth), "Columns")
    assert found["income: records"] == ["0", "none", "none", "none", "none"]
    assert found["age: records"] == ["1", "0", "1", "1", "1"]
