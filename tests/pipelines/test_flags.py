"""Flags as they are parsed and refused, previews, and warnings of programs."""

import dataclasses
import errno
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.io.filesystems import FileSystems
from jobs import job_flags, people, refused_line
from noise_sources import NoNoise
from tiny import ADD, PURE, domain_of, promise, summary, workload_of

import beam_dp as dp
from beam_dp.domain.files import domain_from_json
from beam_dp.flags import shared
from beam_dp.flags.command_line import in_words_of_flags
from beam_dp.flags.flag import FlagError
from beam_dp.mechanisms.intervals import plan_intervals, release_intervals
from beam_dp.mechanisms.marginals.plan import Mechanism
from beam_dp.privacy.guarantee import PrivacyWarning
from beam_dp.releases.release import Release
from pipelines import flags, program
from pipelines.program import warning_of_number
from pipelines.release_synthetic_database import main

REQUIRED = [
    f"--{flag.name}={flag.choices[0] if flag.choices else '1'}"
    for flag in shared.COMMON
    if flag.required
]


def parse(*argv: str) -> tuple[dict[str, str], list[str]]:
    return flags.parse(shared.COMMON, argv, program="program", description="A program.")


def refusal(*argv: str) -> str:
    with pytest.raises(FlagError) as caught:
        parse(*argv)
    return in_words_of_flags(caught.value, shared.COMMON)


def test_own_flags_are_texts_and_others_are_passed_on():
    texts, rest = parse(*REQUIRED, "--runner", "DirectRunner", "--direct_num_workers=2")
    assert texts["epsilon"] == "1"
    assert texts["calibration"] == "tight"
    assert "validate_only" not in texts
    assert rest == ["--runner", "DirectRunner", "--direct_num_workers=2"]
    rest = [flag for flag in REQUIRED if not flag.startswith("--epsilon")]
    for text in ("-1", "-1e-9", "-.5", "-1E+3"):
        assert parse(*rest, "--epsilon", text)[0]["epsilon"] == text
    assert "-- is not a flag" in refusal(*REQUIRED, "--", "--nonsense")
    with pytest.raises(dp.InputError) as caught:
        dp.Guarantee(1.0, 1e-4, "add_or_remove_one", "record", 1)  # type: ignore[arg-type]
    assert in_words_of_flags(caught.value, shared.COMMON) == (
        "--delta: 0.0001 is not valid: must be at most 1e-05, unless --allow_large_delta is given"
    )


def test_domain_file_is_UTF8_text(tmp_path, capfd):
    argv = job_flags(tmp_path)
    (tmp_path / "domain.json").write_bytes(b'{"age": \xff}')
    refused_line(
        main,
        argv,
        capfd,
        r"--domain: '.*domain\.json' is not valid: must be UTF-8",
        folder=tmp_path,
    )
    argv = [*job_flags(tmp_path), "--validate_only"]
    path = tmp_path / "domain.json"
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert main(argv) == 0, capfd.readouterr().err


# No other code writes this number.
EXPECTED = 90_210_457
TRACES = (b"90210457", b"90,210,457", EXPECTED.to_bytes(4, "little"), EXPECTED.to_bytes(4, "big"))


def released(mechanism: Mechanism, total: int, num_records: Any = "noisy") -> dp.SyntheticDatabase:
    """Without noise; the card states it all the same."""
    domain = domain_of(2, 3)
    guarantee = promise(ADD, PURE, 1.0)
    plan = mechanism.plan(domain, workload_of(domain, 2), guarantee, num_records)
    counts = np.zeros(6, np.int64)
    counts[1] = total
    return mechanism.release(plan, summary(plan, counts), NoNoise())


def released_intervals(strategy: str, total: int) -> dp.IntervalRelease:
    plan = plan_intervals(8, promise(ADD, PURE, 1.0), strategy)
    counts = np.zeros(8, np.int64)
    counts[3] = total
    return release_intervals(plan, counts, NoNoise())


