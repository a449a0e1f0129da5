"""Releases that are combined from two: their answers, guarantees, refusals and files."""

import dataclasses
import functools
import json
import math
import pathlib
from typing import Any

import numpy as np
import pytest
from measured_database import DOMAIN, counts
from noise_sources import Seeded
from open_domains import guarantee, open_domain, residents
from refusals import refusal
from test_proved_bounds import drawn, fails_no_more_than_stated, stated as wrong_marginal
from tiny import on_trees
from verification.forgeries import forge, verified
from written_draws import draw_of

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.mechanisms.discovery.records_per_unit import plan_records
from beam_dp.noise.bound import FAILURE_PROBABILITY
from beam_dp.queries.vector_query import VectorQuery
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.summaries.histogram import Histogram

GUARANTEE = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 1)
PAIRS = dp.marginals(DOMAIN, ways=2)
SEX = dp.Workload(DOMAIN, (("sex",),))


@functools.cache
def made(
    seed: int,
    workload: dp.Workload = PAIRS,
    mechanism: Any = None,
    num_records: Any = "noisy",
    **promise: Any,
) -> dp.SyntheticDatabase:
    """A release of the measured domain, with any fields of the guarantee changed."""
    own = dataclasses.replace(GUARANTEE, **promise)
    plan = (mechanism or dp.Gaussian()).plan(DOMAIN, workload, own, num_records)
    exact = Histogram(DOMAIN, counts()).marginals(plan.summary_tables)
    return plan.release(exact, Seeded(seed))


def standard_error(release: dp.SyntheticDatabase, *names: str) -> float:
    error = release.errors[names]["standard_error"]
    assert error is not None
    return error


def test_table_measured_twice_is_averaged_by_inverse_variance():
    textbook = dp.Gaussian(calibration="textbook")
    both = [made(1, SEX, textbook), made(2, SEX, textbook, epsilon=2.0)]
    found = dp.combine_releases(*both)
    tables = [each.measurements.tables[0] for each in both]
    variances = [each.measurements.described[0].variance for each in both]
    assert variances[0] > 2 * variances[1]
    precisions = [1 / each for each in variances]
    women = VectorQuery.of({1: np.array([1.0, 0.0])})
    ((_, unbiased),) = found.estimates.both([women])
    mean = (tables[0][0] * precisions[0] + tables[1][0] * precisions[1]) / sum(precisions)
    assert unbiased.value == pytest.approx(mean, rel=1e-12)
    assert unbiased.standard_error == pytest.approx(math.sqrt(1 / sum(precisions)), rel=1e-12)
    assert unbiased.kind == FROM_NOISE
    assert standard_error(found, "sex") == pytest.approx(math.sqrt(1 / sum(precisions)))


@pytest.mark.part
def test_errors_of_combined_answers_are_as_large_as_stated():
    """The truth lies one standard error away on average, over many pairs of releases."""
    query = VectorQuery.of({1: np.array([1.0, 0.0]), 2: np.array([0.0, 1.0])})
    table = counts().reshape(DOMAIN.shape).sum(axis=(0, 3))
    scores = []
    for seed in range(60):
        one, other = made(2 * seed, SEX), made(2 * seed + 1)
        found = dp.combine_releases(one, other)
        ((_, unbiased),) = found.estimates.both([query])
        scores.append((unbiased.value - table[0, 1]) / unbiased.standard_error)
    # The mean square of 60 normal variables is in this range, except with probability 1e-6.
    assert 0.35 < np.mean(np.square(scores)) < 2.2


def test_triples_improve_pairs_and_cards_state_the_composition():
    pairs, triples = made(1), made(2, dp.marginals(DOMAIN, ways=3))
    found = dp.combine_releases(pairs, triples)
    assert found.workload.marginals == (*pairs.workload.marginals, *triples.workload.marginals)
    error = standard_error(found, "age", "sex")
    assert error < min(standard_error(each, "age", "sex") for each in (pairs, triples))
    assert standard_error(found, "age", "sex", "town") < standard_error(
        triples, "age", "sex", "town"
    )
    found = dp.combine_releases(made(1), made(2))
    assert found.guarantee.epsilon == pytest.approx(1.4077, abs=1e-3)
    assert found.guarantee.delta == 2e-9
    more = dp.combine_releases(found, made(3))
    assert [each["draw_id"] for each in more.plan["releases"][:2]] == [
        each["draw_id"] for each in found.plan["releases"]
    ]
    assert dp.verify_release(more).holds and 1.4 < more.guarantee.epsilon < 2
    # Adding the epsilon of a pure release is better than the conversion of all noise together.
    pure = dp.combine_releases(made(4, mechanism=dp.Laplace(), delta=0.0), made(5))
    assert pure.guarantee.epsilon == pytest.approx(2.0, rel=1e-9)
    assert pure.guarantee.epsilon <= 2.0


