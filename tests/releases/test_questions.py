"""Questions of analysts, compared with the truth, and their command line."""

import ast
import math
import re
import shlex
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from measured_database import DOMAIN, counts, database
from noise_sources import Seeded
from numpy.typing import NDArray

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.files import domain_from_json
from beam_dp.in_memory import release
from beam_dp.releases.error_bars import FROM_NOISE, Estimate, weakest_kind
from beam_dp.releases.synthetic_database.questions import AnswerTable, _reached
from beam_dp.secret.summaries.histogram import Histogram

TABLE = counts().reshape(DOMAIN.shape)


def only(table: AnswerTable) -> dict[str, object]:
    (row,) = table.rows()
    return row


def assert_near(row: dict[str, object], name: str, exact: float) -> None:
    """Five standard errors: fails about once in millions of runs."""
    assert row["standard_error"] is not None
    assert abs(float(row[name]) - exact) <= 5 * float(row["standard_error"]), (row, exact)


def test_groups_are_counted_with_the_released_values():
    found = list(database().query("sex == 'M' and age != null").group_by("town").count().rows())
    assert [row["town"] for row in found] == ["a", "b", "c", "other"]
    for code, row in enumerate(found):
        assert_near(row, "count", TABLE[:3, 1, :, code].sum())
    assert {row["error"] for row in found} == {"model_based"}
    assert {row["error"] for row in database().query().group_by("town").count().rows()} == {
        FROM_NOISE
    }
    table = database().query("town in ('a', 'c')").group_by("town", "sex").count()
    assert table.columns["town"] == ["a", "a", "c", "c"]
    assert table.columns["sex"] == ["F", "M", "F", "M"]
    asked = database().query()
    expected = asked.group_by("town", "sex").count().columns
    assert asked.group_by(["town", "sex"]).count().columns == expected
    assert asked.group_by(("town",), "sex").count().columns == expected
    table = database().query().group_by("town").count()
    arrow = table.to_arrow()
    assert arrow.column_names[:2] == ["town", "count"] and arrow.num_rows == len(table) == 4
    assert table.to_pandas()["count"].tolist() == table.columns["count"]
    assert hasattr(table, "__arrow_c_stream__")


def test_group_columns_contain_released_values_in_their_types():
    table = pa.table({"rich": [True, None, False], "rooms": [3, 5, 5], "smokes": ["y", "n", "n"]})
    domain = domain_from_json(
        {
            "attributes": [
                {"name": "rich", "type": "boolean", "nullable": True},
                {"name": "rooms", "type": "integer", "min": 3, "max": 5},
                {"name": "smokes", "type": "boolean", "true_values": ["y"], "false_values": ["n"]},
            ]
        }
    )
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    found = release(table, domain, dp.marginals(domain, ways=1), guarantee).query()
    assert found.group_by("rich").count().columns["rich"] == [False, True, None]
    assert found.group_by("rooms").count().to_arrow().schema.field("rooms").type == pa.int64()
    assert found.group_by("smokes").count().columns["smokes"] == ["n", "y"]
    assert len(list(found.where("rich and smokes").count().rows())) == 1
    first, *rows = repr(found.group_by("rich").count()).splitlines()
    assert first.startswith("rich ") and [row.split()[0] for row in rows] == [
        *("false", "true", "null")
    ]


def test_sums_means_and_shares_match_the_records():
    question = database().query("sex == 'F'")
    held = TABLE[:3, 0].sum(axis=(1, 2))
    middles, halves = np.array([10.0, 30.0, 70.0]), np.array([10.0, 10.0, 30.0])
    row = only(question.sum("age"))
    assert_near(row, "sum_age", held @ middles)
    assert float(row["within_bins"]) == pytest.approx(held @ halves, rel=0.02)
    row = only(question.mean("age"))
    assert_near(row, "mean_age", held @ middles / held.sum())
    assert float(row["within_bins"]) == pytest.approx(held @ halves / held.sum(), rel=0.02)
    for code, row in enumerate(database().query().group_by("sex").share("age < 40").rows()):
        assert_near(row, "share", TABLE[:2, code].sum() / TABLE[:, code].sum())


