"""`beam-dp plan --target_error`: the least epsilon that keeps an error, and that it truly does."""

from __future__ import annotations

import json
import math
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plan_words import KINDS, TABLE, WINDOWS, argv

from beam_dp.cli.main import main
from beam_dp.planning.target import least_epsilon
from pipelines import release_windows


def planned(capsys: pytest.CaptureFixture[str], words: list[str]) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def key(option: dict) -> tuple:
    noise = option.get("parameters", {}).get("noise")
    return option.get("mechanism"), option.get("calibration"), noise, option.get("strategy")


def error_of(option: dict, asked: str) -> float:
    if "errors" in option:
        return max(option["errors"].values())
    if asked == "target_error":
        return math.inf if option["expected_error"] is None else option["expected_error"]
    return math.inf if option["bound"] is None else option["bound"]["max_error"]


SLOW = ("intervals", "conjunctions", "windows")


@pytest.mark.part
@pytest.mark.parametrize("asked", ["target_error", "target_bound"])
@pytest.mark.parametrize(
    "kind", ["marginals", *(pytest.param(each, marks=pytest.mark.part) for each in SLOW)]
)
def test_printed_epsilon_is_the_smallest_that_meets_the_error_target(capsys, kind, asked):
    if (kind, asked) == ("windows", "target_bound"):
        pytest.skip("no bound of windows is planned")
    check_least(capsys, kind, asked, "60")


@pytest.mark.part
def test_printed_epsilon_for_keys_is_the_smallest_that_meets_the_error_target(capsys):
    check_least(capsys, "keys", "target_error", "4000")


def check_least(capsys: pytest.CaptureFixture[str], kind: str, asked: str, error: str) -> None:
    found = planned(capsys, argv(KINDS[kind], **{asked: error}))["options"]
    epsilons = [option["epsilon"] for option in found]
    assert len(found) >= (1 if kind == "keys" else 2) and epsilons == sorted(epsilons)
    for option in {id(each): each for each in (found[0], found[-1])}.values():
        epsilon = option["epsilon"]
        # As it is printed, in at most four digits.
        again = planned(capsys, argv(KINDS[kind], epsilon=f"{epsilon:g}"))["options"]
        reached = next(each for each in again if key(each) == key(option))
        assert error_of(reached, asked) == error_of(option, asked) <= float(error)
        digits = f"{epsilon:.3e}".partition("e")
        less = f"{int(digits[0].replace('.', '')) - 1}e{int(digits[2]) - 3}"
        again = planned(capsys, argv(KINDS[kind], epsilon=less))["options"]
        missed = next(each for each in again if key(each) == key(option))
        assert error_of(missed, asked) > float(error)


@pytest.mark.parametrize("error", [1e-9, 0.3, 0.00012345, 7.0, 1.99999e6])
@pytest.mark.parametrize("power", [0.3, 1.0, 3.0])
def test_search_finds_smallest_epsilon_to_four_significant_digits(error, power):
    tried = []

    def plan(epsilon: float) -> float:
        tried.append(epsilon)
        return epsilon**-power

    found = least_epsilon(plan, lambda each: each, error)
    exact = error ** (-1 / power)
    if exact > 1e6:
        assert found.epsilon is None and found.error == 1e6**-power
        return
    assert found.epsilon is not None and found.epsilon == float(f"{found.epsilon:.3e}")
    assert found.error == found.epsilon**-power <= error
    assert max(exact, 1e-6) * (1 - 1e-12) <= found.epsilon <= max(exact, 1e-6) * 1.001
    assert len(tried) == len(set(tried)) < 40


def test_search_returns_none_for_unreachable_error_target():
    found = least_epsilon(lambda epsilon: 5 + 1 / epsilon, lambda each: each, 5.0)
    assert (found.epsilon, found.error) == (None, 5 + 1e-6)


def test_search_skips_refused_epsilons():
    """As of a histogram that does not fit once epsilon is large, or noise that is too large."""
    found = least_epsilon(
        lambda epsilon: epsilon, lambda each: 1 / each if 0.5 < each < 50 else math.inf, 0.2
    )
    assert found.epsilon == 5.0
    nothing = least_epsilon(lambda epsilon: epsilon, lambda each: math.inf, 0.2)
    assert nothing.epsilon is None and nothing.error == math.inf


def test_printed_least_error_is_reachable(capsys):
    assert main(argv(TABLE, target_bound="1e-6")) == 2
    _, _, told = capsys.readouterr().err.partition("must be at least ")
    floor, _, _ = told.partition(" records: ")
    assert planned(capsys, argv(TABLE, target_bound=floor))["options"]


def test_printed_command_has_least_epsilon(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    best = planned(capsys, argv(TABLE, target_error="60"))["options"][0]
    assert main(argv(TABLE, target_error="60")) == 0
    out = capsys.readouterr().out
    command = shlex.split(out.splitlines()[-1])
    assert command[command.index("--epsilon") + 1] == f"{best['epsilon']:g}"
    assert "is at most 60 records" in " ".join(out.split())


@pytest.mark.part
@pytest.mark.parametrize("error", ["60", "2.5", "300"])
def test_printed_windows_command_has_the_best_strategy_and_epsilon(tmp_path, capsys, error):
    pq.write_table(pa.table({"a": [1], "person_id": [2], "t": [3]}), tmp_path / "a.parquet")
    places = {"input": f"{tmp_path}/*.parquet", "event_time": "t", "output": f"{tmp_path}/out"}
    assert main(argv(WINDOWS, target_error=error, **places)) == 0
    command = shlex.split(capsys.readouterr().out.splitlines()[-1])
    job = release_windows.parse_arguments(command[2:])
    best = planned(capsys, argv(WINDOWS, target_error=error))["options"][0]
    assert job.plan.public["strategy"] == best["strategy"]
    assert job.plan.measurements[0].distribution == best["distribution"]
    assert job.horizon.block == best["block"] and job.plan.guarantee.epsilon == best["epsilon"]