def test_what_was_paid_with_a_release_stays_charged():
    people = residents()
    ones = dp.marginals(open_domain().bounded(), ways=1)
    first = dp.release(people, open_domain(), ones, guarantee())
    assert isinstance(first, dp.SyntheticDatabase) and first.discovered is not None
    again = dp.release(
        people, first.domain, dp.marginals(first.domain, ways=1), guarantee(epsilon=0.5)
    )
    found = dp.combine_releases(first, again)
    assert "discovered" in found.plan["releases"][0] and found.discovered is None
    assert dp.verify_release(found).faults == ()
    without = json.loads(json.dumps(found.plan))
    del without["releases"][0]["discovered"]
    charged = dp.verify_release(dataclasses.replace(found, plan=without))
    assert charged.epsilon < dp.verify_release(found).epsilon
    whole = dataclasses.replace(GUARANTEE, max_records_per_unit=10)
    chosen = plan_records(DOMAIN, whole, 2000.0).chosen(1)
    chosen = dataclasses.replace(chosen, draw_id="0" * 32)
    first = dataclasses.replace(
        made(1, epsilon=chosen.main.epsilon), guarantee=whole, records_per_unit=chosen
    )
    assert dp.verify_release(first).faults == ()
    found = dp.combine_releases(first, made(2))
    assert found.guarantee.max_records_per_unit == 1
    assert dp.verify_release(found).faults == ()
    words = "count units by their records"
    assert any(words in step.what for step in dp.verify_release(found).steps)


def test_selected_pairs_of_both_releases_are_kept():
    with on_trees(40):
        first, second = drawn(1), drawn(9)
        found = dp.combine_releases(first, second)
    held = {each.names for each in found.measurements.described}
    assert held == {each.names for one in (first, second) for each in one.measurements.described}
    assert not found.measurements.are_fixed
    # A later measurement may follow all earlier noise, so bounds take them one by one.
    assert found.measurements.bounds(found.domain, False).choice == "in_turn"
    assert found.measurements.distances == first.measurements.distances
    assert dp.verify_release(found).faults == ()
    left_out = [names for names in first.measurements.distances.pairs if names not in held]
    axes = found.domain.axes(left_out[0])
    query = VectorQuery.of({axes[0]: np.eye(4)[0], axes[1]: np.eye(4)[0]})
    (answer,) = found.bounded.of([query])
    assert answer.standard_error is not None and answer.bound is not None


@pytest.mark.part
def test_bounds_of_combined_selections_fail_at_most_as_often_as_stated():
    with on_trees(40):
        both = [dp.combine_releases(drawn(n), drawn(n + 60)) for n in range(20)]
    assert fails_no_more_than_stated(sum(map(wrong_marginal, both)), 20, FAILURE_PROBABILITY)


def windowed(release: dp.SyntheticDatabase) -> dp.SyntheticDatabase:
    return dataclasses.replace(release, plan={**release.plan, "windows": {}})


def started_from(release: dp.SyntheticDatabase, start: str) -> dp.SyntheticDatabase:
    return dataclasses.replace(release, plan={**release.plan, "start_from": start})


def small() -> dp.SyntheticDatabase:
    plan = dp.SmallDB(size=3).plan(
        DOMAIN, SEX, dataclasses.replace(GUARANTEE, delta=0.0), num_records=20_000
    )
    return plan.release(Histogram(DOMAIN, counts()).marginals(plan.summary_tables), Seeded(1))


OTHER_DOMAIN = dp.Domain(DOMAIN.attributes[:3])


def of_other_domain() -> dp.SyntheticDatabase:
    plan = dp.Gaussian().plan(OTHER_DOMAIN, dp.marginals(OTHER_DOMAIN, ways=1), GUARANTEE, "noisy")
    table = counts().reshape(DOMAIN.shape).sum(axis=3).ravel()
    return plan.release(Histogram(OTHER_DOMAIN, table).marginals(plan.summary_tables), Seeded(1))