MECHANISMS: list[Mechanism] = [
    *(dp.MWEM(), dp.MWEM(num_rounds=2), dp.MWEM(num_rounds="annealed")),
    *(dp.Laplace(), dp.SmallDB(size=3)),
]
STRATEGIES = ("windows", "textbook_tree", "histogram")
RELEASED: dict[str, Callable[[int], Release]] = {
    **{repr(each): functools.partial(released, each) for each in MECHANISMS},
    **{each: functools.partial(released_intervals, each) for each in STRATEGIES},
}


@pytest.mark.parametrize("name", RELEASED)
def test_warns_if_number_is_near_0_or_far_from_the_expected(name):
    none, many = map(RELEASED[name], (0, 10_000))
    found = many.noisy_number()
    assert found is not None
    number, error = found
    assert number == pytest.approx(10_000)
    assert 1 < error < 500
    near, far = math.ceil(10_000 - 2.9 * error), math.ceil(10_000 + 3.1 * error)
    assert warning_of_number(many, None) is None
    assert warning_of_number(many, near) is None
    assert "within 3 standard errors" in str(warning_of_number(none, None))
    warning = str(warning_of_number(many, far))
    assert f"is 10,000 (standard error {error:,.3g}): more than 3 standard errors" in warning
    assert f"below --expect_records {far:,}; many records may have been left out" in warning
    assert "\n" not in warning
    assert "check-domain" in warning and "--count_left_out" in warning


def test_warnings_suggest_what_may_be_wrong():
    warning = str(warning_of_number(released(dp.MWEM(), 10_000), 500))
    assert "more than 3 standard errors above --expect_records 500;" in warning
    assert "twice" in warning and "left out" not in warning
    warning = str(warning_of_number(released(dp.MWEM(), 2), 1))
    assert "within 3 standard errors of 0" in warning and "twice" not in warning
    attribute = {"name": "a", "type": "integer", "min": 0, "max": 7, "nullable": True}
    (nullable,) = domain_from_json({"attributes": [attribute]}).attributes
    release = released_intervals("windows", 0)
    assert "counted in no interval" not in str(warning_of_number(release, 9000))
    release = dataclasses.replace(release, attribute=nullable)
    assert "counted in no interval: other or null" in str(warning_of_number(release, 9000))


@pytest.mark.parametrize("mechanism", [dp.MWEM(), dp.Laplace(), dp.SmallDB(size=3)], ids=repr)
def test_no_warning_if_the_number_is_public(mechanism):
    release = released(mechanism, 0, 5000)
    assert release.noisy_number() is None
    assert warning_of_number(release, 4) is None


class Unpicklable(int):
    """Fails any job that takes it along."""

    def __reduce__(self) -> Any:
        raise AssertionError("the expected number left the program")


def everything_outside(num_records: int = 300) -> pa.Table:
    """All records fail at ``smokes``, and some already at ``sex``."""
    table = people(num_records)
    smokes = pa.array(["yes" if i % 2 else "no" for i in range(num_records)])
    sex = pa.array(["Female" if i % 3 else "?" for i in range(num_records)])
    return table.set_column(2, "sex", sex).set_column(3, "smokes", smokes)


