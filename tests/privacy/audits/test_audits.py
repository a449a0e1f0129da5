"""Every audit of the registry passes, and every mutant of it is caught by the check it names.

Statistical checks: a black-box bound is wrong with probability 1e-6 at most, and a chi-square
rejects a true law with at most 5.2e-6; a run makes about 70 of these on code without a bug. The
power checks call a correct mechanism blind with at most 1e-5, computed for each audit from its
laws: one with too few runs fails for that alone, whatever it sees.
"""

from __future__ import annotations

import importlib
import json
import pathlib
from collections.abc import Callable

import auditing
import pytest
from auditing import Audit, Finding
from tiny import UnequalDrawsError

pytestmark = [pytest.mark.audit, pytest.mark.usefixtures("weights_once")]

HERE = pathlib.Path(__file__).parent
MODULES = [importlib.import_module(path.stem) for path in sorted(HERE.glob("audit_*.py"))]
AUDITS: list[Audit] = [each for module in MODULES for each in module.audits()]
# At most so likely may an audit of a correct mechanism miss its floor.
BLIND_BY_CHANCE = 1e-5
RELATIONS = {"add_or_remove_one": "add/remove", "replace_one": "replace"}


def audit_id(audit: Audit) -> str:
    is_online = audit.mechanism.startswith(("Private", "SparseMW"))
    delta = ", delta" if audit.guarantee.delta and is_online else ""
    return f"{audit.mechanism}, {RELATIONS[audit.guarantee.neighboring.value]}{delta}"


BY_ID = {audit_id(each): each for each in AUDITS}
CHECKS = [(name, check) for name, each in BY_ID.items() for check in each.checks]
MUTANTS = [(name, mutant) for name, each in BY_ID.items() for mutant in each.mutants]


def row(audit: Audit, mutant: str | None, finding: Finding | None) -> str:
    guarantee = audit.guarantee
    claimed = f"{guarantee.epsilon:g}" + (f", {guarantee.delta:g}" if guarantee.delta else "")
    return json.dumps(
        {
            "mechanism": audit.mechanism,
            "relation": RELATIONS[guarantee.neighboring.value],
            "claimed": claimed,
            "mutant": mutant,
            "bound": finding.lower_bound if finding else None,
            "predicted": finding.predicted if finding else None,
        }
    )


def fails(check: Callable[[], Finding]) -> bool:
    """Whether a check refuses: also because the noise itself tells neighbours apart.

    No other assertion counts: a check that breaks down catches nothing.
    """
    try:
        return not check().passes
    except UnequalDrawsError:
        return True


@pytest.mark.parametrize(("name", "check"), CHECKS)
def test_audit_of_unchanged_code_passes_and_is_not_blind(name, check, record_property):
    finding = BY_ID[name].checks[check]()
    record_property("audit", row(BY_ID[name], None, finding))
    assert finding.passes, finding
    assert (finding.predicted is None) == (finding.blind_by_chance is None)
    assert finding.blind_by_chance is None or finding.blind_by_chance < BLIND_BY_CHANCE, finding


@pytest.mark.parametrize(("name", "mutant"), MUTANTS)
def test_audit_detects_its_mutant(name, mutant, record_property, monkeypatch):
    """One that blinds adds noise, and refutes nothing: only the number of observations fails."""
    audit = BY_ID[name]
    record_property("audit", row(audit, mutant, None))
    bug = audit.mutants[mutant]
    bug.apply(monkeypatch)
    check = audit.checks[bug.caught_by]
    if bug.blinds:
        finding = check()
        assert finding.is_blind and not finding.is_refuted and not finding.passes
    else:
        monkeypatch.setattr(auditing, "LOOKS", (8, 3))
        assert fails(check)


def test_crash_of_a_check_is_not_reported_as_a_finding():
    def broken() -> Finding:
        raise AssertionError("of the check itself")

    with pytest.raises(AssertionError, match="of the check itself"):
        fails(broken)


def test_every_audit_has_mutants():
    assert [name for name, each in BY_ID.items() if not each.mutants] == []


# Without the check that is named here the mutant would survive: no other one sees it.
SOLE_WITNESSES = [
    ("laplace, add/remove", "noise scale halved in the sampler"),
    ("laplace, add/remove", "empty cells skipped"),
    ("laplace, replace", "one draw for all cells"),
    ("gaussian, add/remove", "sensitivity halved"),
]


@pytest.mark.parametrize(("name", "mutant"), SOLE_WITNESSES)
def test_mutant_passes_all_checks_except_its_own(name, mutant, monkeypatch):
    audit = BY_ID[name]
    caught_by = audit.mutants[mutant].caught_by
    remaining = {check: run for check, run in audit.checks.items() if check != caught_by}
    audit.mutants[mutant].apply(monkeypatch)
    assert remaining and not any(fails(run) for run in remaining.values())
