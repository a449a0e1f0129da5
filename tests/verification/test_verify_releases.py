"""Verification of genuine releases of every kind, and of changed cards."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kinds_of_releases import (
    COUNTS,
    DOMAIN as CELLS,
    NOISE,
    RELEASES,
    Change,
    edit,
    guarantee,
    linear_answers,
    synthetic,
)
from verification.forgeries import all_of

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.releases.kinds import (
    read_any,
    read_release,
    release_from_bytes,
    release_to_bytes,
    verify_release,
    write_release,
)
from beam_dp.releases.release import Release
from beam_dp.summaries.histogram import Histogram
from beam_dp.verification.verdict import Verification

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"


def again(release: Release) -> Release:
    """The release as read from its files."""
    return release_from_bytes(release_to_bytes(release))


@pytest.mark.mostly_slow(one_in=4)
@pytest.mark.parametrize("name", RELEASES)
def test_genuine_release_passes_verification(name):
    found = verify_release(again(RELEASES[name]()))
    assert found.faults == ()
    assert found.holds and found.num_figures >= 2
    assert 0.2 < found.epsilon <= 1.0


def test_release_whose_noise_is_smaller_than_rounding_errors_passes_verification():
    sizes = (2, 3)  # half of the pairs have no record
    codes = np.random.default_rng(0).integers(0, 2, 1500)
    table = pa.table({"a": codes, "b": codes})
    domain = dp.parse_domain(dict(zip("ab", sizes, strict=True)))
    promise = dp.Guarantee(60.0, 1e-9, "add_or_remove_one", "record", 1)
    for _ in range(8):
        release = dp.release(table, domain, dp.marginals(domain, ways=2), promise)
        assert verify_release(release).faults == ()


def test_exactly_calibrated_releases_have_the_promised_epsilon():
    tight = ("gaussian", "laplace", "sine", "sparse_project", "gaussian answers", "rounds")
    for name in (*tight, "private_mw of 5 updates", "hybrid", "count_sketch", "small_db"):
        found = verify_release(again(RELEASES[f"{name}, replace_one"]()))
        assert found.epsilon == pytest.approx(1.0, rel=1e-11)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in GOLDEN.glob("*/*.json")))
def test_golden_releases_pass_verification(name):
    found = verify_release(read_any(GOLDEN / name))
    epsilon = {"domain": 0.598880849296775}.get(name, 1.0)  # the rest is the later release's
    assert found.holds and found.epsilon == pytest.approx(epsilon, rel=1e-9)


def raised_guarantee(**fields: Any) -> Change:
    return lambda card: card["guarantee"].update(fields)


def scaled(factor: float, *places: str | int) -> Change:
    """Multiplies one number on a card."""

    def change(card: Any) -> None:
        for place in places[:-1]:
            card = card[place]
        card[places[-1]] *= factor

    return change


def low_threshold(card: dict[str, Any]) -> None:
    for holder in (card, card["parameters"]):
        holder["histogram"]["threshold"] -= 20


def every_noise(card: dict[str, Any]) -> None:
    """Halves all scales of a synthetic database, and the figures that follow from them."""
    for entry in card["noise"]:
        entry["scale"] /= 2
        if "standard_deviation" in entry:
            entry["standard_deviation"] /= 2


def one_noise(card: dict[str, Any]) -> None:
    """Reduces the scale of the noisiest table by a tenth."""
    entry = max(card["noise"], key=lambda each: each["scale"])
    entry["scale"] *= 0.9
    entry["standard_deviation"] *= 0.9


LOWER = raised_guarantee(epsilon=0.9)
MORE_RECORDS = raised_guarantee(max_records_per_unit=3)
LESS_DELTA = raised_guarantee(delta=1e-12)
ADDED = "add_or_remove_one"
# These mechanisms add more noise than needed, or state their promise twice.
NOT_TIGHT = ("textbook", "answers", "_mw")
# `test_every_change_of_a_card_fails_verification` halves, doubles or deletes each field by itself.
TAMPERED: list[tuple[str, Change]] = [
    *((name, LOWER) for name in RELEASES if not any(each in name for each in NOT_TIGHT)),
    *((f"{name}, {ADDED}", MORE_RECORDS) for name in ("mwem", "laplace", "rounds", "annealed")),
    *((f"{name}, {ADDED}", MORE_RECORDS) for name in ("selection", "textbook", "small_db")),
    *((f"{name}, {ADDED}", MORE_RECORDS) for name in ("sine", "windows", "count_sketch", "hybrid")),
    *((f"{name}, {ADDED}", MORE_RECORDS) for name in ("left out", "intervals left out")),
    *((f"{name}, {ADDED}", LESS_DELTA) for name in ("gaussian", "rounds", "stability_histogram")),
    (f"gaussian, {ADDED}", raised_guarantee(neighboring="replace_one")),
    (f"laplace, {ADDED}", raised_guarantee(neighboring="replace_one")),
    *((f"{name}, {ADDED}", every_noise) for name in ("mwem", "laplace", "gaussian textbook")),
    *((f"{name}, {ADDED}", one_noise) for name in ("laplace", "laplace weights")),
    *((f"{name}, {ADDED}", every_noise) for name in ("annealed", "rounds pure", "selection")),
    (f"rounds, {ADDED}", lambda card: card["parameters"].update(selection="permute_and_flip")),
    (f"annealed, {ADDED}", lambda card: card["parameters"].update(num_units=99)),
    (f"textbook, {ADDED}", lambda card: card["parameters"].update(num_rounds=4)),
    (f"textbook that stops, {ADDED}", lambda card: card["parameters"].update(num_updates=4)),
    (f"checked selection, {ADDED}", every_noise),
    (f"checked selection, {ADDED}", lambda card: card["fit"].update(num_added_pairs=6)),
    (f"checked selection, {ADDED}", lambda card: card["parameters"].update(most_choices=0)),
    (f"mwem, {ADDED}", lambda card: card["errors"][1].update(bound=0.1)),
    (f"mwem, {ADDED}", scaled(1 + 1e-6, "errors", 2, "bound")),
    (f"rounds, {ADDED}", lambda card: card["errors"][1].update(bound=0.1)),
    (f"sine, {ADDED}", all_of(scaled(0.5, "noise", "scale"), scaled(0.5, "noise", "grid"))),
    (f"sparse_project, {ADDED}", lambda card: card["parameters"].update(bound="none")),
    *(
        (
            f"{name}, {ADDED}",
            all_of(scaled(0.5, "sketch", "scale"), scaled(0.5, "parameters", "sketch", "scale")),
        )
        for name in ("sparse_project", "count_sketch", "count_sketch gaussian", "hybrid")
    ),
    (f"count_sketch, {ADDED}", lambda card: card.update(max_weight=4)),
    (f"sparse_project, {ADDED}", lambda card: card["parameters"]["sketch"].update(num_blocks=4)),
    (f"stability_histogram, {ADDED}", low_threshold),
    (
        f"laplace answers, {ADDED}",
        all_of(LOWER, lambda card: card["plan"]["guarantee"].update(epsilon=0.9)),
    ),
    *((f"{name}, {ADDED}", LOWER) for name in ("private_mw", "sparse_mw pure", "laplace answers")),
    (
        f"private_mw textbook, {ADDED}",
        lambda card: card["settings"]["noise"].update(redraws_threshold=0),
    ),
    (f"selection, {ADDED}", lambda card: card["parameters"].update(num_candidates=0)),
    (f"sparse_mw, {ADDED}", lambda card: card["settings"]["noise"].update(max_above=2000)),
]


@pytest.mark.parametrize(
    ("name", "change"), TAMPERED, ids=[f"{n}-{i}" for i, (n, _) in enumerate(TAMPERED)]
)
def test_changed_card_fails_verification(name, change, tmp_path):
    found = verified_after(RELEASES[name](), change, tmp_path)
    assert found is None or (not found.holds and found.faults)


def verified_after(release: Release, change: Change, tmp_path: pathlib.Path) -> Verification | None:
    """Verifies a release with a changed card; None if it is rejected as damaged."""
    write_release(release, tmp_path / "out")
    edit(tmp_path / "out" / "card.json", change)
    try:
        return verify_release(read_release(tmp_path / "out"))
    except InputError:
        return None


def test_verification_notes_noise_for_more_records_per_unit_than_promised(tmp_path):
    release = RELEASES[f"laplace, {ADDED}"]()
    found = verified_after(release, raised_guarantee(max_records_per_unit=1), tmp_path)
    assert found is not None and found.holds
    assert "either there is more noise than the promise needs" in found.notes[0]


def test_card_without_the_number_of_units_gives_a_one_line_error(tmp_path):
    write_release(RELEASES[f"rounds, {ADDED}"](), tmp_path / "out")
    edit(tmp_path / "out" / "card.json", lambda card: card["parameters"].pop("num_units"))
    with pytest.raises(InputError, match="num_units: None is not valid"):
        verify_release(read_release(tmp_path / "out"))


@pytest.mark.parametrize("value", [None, 0, "of its own"])
@pytest.mark.parametrize("name", ["rounds", "annealed pure", "selection", "textbook", "small_db"])
def test_selection_without_a_stated_strategy_fails_verification(name, value, tmp_path):
    release = RELEASES[f"{name}, {ADDED}"]()
    changes: list[Change] = [
        lambda card: card["parameters"].update(strategy=value),
        lambda card: card["parameters"].pop("strategy"),
    ]
    for place, change in enumerate(changes):
        assert verified_after(release, change, tmp_path / str(place)) is None


def test_notes_that_a_custom_mechanism_may_draw_more_noise(tmp_path):
    def own(card: dict[str, Any]) -> None:
        card["mechanism"] = "favourite"
        card["parameters"]["strategy"] = "of its own"

    release = RELEASES[f"rounds, {ADDED}"]()
    found = verified_after(release, own, tmp_path / "with tables")
    assert found is not None and any("drew no noise besides" in n for n in found.notes)

    def of_nothing(card: dict[str, Any]) -> None:
        own(card)
        card["noise"] = []

    textbook = RELEASES[f"textbook, {ADDED}"]()  # which keeps no tables
    assert verified_after(textbook, of_nothing, tmp_path / "without") is None


@pytest.mark.parametrize("value", [None, 0, "x", []])
def test_sketch_that_contradicts_its_parameters_fails_verification(value, tmp_path):
    release = RELEASES[f"hybrid, {ADDED}"]()
    found = verified_after(release, lambda c: c["parameters"].update(sketch=value), tmp_path)
    assert found is None or not found.holds


@pytest.mark.parametrize(
    ("name", "field"),
    [
        *(
            ("selection", f"parameters.{field}")
            for field in ("score_grid", "score_scale", "pairs_mu")
        ),
        *((name, "plan.count_scale") for name in ("private_mw pure", "sparse_mw pure")),
    ],
)
def test_rejects_card_without_a_figure_of_its_noise(name, field, tmp_path):
    place, _, key = field.partition(".")
    release = RELEASES[f"{name}, {ADDED}"]()
    assert verified_after(release, lambda card: card[place].pop(key), tmp_path) is None


def test_verification_reports_the_true_epsilon_and_advice(tmp_path):
    found = verified_after(RELEASES[f"laplace, {ADDED}"](), every_noise, tmp_path)
    assert found is not None
    assert found.faults[0] == (
        "The card promises epsilon 1 at delta 1e-09, but the noise that it states keeps only"
        " epsilon 2, 2 times as much. A published release cannot be made more private: count it as"
        " epsilon 2 in every budget, and inform everyone who relies on it."
    )


@pytest.mark.parametrize("times", [10**3, pytest.param(10**5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mechanism", [dp.MWEM(), dp.Gaussian(), dp.Laplace()], ids=repr)
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_cell_bounds_have_relative_error_1e_9_up_to_ten_million_records(
    mechanism, relation, times, monkeypatch
):
    """Without the allowance for rounding counts, which only more records need."""
    monkeypatch.setattr("beam_dp.releases.synthetic_database.verify._ROUNDING", 0.0)
    promise, counts = guarantee(relation=relation), times * COUNTS
    number = "noisy" if relation == ADDED else int(counts.sum())
    workload = dp.marginals(CELLS, ways=2)
    plan = plan_release(mechanism, CELLS, workload, promise, ReleaseOptions(num_records=number))
    marginals = Histogram(CELLS, counts).marginals(plan.summary_tables)
    release = again(plan.release(marginals, NOISE))
    assert release.represented > 90 * times  # type: ignore[union-attr]
    found = verify_release(release)
    assert found.holds and found.num_figures >= 20


def test_verification_notes_truncated_queries():
    release = linear_answers(guarantee(0.0))
    cut = '{"values": [' + "0.1, " * 1000
    rows = [{**row, "query": cut[:2000]} for row in release.rows]
    object.__setattr__(release, "rows", rows)
    found = verify_release(release)
    assert found.holds and "were compared only with" in found.notes[0]
    object.__setattr__(release, "rows", [{**rows[0], "query": cut[:1999]}])
    with pytest.raises(InputError, match="must be a query of the domain"):
        verify_release(release)


def test_verification_converts_to_json():
    found = verify_release(synthetic(dp.MWEM(), guarantee())).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["holds"] and found["steps"][0]["theorem"]
