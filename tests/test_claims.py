"""docs/claims.md tells what benchmarks/claims.py measures, and every statement in it holds."""

import sys

import claims
import pytest
from claim_rows.claim import Agreement, Failures, Slack

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


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_claims_are_true(key):
    found, _ = claims.measured(key, 0.05)
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