def test_whole_numbers_use_the_middle_integer_of_their_bin():
    domain = dp.Domain((dp.NumericAttribute("age", (0, 10, 20), whole=True),))
    promise = dp.Guarantee(20.0, 0, "add_or_remove_one", "record", 1)
    ages = pa.table({"age": [*range(10), *range(10, 21)] * 50})
    release = dp.release(ages, domain, dp.marginals(domain, ways=1), promise, bin_sums=False)
    for condition, mean, within in (("age < 10", 4.5, 4.5), ("age >= 10", 15.0, 5.0)):
        row = only(release.query(condition).mean("age"))
        assert (row["mean_age"], row["within_bins"]) == pytest.approx((mean, within))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_quantiles_match_the_records(share):
    below = np.cumsum(TABLE[:3].sum(axis=(1, 2, 3))) / TABLE[:3].sum()
    exact = float(np.interp(share, [0, *below], [0, 20, 40, 100]))
    row = only(database().query().quantile("age", share))
    assert abs(float(row["quantile_age"]) - exact) < 2
    # The bar is the bin: nothing is known about the positions of values in it.
    place = int(np.searchsorted(below, share))
    assert (row["low"], row["high"]) == ((0, 20, 40)[place], (20, 40, 100)[place])


def released(values: list[float], **fields: object) -> dp.SyntheticDatabase:
    """A release of a column of numbers with hardly any noise."""
    domain = domain_from_json({"attributes": [{"name": "age", "type": "numeric", **fields}]})
    promise = dp.Guarantee(20.0, 0, "add_or_remove_one", "record", 1)
    return release(pa.table({"age": values}), domain, dp.marginals(domain, ways=1), promise)


