"""Records from noisy tables that were made elsewhere: the fit, the card, and what is promised."""

import json
import math
import re
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.privacy.guarantee import NoGuarantee
from beam_dp.releases.kinds import release_from_bytes, release_to_bytes

SOURCE = "BigQuery SELECT WITH DIFFERENTIAL_PRIVACY, epsilon 1"
DOMAIN = dp.read_domain(
    json.dumps(
        {
            "attributes": [
                {"name": "age", "type": "numeric", "edges": [0, 20, 40, 100]},
                {"name": "sex", "type": "categorical", "values": ["F", "M"]},
                {"name": "town", "type": "categorical", "values": ["a", "b", "c"]},
            ]
        }
    )
)
SEX_BY_AGE = np.array([[40.25, -3.5], [120.0, 75.5], [60.0, 90.75]])
TOWNS = [("a", "F", 100.5), ("b", "M", 70.0), ("a", "M", 31.0), ("c", "F", 88.0)]
TOWNS += [("b", "F", 33.0), ("c", "M", 58.75)]


def towns_of(rows: list[tuple[str, str, float]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(dict(zip(("town", "sex", "count"), map(list, columns), strict=True)))


TABLES = [(["age", "sex"], SEX_BY_AGE, 5.0), (["town", "sex"], towns_of(TOWNS), 2.5)]


@cache
def made(distribution: Any = "laplace", num_records: Any = "noisy") -> dp.SyntheticDatabase:
    named = {"distribution": distribution, "num_records": num_records}
    return dp.synthesise(DOMAIN, TABLES, source=SOURCE, **named)


def test_tables_are_read_in_any_order_of_attributes_and_rows():
    by_town = np.array([[100.5, 33.0, 88.0], [31.0, 70.0, 58.75]])  # sex, town
    arrays = [(("sex", "age"), SEX_BY_AGE.T.tolist(), 5.0), (("sex", "town"), by_town, 2.5)]
    frames = [TABLES[0], (("town", "sex"), towns_of(TOWNS[::-1]), 2.5)]
    for given in (TABLES, arrays, frames):
        found = dp.synthesise(DOMAIN, given, source=SOURCE).measurements
        assert found is not None and found.are_fixed
        assert [each.names for each in found.described] == [("age", "sex"), ("sex", "town")]
        assert np.array_equal(found.tables[0], SEX_BY_AGE)
        assert np.array_equal(found.tables[1], by_town)


@pytest.mark.parametrize("distribution", ["laplace", "gaussian"])
@pytest.mark.parametrize("error", [1e-4, 0.3, 5.0, 3e7])
def test_noise_on_the_card_has_the_given_standard_error(distribution, error):
    tables = [(DOMAIN.names, np.full(DOMAIN.shape, 1e8), error)]
    found = dp.synthesise(DOMAIN, tables, source=SOURCE, distribution=distribution)
    assert found.noise[0]["distribution"] == f"discrete_{distribution}"
    assert math.isclose(found.noise[0]["standard_deviation"], error, rel_tol=1e-9)
    assert math.isclose(found.errors[DOMAIN.names]["standard_error"], error, rel_tol=1e-9)


@pytest.mark.parametrize("distribution", ["laplace", "gaussian"])
@pytest.mark.parametrize("num_records", ["noisy", 450])
def test_answers_average_the_tables_by_their_errors(distribution, num_records):
    release = made(distribution, num_records)
    women = release.query("sex == 'F'").count().columns
    by_age, by_town = SEX_BY_AGE[:, 0].sum(), 100.5 + 33.0 + 88.0
    variances = 3 * 5.0**2, 3 * 2.5**2
    if num_records == "noisy":
        wanted = (by_age / variances[0] + by_town / variances[1]) / sum(1 / v for v in variances)
        assert math.isclose(women["count"][0], wanted, rel_tol=1e-6)
        assert math.isclose(women["standard_error"][0], 15**0.5, rel_tol=1e-6)
        assert release.record_marginal(["age", "sex"])[0, 1] <= 2  # the negative count
    else:
        assert release.num_records == 450 and release.num_records_is_public
        assert women["standard_error"][0] < 15**0.5
    assert (release.answer(dp.marginals(DOMAIN, ways=3))[0].values > 0).all()
    assert release.sample(20, where="age < 40").num_rows == 20


def test_release_states_whose_promise_it_is_and_keeps_it_when_written(tmp_path):
    release = made()
    dp.write_release(release, tmp_path / "out")
    read = dp.read_release(tmp_path / "out", kind=dp.SyntheticDatabase)
    for each in (release, read, release_from_bytes(release_to_bytes(release))):
        assert each.guarantee == NoGuarantee(SOURCE)
        assert each.card["guarantee"] == {"epsilon": None, "delta": None, "source": SOURCE}
        found = dp.verify_release(each)
        assert not found.promises and not found.holds
        assert found.faults == () and found.num_figures > 10


def test_commands_say_that_there_is_no_promise_of_ours(tmp_path, capsys):
    place = str(tmp_path / "out")
    dp.write_release(made(), place)
    assert main(["verify", place]) == 3
    told = capsys.readouterr().out
    assert "no promise of ours" in told and "hold" not in told and "BigQuery" in told
    assert main(["verify", place, "--json"]) == 3
    printed = json.loads(capsys.readouterr().out)
    assert printed["holds"] is False and printed["promise"]["source"] == SOURCE
    assert printed["epsilon"] is None
    assert main(["describe", place]) == 0
    described = " ".join(capsys.readouterr().out.split())
    assert f"promise none of ours: the tables were made elsewhere source {SOURCE}" in described
    assert main(["report", place]) == 0
    page = re.sub("<[^>]*>", " ", (tmp_path / "out.html").read_text("utf-8"))
    assert "beam_dp promises nothing for this release" in page and SOURCE in page
    for wrong in ("differentially private", "epsilon inf", "protects one", "it no promise"):
        assert wrong not in page


def changed_card(release: Any, place: Any, change: Any) -> int:
    """Writes a release with another card; returns the exit code of `beam-dp verify`."""
    dp.write_release(release, place)
    card = json.loads((place / "card.json").read_text("utf-8"))
    change(card)
    (place / "card.json").write_text(json.dumps(card), "utf-8")
    return main(["verify", str(place)])


def test_wrong_figures_and_borrowed_promises_are_found(tmp_path, capsys):
    ours = {"epsilon": 1.0, "delta": 0, "neighboring": "add_or_remove_one"}
    ours |= {"privacy_unit": "record", "max_records_per_unit": 1}
    code = changed_card(made(), tmp_path / "promised", lambda card: card.update(guarantee=ours))
    assert (
        code == 2 and "must be given_tables if the promise is not ours" in capsys.readouterr().err
    )

    def halved(card: Any) -> None:
        card["errors"][-1]["standard_error"] /= 2

    assert changed_card(made(), tmp_path / "errors", halved) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "no promise of ours: the tables were made elsewhere; some figures" in told
    guarantee = dp.Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
    table = pa.table({"age": [3.0, 30.0], "sex": ["F", "M"], "town": ["a", "b"]})
    own = dp.release(table, DOMAIN, dp.marginals(DOMAIN, ways=1), guarantee)
    lost = {"epsilon": None, "delta": None, "source": "me"}
    assert changed_card(own, tmp_path / "lost", lambda card: card.update(guarantee=lost)) == 2
    more = {**lost, "max_records_per_unit": 1}
    assert changed_card(made(), tmp_path / "more", lambda card: card.update(guarantee=more)) == 2


@pytest.mark.part
def test_large_domain_is_fitted_by_a_tree():
    domain = dp.read_domain(json.dumps({f"c{number}": 8 for number in range(8)}))
    rng = np.random.default_rng(2)
    chain = [(f"c{number}", f"c{number + 1}") for number in range(7)]
    tables = [(names, rng.integers(0, 100, (8, 8)) + rng.normal(size=(8, 8)), 1.0)
              for names in chain]  # fmt: skip
    release = dp.synthesise(domain, tables, source="a census", distribution="gaussian")
    assert release.fit["hypothesis"] == "junction_tree"
    found = dp.verify_release(release)
    assert found.faults == () and not found.holds


def test_impossible_combinations_need_no_row():
    impossible = [{"sex": ["M"], "pregnant": [True]}]
    attributes = [
        {"name": "sex", "type": "categorical", "values": ["F", "M"]},
        {"name": "pregnant", "type": "boolean"},
    ]
    domain = dp.read_domain(json.dumps({"attributes": attributes, "impossible": impossible}))
    counts = pa.table(
        {"sex": ["F", "F", "M"], "pregnant": [True, False, False], "count": [10, 40, 55]}
    )
    found = dp.synthesise(domain, [(["sex", "pregnant"], counts, 1.0)], source="a survey")
    assert found.record_marginal(["sex", "pregnant"])[1, 1] == 0
