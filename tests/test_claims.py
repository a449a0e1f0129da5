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


DEAR = {key for key in KEYS if key.startswith("projections.")} - {"projections.size"}
DEAR |= {f"multiplicative_weights.{name}" for name in ("privacy", "step", "updates", "lecture")}
DEAR |= {"query_forms.records", "query_forms.release", "composition.open_runs"}
DEAR |= {"small_db.query_count", "small_db.sharper"}
DEAR |= {"sparse_weights.updates", "sparse_weights.potential"}
DEAR |= {"offline_weights.mwem", "vc_dimension.release", "sparse_vector.advanced_composition"}
# Bounds of random errors that nothing else simulates: with as many trials as the page, or half.
SIMULATED = {"intervals.tree_laplace": 1.0, "intervals.tree_gaussian": 1.0}
SIMULATED |= {f"multiplicative_weights.{name}": 1.0 for name in ("pure", "approximate")}
SIMULATED |= {f"sparse_vector.{name}": 1.0 for name in ("above_threshold", "sparse")}
SIMULATED |= {"multiplicative_weights.constructions": 1.0, "sparse_vector.numeric_sparse": 1.0}
SIMULATED |= {"sparse_weights.interactive": 1.0, "offline_weights.early_stop": 1.0}
SIMULATED |= {"projections.accuracy": 0.5}
CASES = [
    *(pytest.param(key, 0.05, marks=pytest.mark.part if key in DEAR else ()) for key in KEYS),
    *(pytest.param(*each, marks=pytest.mark.part) for each in SIMULATED.items()),
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
