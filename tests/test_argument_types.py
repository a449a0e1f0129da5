"""Arguments of another class, or in the wrong place, are refused in one clear line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from refusals import refusal

import beam_dp as dp

DOMAIN = dp.parse_domain('{"age": 85, "sex": 2}')
WORKLOAD = dp.marginals(DOMAIN, ways=1)
QUERIES = dp.parse_linear_workload("marginals:1", DOMAIN)
PROMISE = dp.Guarantee(1.0, 1e-9, dp.Neighboring.ADD_OR_REMOVE_ONE, "record", 1)
HORIZON = dp.Horizon(start="2026-11-23T00:00Z", window="1h", num_windows=24, grace="0s")
UNIT = dp.WindowUnit("record", max_records_per_unit=1, max_windows_per_unit=1, protected_windows=1)
KEYS = dp.KeyProfile(100, 10, 50)
SKETCH = dp.CountSketch().plan(PROMISE, max_sparsity=9)
TABLES = dp.plan_window_tables(WORKLOAD, HORIZON, UNIT, 1.0, 1e-9)
MECHANISM = "must be a Mechanism, such as dp.MWEM()"
A_DOMAIN = "must be a Domain, such as dp.read_domain(FILE)"
A_WORKLOAD = "must be a Workload, such as dp.marginals(domain, ways=2)"
A_GUARANTEE = (
    "must be a Guarantee, such as dp.Guarantee(1.0, 1e-9, 'add_or_remove_one', 'record', 1)"
)
ANY: Any = None  # what a checker of types would refuse is given here


def synthetic(**changed: Any) -> dp.ReleaseSyntheticDatabase:
    given: dict[str, Any] = {"domain": DOMAIN, "workload": WORKLOAD, "guarantee": PROMISE}
    return dp.ReleaseSyntheticDatabase(**{**given, "mechanism": dp.MWEM(), **changed})


def sketch(**changed: Any) -> dp.ReleaseProjection:
    return dp.ReleaseProjection(**{"plan": SKETCH, "columns": dp.KeyColumns("email"), **changed})


def wrong(value: object) -> Any:
    return value


Case = tuple[Callable[[], object], str]
TRANSFORMS: list[Case] = [
    (lambda: synthetic(mechanism="mwem"), f"mechanism: 'mwem' is not valid: {MECHANISM}"),
    (
        lambda: synthetic(mechanism=dp.MWEM),
        f"mechanism: 'the class MWEM' is not valid: {MECHANISM}",
    ),
    (
        lambda: synthetic(mechanism=dp.CountSketch()),
        f"mechanism: 'a CountSketch' is not valid: {MECHANISM}",
    ),
    (
        lambda: synthetic(guarantee=dp.MWEM(), mechanism=PROMISE),
        f"guarantee: 'a MWEM' is not valid: {A_GUARANTEE}",
    ),
    (
        lambda: synthetic(domain=WORKLOAD, workload=DOMAIN),
        f"domain: 'a Workload' is not valid: {A_DOMAIN}",
    ),
    (lambda: synthetic(domain={"age": 85}), f"domain: {{'age': 85}} is not valid: {A_DOMAIN}"),
    (
        lambda: synthetic(workload="marginals:1"),
        "workload: 'marginals:1' is not valid: must be a Workload or a LinearWorkload, such as"
        " dp.marginals(domain, ways=2) or dp.parse_linear_workload(SPEC, domain)",
    ),
    (lambda: synthetic(guarantee={"epsilon": 1}), A_GUARANTEE),
    (lambda: synthetic(guarantee={"epsilon": 1}, count_left_out=True), A_GUARANTEE),
    (lambda: synthetic(ledger_token="r1"), "must be a Token, such as Ledger.spend(...)"),
    (lambda: dp.ReleaseIntervals(wrong("age"), wrong(DOMAIN), PROMISE), A_DOMAIN),
    (lambda: dp.ReleaseIntervals(wrong({"age": 85}), "age", PROMISE), A_DOMAIN),
    (lambda: dp.ReleaseIntervals(DOMAIN, "age", wrong(1.0)), A_GUARANTEE),
    (
        lambda: sketch(plan="count_sketch"),
        "plan: 'count_sketch' is not valid: must be a SparsePlan",
    ),
    (lambda: sketch(plan=dp.CountSketch()), "such as dp.CountSketch().plan(...)"),
    (
        lambda: sketch(columns="email"),
        "columns: 'email' is not valid: must be a KeyColumns, such as",
    ),
    (lambda: dp.AnswerQueries(wrong(DOMAIN), ANY), "must be a PrivateMWPlan, such as dp.plan_priv"),
    (lambda: dp.AnswerSparseQueries(wrong({}), ANY, ANY), "must be a SparseMWPlan, such as dp.pla"),
    (
        lambda: dp.AnswerWorkload(wrong(QUERIES), []),
        "must be a WorkloadAnswersPlan or a TopQueriesPlan, such as dp.pl",
    ),
    (
        lambda: dp.ReleaseWindows(wrong("out"), "out", "0" * 32, "t", "arrival"),
        "must be a WindowTablesPlan or a WindowDatabasesPlan, such as dp.plan_window_tables(...)",
    ),
    (
        lambda: dp.begin_windows(
            wrong("out"), "out", event_time="t", arrival="arrival", replayable=True
        ),
        "must be a WindowTablesPlan",
    ),
    (
        lambda: dp.WriteRelease(wrong(7)),
        "output: 7 is not valid: must be a directory, as a path or",
    ),
    (lambda: dp.WriteAnswers("out", wrong(WORKLOAD)), "must be an AnswersPlan, such as dp.plan_pr"),
    (
        lambda: dp.ReadRecords(wrong(7)),
        "input: 7 is not valid: must be a path or a glob, as a string",
    ),
]
PLANS: list[Case] = [
    (lambda: dp.MWEM().plan(wrong("d"), WORKLOAD, PROMISE, "noisy"), A_DOMAIN),
    (lambda: dp.Gaussian().plan(DOMAIN, wrong("w"), PROMISE, "noisy"), A_WORKLOAD),
    (lambda: dp.Laplace().plan(DOMAIN, WORKLOAD, wrong({}), "noisy"), A_GUARANTEE),
    (lambda: dp.SmallDB(size=3).plan(DOMAIN, wrong({}), PROMISE, "noisy"), "must be a Workload or"),
    (lambda: dp.CountSketch().plan(wrong({}), max_sparsity=9), A_GUARANTEE),
    (lambda: dp.plan_private_mw(wrong({}), PROMISE, "noisy", num_questions=3), A_DOMAIN),
    (lambda: dp.plan_private_mw(DOMAIN, wrong({}), "noisy", num_questions=3), A_GUARANTEE),
    (
        lambda: dp.plan_sparse_mw(wrong({}), "noisy", num_questions=3, max_sparsity=2),
        A_GUARANTEE,
    ),
    (lambda: dp.plan_workload_answers(wrong(WORKLOAD), PROMISE, "noisy"), "a LinearWorkload, such"),
    (lambda: dp.plan_workload_answers(QUERIES, wrong({}), "noisy"), A_GUARANTEE),
    (lambda: dp.plan_window_tables(wrong("marginals:1"), HORIZON, UNIT, 1.0, 0), A_WORKLOAD),
    (lambda: dp.plan_window_tables(WORKLOAD, wrong(UNIT), wrong(HORIZON), 1.0, 0), "a Horizon, su"),
    (lambda: dp.plan_window_tables(WORKLOAD, HORIZON, wrong({}), 1.0, 0), "a WindowUnit, such as"),
    (lambda: dp.plan_window_databases(wrong("mwem"), WORKLOAD, HORIZON, UNIT, 1, 0), MECHANISM),
    (lambda: dp.plan_window_databases(dp.MWEM(), wrong("w"), HORIZON, UNIT, 1, 0), A_WORKLOAD),
    (lambda: dp.plan_sparse_release(wrong({}), KEYS, max_sparsity=3, max_size=2**20), A_GUARANTEE),
    (
        lambda: dp.plan_sparse_release(PROMISE, wrong({}), max_sparsity=3, max_size=2**20),
        "a KeyProfile, such as dp.KeyProfile(...)",
    ),
    (lambda: dp.PlanningJob(wrong("marginals:1"), PROMISE, 9, False), "must be a Workload or a Li"),
    (lambda: dp.PlanningJob(WORKLOAD, wrong({}), 9, False), A_GUARANTEE),
    (lambda: dp.SparsePlanningJob(wrong(KEYS), wrong(PROMISE), 3), A_GUARANTEE),
    (lambda: dp.SparsePlanningJob(PROMISE, wrong({}), 3), "must be a KeyProfile, such as"),
    (lambda: dp.rank_mechanisms(wrong(WORKLOAD)), "must be a PlanningJob, such as dp.PlanningJob("),
    (lambda: dp.rank_sparse_mechanisms(wrong({})), "must be a SparsePlanningJob, such as"),
    (lambda: dp.draw_workload_answers(wrong("p"), ANY, ANY), "must be a WorkloadAnswersPlan, such"),
    (lambda: dp.release_sparse(wrong("p"), ANY, ANY), "must be a SparsePlan, such as"),
]
OTHERS: list[Case] = [
    (lambda: dp.marginals(wrong({"age": 85}), ways=1), A_DOMAIN),
    (lambda: dp.Workload(wrong({"age": 85}), (("age",),)), A_DOMAIN),
    (lambda: dp.parse_workload(wrong(DOMAIN), wrong("marginals:1")), A_DOMAIN),
    (
        lambda: dp.parse_workload(wrong(["age"]), DOMAIN),
        "workload: ['age'] is not valid: must be a s",
    ),
    (lambda: dp.parse_linear_workload("marginals:1", wrong({})), A_DOMAIN),
    (
        lambda: dp.parse_linear_workload(wrong(3), DOMAIN),
        "workload: 3 is not valid: must be a string",
    ),
    (lambda: dp.LinearWorkload(wrong({}), ()), A_DOMAIN),
    (lambda: dp.LinearQueries(wrong({})), A_DOMAIN),
    (
        lambda: dp.read_domain(wrong(7)),
        "domain: 7 is not valid: must be a path, or JSON as a string",
    ),
    (lambda: dp.read_release(wrong(7)), "7 is not valid: must be a directory, as a path or a URL"),
    (
        lambda: dp.write_release(wrong("out"), wrong(WORKLOAD)),
        "release: 'out' is not valid: must be ",
    ),
    (
        lambda: dp.Ledger(wrong(7)),
        "ledger: 7 is not valid: must be a sqlite file or a URL, as a string",
    ),
]


@pytest.mark.parametrize(("call", "told"), [*TRANSFORMS, *PLANS, *OTHERS])
def test_rejects_objects_of_other_classes_in_one_line(call, told):
    line = refusal(call)
    assert re.fullmatch(r"\w+: [^\n]+ is not valid: must be [^\n]+", line)
    assert told in line


class Own:
    """A third-party mechanism, which need not inherit from our class."""

    name, answers_linear_queries = "own", False
    plan, release = dp.MWEM().plan, dp.MWEM().release


def test_accepts_valid_arguments():
    synthetic()
    synthetic(mechanism=Own())
    sketch()
    dp.ReleaseIntervals(DOMAIN, "age", PROMISE)
    assert TABLES.horizon == HORIZON