FIRST = made(1)
SAME = "must be the same in both releases"
REFUSED: dict[str, tuple[Any, str]] = {
    "same draw": (lambda: FIRST, "must be another draw"),
    "combined with it": (lambda: dp.combine_releases(FIRST, made(2)), "must be another draw"),
    "started from it": (
        lambda: started_from(made(2), FIRST.draw_id),
        "must not be what this release was started from",
    ),
    "other domain": (of_other_domain, "must be of the first release's domain"),
    "other relation": (
        lambda: made(2, num_records=20_000, neighboring="replace_one"),
        f"neighboring replace_one' is not valid: {SAME}; it is add_or_remove_one in the first",
    ),
    "other unit": (lambda: made(2, privacy_unit="visit"), f"visit' is not valid: {SAME}"),
    "more records of a unit": (
        lambda: made(2, max_records_per_unit=3),
        f"max_records_per_unit 3' is not valid: {SAME}; it is 1 in the first",
    ),
    "other cost of a unit": (
        lambda: made(2, mechanism=dp.Gaussian(max_unit_cost=1)),
        f"max_unit_cost 1' is not valid: {SAME}; it is None in the first",
    ),
    "public number": (
        lambda: made(2, num_records=20_000),
        f"num_records 20000' is not valid: {SAME}; it is noisy in the first",
    ),
    "window": (lambda: windowed(made(2)), "must not be: other windows have other records"),
    "without tables": (small, "must have noisy tables"),
    "unknown mechanism": (
        lambda: dataclasses.replace(made(2), plan={"strategy": "of its own"}),
        "strategy of its own' is not valid: must be one of measure_all, rounds, selection",
    ),
    "answers": (lambda: "a release", "must be a synthetic database"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_releases_that_do_not_belong_together(name):
    other, expected = REFUSED[name]
    assert expected in refusal(dp.combine_releases, FIRST, other())


def test_public_numbers_must_agree_and_starts_may():
    told = refusal(dp.combine_releases, made(1, num_records=20_000), made(2, num_records=20_001))
    assert told.startswith("second: 'num_records 20001' is not valid: must be the same")
    both = [started_from(made(n), "5000 public records") for n in (1, 2)]
    assert dp.combine_releases(*both).guarantee.epsilon < 2


def written(folder: pathlib.Path) -> list[str]:
    """Two releases, and the path of their combination, which the command line writes."""
    places = [str(folder / name) for name in ("a", "b", "both")]
    for place, release in zip(places, (made(1), made(2)), strict=False):
        dp.write_release(release, place)
    return places


def test_command_line_writes_a_release_like_any_other(tmp_path, capfd):
    first, second, both = written(tmp_path)
    assert main(["combine", first, second, "--output", both]) == 0
    assert "both together keep epsilon 1.40773 at delta 2e-09; nothing was spent" in (
        capfd.readouterr().out
    )
    found = dp.read_release(both, kind=dp.SyntheticDatabase, check_rows=True)
    assert found.num_shards and sum(len(each.records) for each in found.rows()) > 19_000
    for command in (["describe", both], ["verify", both], ["diff", first, both]):
        assert main(command) == 0
    text = capfd.readouterr().out
    assert dp.read_release(first).draw_id in text and "holds: epsilon 1.40773" in text
    assert main(["answer", both, "--where", "sex == 'F'"]) == 0
    assert main(["report", both]) == 0
    assert "Combining releases spends nothing" in (tmp_path / "both.html").read_text()
    before = {path: path.read_bytes() for path in (tmp_path / "both").iterdir()}
    capfd.readouterr()
    assert main(["combine", first, second, "--output", both]) == 2
    assert "error: --output" in capfd.readouterr().err
    assert {path: path.read_bytes() for path in (tmp_path / "both").iterdir()} == before


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ("guarantee.epsilon = 1.2", "keeps only epsilon 1.40773"),
        ("guarantee.delta = 1e-9", "keeps only epsilon 1.43"),
        ("noise.0.scale = 1e3", "keeps only epsilon"),
        ("parameters.releases.0.num_measurements = 3", "of the tables of all releases"),
        ("parameters.releases.0.guarantee.epsilon = 0.5", "epsilon: the card says 0.5"),
        ("measurements.releases = 3", "measurements.releases: the card says 3"),
        (
            f'parameters.releases.1.draw_id = "{FIRST.draw_id}"',
            "must be two or more different draws",
        ),
    ],
)
def test_changed_card_fails_verification(changes, expected):
    draw = draw_of(dp.combine_releases(FIRST, made(2)))
    card = json.loads(draw.text)
    forge(card, changes)
    found = verified(card, draw.payload)
    faults = [str(found)] if isinstance(found, dp.InputError) else found.faults
    assert any(expected in fault for fault in faults)


def test_combining_charges_a_ledger_nothing_and_compares_datasets(tmp_path, capfd):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"sex": [0, 1] * 50, "person": range(100)})
    domain = dp.parse_domain({"sex": 2})
    url = f"sqlite:///{tmp_path}/budgets.db"
    ledger = dp.Ledger(url)
    for dataset in ("people", "others"):
        ledger.declare(dataset, 3.0, 1e-8, "person", "add_or_remove_one")
    for name, dataset in (("a", "people"), ("b", "people"), ("c", "others")):
        place = tmp_path / name
        dp.release(
            frame,
            domain,
            dp.marginals(domain, ways=1),
            GUARANTEE,
            output=place,
            ledger=ledger,
            dataset_id=dataset,
        )
    dp.write_release(made(1), tmp_path / "unpaid")
    spent = ledger.total("people")
    places = {name: str(tmp_path / name) for name in ("a", "b", "c", "unpaid", "both", "none")}
    command = ["combine", places["a"], places["b"], "--output", places["both"], "--ledger", url]
    assert main(command) == 0
    assert ledger.total("people") == spent and len(ledger.entries("people")) == 2
    for other, expected in (
        ("c", "of dataset others' is not valid: must be of dataset people, as A is"),
        ("unpaid", "must have an entry for draw"),
    ):
        command = ["combine", places["both"], places[other], "--output", places["none"]]
        assert main([*command, "--ledger", url]) == 2
        assert expected in capfd.readouterr().err
    assert not (tmp_path / "none").exists()


def test_command_line_names_releases_by_position(tmp_path, capfd):
    first, _, both = written(tmp_path)
    assert main(["combine", first, first, "--output", both]) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: B: ") and "must be another draw" in error
