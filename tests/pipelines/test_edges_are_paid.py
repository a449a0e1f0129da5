"""Programs whose domain has edges from a release: refused unless the same budget pays for them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from jobs import DOMAIN, interval_flags, job_flags, refused_line, window_flags

import beam_dp as dp
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.loss import Loss
from beam_dp.yaml import ReleaseIntervals
from pipelines import (
    answer_queries,
    release_intervals,
    release_synthetic_database,
    release_windows,
)

DRAW = "0f" * 16
FROM_RELEASE = copy.deepcopy(DOMAIN)
FROM_RELEASE["attributes"][0]["edges_from"] = {"ledger_release": "visits/1", "draw_id": DRAW}
# Each program, and the flags of a valid job of it.
PROGRAMS: dict[str, tuple[Callable[[list[str]], int], Callable[..., list[str]]]] = {
    "synthetic": (release_synthetic_database.main, job_flags),
    "intervals": (release_intervals.main, interval_flags),
    "windows": (release_windows.main, window_flags),
    "answers": (answer_queries.main, job_flags),
}


def flags_of(program: str, folder: Path, ledger: Ledger | None, **flags: str) -> list[str]:
    paid = {} if ledger is None else {"ledger": ledger.name, "dataset_id": "visits"}
    own: dict[str, str | None] = {"privacy_unit": "record", "max_records_per_unit": None}
    if program == "answers":
        own |= {"workload": None, "queries": "intervals:age", "mechanism": "laplace"}
    only_age = {"attributes": FROM_RELEASE["attributes"][:1]}
    domain = {"domain": json.dumps(only_age)} if program == "windows" else {}
    argv = PROGRAMS[program][1](folder, **{**own, **domain, **paid, **flags})
    (folder / "domain.json").write_text(json.dumps(FROM_RELEASE), encoding="utf-8")
    return argv


def ledger_of(folder: Path, draw_id: str) -> Ledger:
    ledger = Ledger(str(folder / f"{draw_id[:4]}.sqlite"))
    ledger.declare("visits", 9000.0, 1e-9, "record", "add_or_remove_one")
    ledger.declare("others", 9000.0, 1e-9, "record", "add_or_remove_one")
    guarantee = Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
    ledger.mark_released(ledger.spend("visits", guarantee, Loss.pure(1.0), "tree"), draw_id)
    return ledger


@pytest.mark.job
@pytest.mark.parametrize("program", PROGRAMS)
def test_program_rejects_budget_that_did_not_pay_and_spends_nothing(tmp_path, capfd, program):
    ledger, other = ledger_of(tmp_path, DRAW), ledger_of(tmp_path, "1f" * 16)
    for argv, told in (
        (
            flags_of(program, tmp_path, None),
            "--ledger is required, the ledger of the earlier release",
        ),
        (
            flags_of(program, tmp_path, other),
            "must be the ledger of the earlier release: the edges of 'age' come from",
        ),
        (
            flags_of(program, tmp_path, ledger, dataset_id="others"),
            "--dataset_id: 'others' is not valid: must be 'visits'",
        ),
    ):
        refused_line(PROGRAMS[program][0], argv, capfd, told, folder=tmp_path)
    for each in (ledger, other):
        assert [len(each.entries(name)) for name in ("visits", "others")] == [1, 0]


@pytest.mark.job
@pytest.mark.parametrize("program", PROGRAMS)
def test_budget_that_paid_for_edges_may_pay_again(tmp_path, capfd, program):
    argv = flags_of(program, tmp_path, ledger_of(tmp_path, DRAW))
    assert PROGRAMS[program][0]([*argv, "--validate_only", "--json"]) == 0
    card = json.loads(capfd.readouterr().out)
    assert card["ledger"]["dataset_id"] == "visits"


def test_in_memory_release_must_use_the_ledger_and_dataset_of_its_edges(tmp_path):
    domain = dp.parse_domain({"attributes": FROM_RELEASE["attributes"][:1]})
    guarantee = dp.Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
    asked = {"age": np.array([20, 30])}, domain, dp.marginals(domain, ways=1), guarantee
    with pytest.raises(dp.InputError, match="ledger is required, the ledger of"):
        dp.release(pa.table(asked[0]), *asked[1:])
    ledger = ledger_of(tmp_path, DRAW)
    with pytest.raises(dp.InputError, match="dataset_id: 'others' is not valid: must be 'visits'"):
        dp.release(pa.table(asked[0]), *asked[1:], ledger=ledger, dataset_id="others")
    assert len(ledger.entries("others")) == 0


@pytest.mark.parametrize("kind", ["synthetic", "intervals"])
def test_transform_accepts_only_a_token_of_the_budget_that_paid(tmp_path, kind):
    domain = dp.parse_domain({"attributes": FROM_RELEASE["attributes"][:1]})
    guarantee = dp.Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
    ledger = ledger_of(tmp_path, DRAW)

    def made(token: Token | None, domain: dp.Domain = domain) -> object:
        if kind == "intervals":
            return dp.ReleaseIntervals(domain, "age", guarantee, "tree", token)
        workload = dp.marginals(domain, ways=1)
        return dp.ReleaseSyntheticDatabase(
            domain, workload, guarantee, dp.Laplace(), ledger_token=token
        )

    def paid(dataset_id: str) -> Token:
        mechanism = "intervals" if kind == "intervals" else "laplace"
        return ledger.spend(dataset_id, guarantee, Loss.pure(1.0), mechanism)

    source = "the edges of 'age' come from the release 'visits/1'"
    told = f"must be of 'visits', the budget of the earlier release: {source}"
    for token, given in ((None, "None"), (paid("others"), "'others'")):
        with pytest.raises(dp.InputError, match=f"^ledger_token: {given} is not valid: {told}"):
            made(token)
    made(paid("visits"))
    made(None, dp.parse_domain({"attributes": DOMAIN["attributes"][:1]}))


def test_beam_yaml_rejects_budget_that_did_not_pay_for_the_edges():
    config = {"epsilon": 1, "delta": 0, "neighboring": "add_or_remove_one",
              "privacy_unit": "record", "attribute": "age", "output": "out"}  # fmt: skip
    with pytest.raises(ValueError, match=r"^ledger is required, the ledger of"):
        ReleaseIntervals(**config, domain=FROM_RELEASE)
