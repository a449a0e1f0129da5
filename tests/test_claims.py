"""docs/claims.md tells what benchmarks/claims.py measures, and every statement in it holds."""

import sys

import claims
import pytest
from claim_rows.claim import Agreement, Failures, Slack
from noise_sources import Seeded

KEYS = [claim.key for claim in claims.all_claims()]


def test_claims_page_matches_the_measurements():
    written = claims.PAGE.read_text().splitlines()
    made = claims.page(dict.fromkeys(KEYS, "@")).splitlines()
    assert len(written) == len(made)
    for line, expected in zip(written, made, strict=True):
        before, is_row, _ = expected.partition("@ |")
        assert line.startswith(before) if is_row else line == expected
    assert set(claims.written()) == set(KEYS)
    assert "not yet" not in claims.written().values()


def test_claim_keys_are_unique():
    assert len(set(KEYS)) == len(KEYS)


# One of each section that costs little runs always, with few trials.
CHEAP = {"query_forms.listing", "linear_answers.laplace", "intervals.tree_sensitivity"}
CHEAP |= {"selection.utility", "small_db.selection", "vc_dimension.search", "sparse_weights.room"}
CHEAP |= {"sparse_vector.above_threshold_privacy", "multiplicative_weights.updates"}
CHEAP |= {"projections.norm", "offline_weights.early_stop"}
# Bounds of random errors that nothing else simulates: with all trials of the page.
SIMULATED = {"intervals.tree_laplace", "intervals.tree_gaussian", "offline_weights.early_stop"}
SIMULATED |= {f"sparse_vector.{name}" for name in ("above_threshold", "sparse", "numeric_sparse")}
SIMULATED |= {f"multiplicative_weights.{name}" for name in ("pure", "approximate", "constructions")}
SIMULATED |= {"sparse_weights.interactive", "projections.accuracy"}
CASES = [
    *(pytest.param(key, 0.05, marks=() if key in CHEAP else pytest.mark.part) for key in KEYS),
    *(pytest.param(key, 1.0, marks=pytest.mark.part) for key in sorted(SIMULATED)),
]


@pytest.mark.parametrize(("key", "trials"), CASES)
def test_claims_are_true(key, trials, monkeypatch, fresh_seed):
    """A true claim fails with probability 1e-9; the noise is seeded."""
    source = Seeded(fresh_seed)
    for module in vars(claims).values():
        if hasattr(module, "NoiseSource"):
            monkeypatch.setattr(module, "NoiseSource", lambda: source)
    found, _ = claims.measured(key, trials)
    assert all(each.holds for each in found), [str(each) for each in found]


def test_rejects_claim_that_fails_too_often():
    assert Failures(61, 1000, 0.05, 0.9).holds and not Failures(161, 1000, 0.05, 0.9).holds
    assert Slack(2.0, 2.0, 10, "updates").holds and not Slack(2.1, 2.0, 10, "updates").holds
    assert Agreement(0, 10, "a loop").holds and not Agreement(1, 10, "a loop").holds
    assert not Agreement(float("nan"), 10, "a loop", 1.0).holds


def test_unknown_claim_gives_a_one_line_error(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["claims.py", "--only", "small_bd"])
    with pytest.raises(SystemExit):
        claims.main()
    assert "--only small_bd: must be how one of the keys" in capsys.readouterr().err