@pytest.mark.job
def test_expected_number_is_shown_only_in_the_terminal(tmp_path, monkeypatch, capfd):
    url = str(tmp_path / "ledger.sqlite")
    dp.Ledger(url).declare("visits", 10, 1e-9, "record", "add_or_remove_one")
    read = program.read_expected
    monkeypatch.setattr(program, "read_expected", lambda *given: Unpicklable(read(*given) or 0))
    seen: list[bytes] = []
    run = beam.Pipeline.run

    def watched(self: beam.Pipeline, *arguments: Any, **named: Any) -> Any:
        seen.append(self.to_runner_api().SerializeToString())
        seen.append(repr(self.options.get_all_options()).encode())
        seen.append(repr(self.options).encode())
        return run(self, *arguments, **named)

    monkeypatch.setattr(beam.Pipeline, "run", watched)
    flags = job_flags(
        tmp_path,
        everything_outside(),
        epsilon="10",
        workload="marginals:1",
        ledger=url,
        dataset_id="visits",
        expect_records=str(EXPECTED),
    )
    assert main([*flags, "--count_left_out"]) == 0
    out, err = capfd.readouterr()
    (line,) = [line for line in err.splitlines() if "warning" in line]
    assert re.match(r"warning: the noisy number of records is \d+ \(standard .* of 0", line)
    assert f"more than 3 standard errors below --expect_records {EXPECTED:,}" in line
    assert "beam-dp describe" in line
    others = err.replace(line, "").encode()
    assert len(seen) == 3
    for data in (*seen, out.encode(), others):
        assert not [trace for trace in TRACES if trace in data]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"card.json", "ledger.sqlite"} <= {path.name for path in files}
    for path in files:
        assert not [trace for trace in TRACES if trace in path.read_bytes()], path

    release = dp.read_release(str(tmp_path / "out"))
    assert isinstance(release, dp.SyntheticDatabase) and release.left_out is not None
    left_out = release.left_out
    assert abs(left_out.counts["sex"] - 100) <= 100  # 50 times the scale: never by chance
    assert abs(left_out.counts["smokes"] - 200) <= 100
    assert abs(left_out.counts["age"]) <= 100


DOMAIN = dp.read_domain({"age": 3})
WORKLOAD = dp.marginals(DOMAIN, ways=1)
TOLD = "epsilon 11 protects little"


def promise_of(epsilon: float, unit: str = "record") -> dp.Guarantee:
    return dp.Guarantee(epsilon, 0.0, "add_or_remove_one", unit, 1)


@pytest.mark.filterwarnings("error::beam_dp.privacy.guarantee.PrivacyWarning")
def test_release_in_memory_warns_about_a_large_epsilon():
    table = pa.table({"age": [1]})
    dp.release(table, DOMAIN, WORKLOAD, promise_of(10.0))
    with pytest.warns(PrivacyWarning, match=TOLD):
        dp.release(table, DOMAIN, WORKLOAD, promise_of(11.0))


def test_frame_with_a_person_column_warns_if_the_unit_is_the_record():
    table = pa.table({"age": [1], "patient_id": ["ann"]})
    with pytest.warns(PrivacyWarning, match="the column 'patient_id' seems to name people"):
        dp.release(table, DOMAIN, WORKLOAD, promise_of(1.0))


@pytest.mark.filterwarnings("error::beam_dp.privacy.guarantee.PrivacyWarning")
def test_no_warning_if_the_person_is_the_unit_or_the_column_is_released():
    table = pa.table({"age": [1], "patient_id": ["ann"], "visit_id": [7]})
    dp.release(table, DOMAIN, WORKLOAD, promise_of(1.0, "patient_id"))
    member = dp.read_domain({"member": 2})
    dp.release(pa.table({"member": [1]}), member, dp.marginals(member, ways=1), promise_of(1.0))


def test_names_the_reason_why_a_file_cannot_be_read(tmp_path, monkeypatch):
    def fails(path: str, **_: Any) -> Any:
        if path.startswith("nowhere://"):
            return open_before(path)
        raise PermissionError(errno.EACCES, "Permission denied", path)

    (tmp_path / "a.csv").write_text("a\n")
    open_before = FileSystems.open
    monkeypatch.setattr(FileSystems, "open", fails)
    for path in ("hdfs://a/b", "nowhere://a/b"):
        with pytest.raises(dp.InputError, match=r"Permission denied|pip install apache-beam\["):
            flags.read_text("domain", path)
    with pytest.raises(dp.InputError, match="must be a readable csv file: Permission denied"):
        dp.ReadRecords(str(tmp_path / "a.csv"))
