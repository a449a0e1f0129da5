"""Every audit of the registry passes, and every mutant of it is caught by the check it names.

Noise is drawn from a seed: the same at each landing. With a fresh one a check of correct code fails
with a chance of at most 1e-9: a black-box bound is wrong, a true law is rejected, or a correct
mechanism is called blind, computed for each audit from its laws. A mutant leaks so much more than
is promised that it is missed with a smaller chance. Only the samplers of ``audit_noise`` are not
seeded; the same chances hold for them.
"""

import ast
import importlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from audit_black_boxes import ELSEWHERE
from auditing import FALSE_ALARM, Audit, Finding
from mechanism_cases import CASES
from noise_sources import SeededEntropy
from source_imports import ROOT
from tiny import UnequalDrawsError

pytestmark = pytest.mark.usefixtures("weights_once")

HERE = pathlib.Path(__file__).parent
FILES = {path.stem: path for path in sorted(HERE.glob("audit_*.py"))}
NOT_SEEDED = "audit_noise"
RELATIONS = {"add_or_remove_one": "add/remove", "replace_one": "replace"}


def audit_id(audit: Audit) -> str:
    is_online = audit.mechanism.startswith(("Private", "SparseMW"))
    delta = ", delta" if audit.guarantee.delta and is_online else ""
    return f"{audit.mechanism}, {RELATIONS[audit.guarantee.neighboring.value]}{delta}"


def imported_modules(path: pathlib.Path) -> list[str]:
    """The modules of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                is_module = (ROOT / name.replace(".", "/")).with_suffix(".py").is_file()
                found.add(name if is_module else str(node.module))
    return sorted(name for name in found if name.startswith("beam_dp."))


LISTED = [
    (stem, audit)
    for stem in FILES
    for name, audits in vars(importlib.import_module(stem)).items()
    if name.startswith("audits")
    for audit in audits()
]
BY_ID = {audit_id(audit): audit for _, audit in LISTED}
FILE_OF = {audit_id(audit): stem for stem, audit in LISTED}
DEPENDS = {stem: imported_modules(path) for stem, path in FILES.items()}


def case(name: str, what: str, check: str, bug: Any = None) -> Any:
    """The parameters of a test, with the tier of its check and the modules that it depends on."""
    modules = {*DEPENDS[FILE_OF[name]], *filter(None, [getattr(bug, "module", None)])}
    marks = [pytest.mark.depends_on(*sorted(modules))]
    tier = BY_ID[name].tiers.get(check)
    if tier is not None:
        marks.append(getattr(pytest.mark, tier))
    return pytest.param(name, what, marks=marks, id=f"{name}-{what}")


CHECKS = [case(name, check, check) for name, each in BY_ID.items() for check in each.checks]
MUTANTS = [
    case(name, mutant, bug.caught_by, bug.apply)
    for name, each in BY_ID.items()
    for mutant, bug in each.mutants.items()
]


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


@pytest.fixture(autouse=True)
def seeded(request, fresh_seed, monkeypatch) -> None:
    name = request.node.callspec.params.get("name") if hasattr(request.node, "callspec") else None
    if FILE_OF.get(name) != NOT_SEEDED:
        SeededEntropy(fresh_seed).put_in(monkeypatch)


@pytest.mark.parametrize(("name", "check"), CHECKS)
def test_audit_of_unchanged_code_passes_and_is_not_blind(name, check, record_property):
    finding = BY_ID[name].checks[check]()
    record_property("audit", row(BY_ID[name], None, finding))
    assert finding.passes, finding
    assert (finding.predicted is None) == (finding.blind_by_chance is None)
    assert finding.blind_by_chance is None or finding.blind_by_chance < FALSE_ALARM, finding


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
        assert fails(check)


def test_crash_of_a_check_is_not_reported_as_a_finding():
    def broken() -> Finding:
        raise AssertionError("of the check itself")

    with pytest.raises(AssertionError, match="of the check itself"):
        fails(broken)


def test_every_audit_has_mutants_and_a_name_of_its_own():
    assert [name for name, each in BY_ID.items() if not each.mutants] == []
    assert len(BY_ID) == len(LISTED)


def test_whole_runs_of_every_mechanism_are_audited():
    held = {each.mechanism for each in BY_ID.values() if "black box" in each.checks}
    assert {ELSEWHERE.get(name, f"whole runs, {name}") for name in CASES} <= held


# Without the check that is named here the mutant would survive: no other one sees it.
SOLE_WITNESSES = [
    ("windows, laplace, c = 2, P = 3, k = 2, add/remove", "clipped tables summed"),
    ("small_db, enumeration, add/remove", "sequences for multisets"),
    ("bins, pure, k = 1, add/remove", "exact ends"),
]


@pytest.mark.part
@pytest.mark.parametrize(("name", "mutant"), [case(*each, "") for each in SOLE_WITNESSES])
def test_mutant_passes_all_checks_except_its_own(name, mutant, monkeypatch):
    audit = BY_ID[name]
    caught_by = audit.mutants[mutant].caught_by
    remaining = {check: run for check, run in audit.checks.items() if check != caught_by}
    audit.mutants[mutant].apply(monkeypatch)
    assert remaining and not any(fails(run) for run in remaining.values())


def test_audits_say_which_modules_they_depend_on():
    assert "beam_dp.in_memory" in DEPENDS["audit_unit_costs"]
    assert "beam_dp.mechanisms.marginals.rounds" in DEPENDS["audit_cases"]
    (halved,) = [case for case in MUTANTS if case.id == "gaussian, add/remove-mu a tenth too large"]
    assert halved.marks[0].name == "depends_on"
    assert "beam_dp.mechanisms.marginals.measurements" in halved.marks[0].args
    assert [stem for stem, modules in DEPENDS.items() if not modules] == []