def test_quantiles_and_sums_of_nothing_or_of_one_value_are_plain():
    row = only(released([2009.0] * 200, edges=[2000, 22000]).query().quantile("age", 0.5))
    assert (row["low"], row["high"], row["error"]) == (2000, 22000, "from noise and bins")
    nothing = Estimate(math.nan, reason="no records")
    ends = _reached((np.arange(3), np.arange(3)), [nothing] * 3, 0.5, is_clipped=False)
    assert all(math.isnan(each) for each in ends)
    exact, fitted = Estimate(0.2, 0.1, 0.2, FROM_NOISE), Estimate(0.7, 0.1, 0.2, "model_based")
    assert weakest_kind([exact, fitted]) == "model_based" and weakest_kind([exact]) == FROM_NOISE
    assert weakest_kind([fitted, nothing]) is None
    ages = dp.NumericAttribute("age", (0, 1, 2, 2.5), whole=True, nullable=True)
    domain = dp.Domain((ages, dp.CategoricalAttribute("sex", ("f", "m"))))
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    plan = dp.Gaussian().plan(domain, dp.marginals(domain, ways=2), guarantee, "noisy")
    cells = np.full(domain.num_cells, 500)
    summary = Histogram(domain, cells).marginals(plan.summary_tables)
    release = dp.Gaussian().release(plan, summary, Seeded(1))
    (row,) = release.query("age == null").sum("age").rows()
    assert row["sum_age"] == 0 and row["within_bins"] == 0
    (row,) = release.query("age == null").mean("age").rows()
    assert row["margin"] is None
    bars = [*release.query().group_by("sex").mean("age").rows()]
    assert [row["within_bins"] for row in bars] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("fields", "of", "ends"),
    [
        ({}, None, (0, 30)),
        ({"other": True}, "values within [0, 30]", (0, 30)),
        ({"clip": True}, "values clipped to [0, 30]", (-math.inf, math.inf)),
    ],
)
def test_says_which_values_count_and_where_a_bar_is_impossible(fields, of, ends, tmp_path, capsys):
    """With ``clip``, half of the values is 500, which counts as 30."""
    values = [5.0] * 200 + [15.0] * 400 + [25.0] * 200 + [500.0] * 800 * bool(fields.get("clip"))
    found = released(values, edges=[0, 10, 20, 30], **fields)
    asked = found.query()
    for table in (asked.mean("age"), asked.sum("age")):
        assert only(table).get("of") == of
        assert only(table)["margin"] >= only(table)["within_bins"] > 0
    low, high = (only(asked.quantile("age", share)) for share in (0.02, 0.98))
    assert (low["low"], high["high"]) == ends and low["high"] == 10 and high["low"] == 20
    assert ("moved inside" in low["reason"]) == math.isinf(ends[0])
    middle = only(asked.quantile("age", 0.3))
    assert (middle["low"], middle["high"], middle["reason"]) == (10, 20, "")
    dp.write_release(found, tmp_path / "out")
    assert main(["answer", str(tmp_path / "out"), "--mean", "age"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"the truth{f' of {of}' if of else ''} is within" in printed
    assert ("no bar can tell" in printed) == bool(of)
    assert main(["answer", str(tmp_path / "out"), "--quantile", "0.02", "--of", "age"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert ("an end is unknown" in printed) == math.isinf(ends[0])


def test_renames_group_columns_that_clash_with_answer_columns(tmp_path, capsys):
    """An attribute may have the name of a column of the answers."""
    names = ["margin", "low", "count", "error"]
    domain = dp.Domain(tuple(dp.CategoricalAttribute(name, ("a", "b")) for name in names))
    table = pa.table({name: ["a", "b"] * 500 for name in names})
    promise = dp.Guarantee(10.0, 1e-9, "add_or_remove_one", "record", 1)
    release = dp.release(table, domain, dp.marginals(domain, ways=2), promise)
    for name in names:
        rows = [*release.query().group_by(name).count().rows()]
        assert [row[f"{name}_"] for row in rows] == ["a", "b"]
        assert all(abs(row["count"] - 500) < 50 and row["margin"] < 50 for row in rows)
        assert [row["error"] for row in rows] == [FROM_NOISE, FROM_NOISE]
    dp.write_release(release, tmp_path / "out")
    assert main(["answer", str(tmp_path / "out"), "--group_by", "low"]) == 0
    assert "± (95 %)" in capsys.readouterr().out


def test_mean_of_boolean_column_is_rejected_with_a_hint_at_share(tmp_path, capsys):
    domain = domain_from_json({"attributes": [{"name": "lived on", "type": "boolean"}]})
    table = pa.table({"lived on": [True, False]})
    promise = dp.Guarantee(10.0, 1e-9, "add_or_remove_one", "record", 1)
    release = dp.release(table, domain, dp.marginals(domain, ways=1), promise)
    dp.write_release(release, tmp_path / "out")
    with pytest.raises(dp.InputError) as caught:
        release.query().mean("lived on")
    hint = re.search(r"; for the share of a level ask for share\((.+)\)$", str(caught.value))
    assert hint is not None
    assert len(release.query().share(ast.literal_eval(hint[1]))) == 1
    assert main(["answer", str(tmp_path / "out"), "--mean", "lived on"]) == 2
    told = capsys.readouterr().err.rpartition("ask for ")[2].strip()
    assert shlex.split(told)[0] == "--share"
    assert main(["answer", str(tmp_path / "out"), *shlex.split(told)]) == 0


EDGES = np.array([0, 8, 15, 31, 248, 512.0])  # the last bin is 264 wide, and nearly empty
FARES = dp.Domain(
    (
        dp.CategoricalAttribute("Survived", ("no", "yes")),
        dp.IntegerAttribute("Pclass", 1, 3),
        dp.CategoricalAttribute("Sex", ("female", "male")),
        dp.IntegerAttribute("SibSp", 0, 8),
        dp.NumericAttribute("Fare", tuple(EDGES)),
    )
)
GROUPS = ((), ("Pclass",), ("Sex",), ("SibSp",), ("Pclass", "Sex"), ("SibSp", "Survived"))
RELEASES = [(0.3, dp.Gaussian()), (1.0, dp.Gaussian()), (1.0, dp.MWEM())]


CASES = [RELEASES[0], *(pytest.param(*each, marks=pytest.mark.part) for each in RELEASES[1:])]


class People(NamedTuple):
    """The codes of 891 passengers, and the fare of each."""

    codes: list[NDArray[np.int64]]
    fares: NDArray[np.float64]


@cache
def people() -> People:
    rng = np.random.default_rng(1912)
    number = 891
    pclass = rng.choice(3, number, p=[0.24, 0.21, 0.55])
    sex = (rng.random(number) < 0.65).astype(int)
    survived = (rng.random(number) < 0.7 - 0.5 * sex - 0.05 * pclass).astype(int)
    siblings = np.minimum(rng.geometric(0.65, number) - 1, 8)
    logs = np.array([4.2, 2.9, 2.4])[pclass], np.array([0.7, 0.5, 0.5])[pclass]
    fares = np.minimum(rng.lognormal(*logs), 511.0)
    bins = np.searchsorted(EDGES, fares, "right") - 1
    return People([survived, pclass, sex, siblings, bins], fares)


def released_fares(
    epsilon: float, mechanism: dp.Gaussian | dp.MWEM, seed: int
) -> dp.SyntheticDatabase:
    guarantee = dp.Guarantee(epsilon, 1e-9, "add_or_remove_one", "record", 1)
    plan = mechanism.plan(FARES, dp.marginals(FARES, ways=2), guarantee, "noisy")
    cells = np.bincount(FARES.cell_index(people().codes), minlength=FARES.num_cells)
    summary = Histogram(FARES, cells.astype(np.int64)).marginals(plan.summary_tables)
    return mechanism.release(plan, summary, Seeded(seed))


class Answer(NamedTuple):
    """One group of one release: its rows of answers, and the fares and the bins of its records."""

    sum: dict[str, object]
    mean: dict[str, object]
    count: dict[str, object]
    fares: NDArray[np.float64]
    bins: NDArray[np.int64]


@cache
def answers(epsilon: float, mechanism: dp.Gaussian | dp.MWEM) -> list[Answer]:
    table = people()
    values = [np.array(["no", "yes"]), np.arange(1, 4), np.array(["female", "male"]), np.arange(9)]
    found = []
    for seed in range(4, 8):
        release = released_fares(epsilon, mechanism, seed)
        for names in GROUPS:
            asked = release.query().group_by(*names)
            for rows in zip(
                asked.sum("Fare").rows(), asked.mean("Fare").rows(), asked.count().rows(),
                strict=True,
            ):  # fmt: skip
                held = np.ones(len(table.fares), bool)
                for name in names:
                    axis = FARES.axes((name,))[0]
                    held &= values[axis][table.codes[axis]] == rows[0][name]
                found.append(Answer(*rows, table.fares[held], table.codes[-1][held]))
    return found


def number(row: dict[str, object], name: str) -> float:
    value = row[name]
    assert isinstance(value, float)
    return value


@pytest.mark.parametrize(("epsilon", "mechanism"), CASES, ids=["0.3", "1", "1, mwem"])
def test_margins_of_sums_hold_the_truth_and_the_product_of_count_and_mean(epsilon, mechanism):
    """In at least 97 % of cases: the bin uncertainty is about as reliable as a margin."""
    halves = np.diff(EDGES) / 2
    held, bounded = [], []
    for each in answers(epsilon, mechanism):
        value, margin = number(each.sum, "sum_Fare"), number(each.sum, "margin")
        within = number(each.sum, "within_bins")
        held.append(abs(value - each.fares.sum()) <= margin)
        if each.sum["bound"] is not None:
            assert abs(value - each.fares.sum()) <= number(each.sum, "bound")
        bounded.append(within >= halves[each.bins].sum())
        if each.mean["margin"] is not None and len(each.fares):
            off = abs(number(each.mean, "mean_Fare") - each.fares.mean())
            held.append(off <= number(each.mean, "margin"))
        # Sums of fares are never negative, and every group has bin uncertainty.
        assert value >= 0 and within > 0
    assert np.mean(held) >= 0.97 and np.mean(bounded) >= 0.93
    for each in answers(epsilon, mechanism):
        if each.mean["margin"] is None:
            continue
        value, margin = number(each.sum, "sum_Fare"), number(each.sum, "margin")
        product = number(each.count, "count") * number(each.mean, "mean_Fare")
        of_count = number(each.mean, "mean_Fare") * number(each.count, "margin")
        assert abs(product - value) <= margin + of_count
