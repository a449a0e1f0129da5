"""Every program as small jobs, whose flags the contracts of programs change.

A job's flags are a dictionary, so that contracts can leave one out; an empty text is a switch.
"""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import yaml
from jobs import (
    DOMAIN,
    answer_flags,
    interval_flags,
    job_flags,
    key_flags,
    people,
    window_flags,
    write_table,
)
from open_domains import DOMAIN as OPEN_DOMAIN, UNTYPED, residents

from beam_dp.flags.command_line import PROGRAMS, flags_of_program, import_program
from beam_dp.privacy.ledger.ledger import Ledger

Flags = dict[str, str | None]
SWITCHES = {
    f"--{flag.name}" for name in PROGRAMS for flag in flags_of_program(name) if flag.is_switch
}


def shortened(argv: Sequence[str]) -> list[str]:
    """Switches as they are typed, without an empty text."""
    short = [(each.removesuffix("="), each) for each in argv]
    return [name if name in SWITCHES else each for name, each in short]


def main_of(program: str) -> Callable[[Sequence[str]], int]:
    """The main function of a program, to which an empty text is a switch."""
    main = import_program(program).main
    return lambda argv: int(main(shortened(argv)))


def words_of(program: str) -> Callable[[Sequence[str]], list[str]]:
    """What follows `beam-dp` to run a program, to which an empty text is a switch."""
    return lambda argv: [program.replace("_", "-"), *shortened(argv)]


@dataclasses.dataclass(frozen=True)
class Job:
    """A small job.

    Args:
        program: its program.
        flags: the flags in a folder, whose files are written; the output is the folder's ``out``.
        releases: where in the output the releases are that its payment pays for.
    """

    program: str
    flags: Callable[[pathlib.Path], Flags]
    releases: tuple[str, ...] = ("",)

    @property
    def paid_first(self) -> str:
        """Where the release is that the ledger's entry names."""
        places = [place for place in self.releases if place.endswith("domain")]
        return (*places, *self.releases)[0]

    @property
    def main(self) -> Callable[[Sequence[str]], int]:
        return main_of(self.program)

    def paid_flags(
        self, folder: pathlib.Path, epsilon: float | None = None
    ) -> tuple[Ledger, Flags]:
        """A new ledger and the flags with it; its budget is exactly what the job promises."""
        flags = self.flags(folder)
        given = flags if self.program != "run_yaml" else release_in(folder)
        ledger = Ledger(str(folder / "ledger.sqlite"))
        unit = str(given["privacy_unit"])
        if "protected_windows" in given:
            windows = (
                f"in any {given['protected_windows']} consecutive windows of {given['window']}"
            )
            unit = f"{unit} {windows}"
        own = float(str(given["epsilon"])), float(str(given["delta"]))
        budget = own if epsilon is None else (epsilon, 1e-6)
        ledger.declare("people", *budget, unit, "add_or_remove_one")
        paid = {"ledger": ledger.name, "dataset_id": "people"}
        if self.program == "run_yaml":
            release_in(folder, **paid)
            return ledger, flags
        return ledger, {**flags, **paid}


def texts(flags: Mapping[str, str | None]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items() if value is not None]


def named(argv: Sequence[str]) -> Flags:
    """Flags by their names."""
    parts = (each.removeprefix("--").partition("=") for each in argv)
    return {name: value for name, _, value in parts}


QUERIES = (
    '{"id": "women", "conjunction": {"sex": "Female"}}',
    '{"conjunction": {"sex": "Femal"}}',
    '{"interval": {"attribute": "age", "low": 20, "high": 60}}',
)
VISITS = 3  # of each person of the jobs that choose the records per unit


OUTSIDE = 100


def partly_outside(column: str, value: object) -> pa.Table:
    """A table of people, of whom some have a value outside the domain."""
    table = people()
    place = table.column_names.index(column)
    values = [
        value if number < OUTSIDE else each for number, each in enumerate(table[column].to_pylist())
    ]
    return table.set_column(place, column, [values])


def synthetic(folder: pathlib.Path) -> Flags:
    return {**named(job_flags(folder, partly_outside("sex", "?"))), "count_left_out": ""}


def small_db(folder: pathlib.Path) -> Flags:
    kept = {"mechanism": "small_db", "workload": "prefixes:age", "size": "4", "delta": "0"}
    return named(job_flags(folder, people(60), **kept))


def intervals(folder: pathlib.Path) -> Flags:
    return {**named(interval_flags(folder, partly_outside("age", -5))), "count_left_out": ""}


def discovering(
    folder: pathlib.Path, visits: int = 1, domain: Any = OPEN_DOMAIN, **changes: str | None
) -> Flags:
    """A domain that is found first; each person has some records, and one has many."""
    table = residents(1500 if visits == 1 else 800 * visits)
    if visits > 1:
        persons = [max(place // visits, 40) for place in range(len(table))]
        table = table.set_column(0, "person", [persons])
    own = {"privacy_unit": "person", "max_records_per_unit": "1", "epsilon": "20"}
    return named(job_flags(folder, table, domain=domain, **{**own, **changes}))


CHOICE = {"max_records_per_unit": "discover", "most_records_per_unit": "20"}
CLOSED: dict[str, Any] = {
    "attributes": [
        {"name": "sex", "type": "categorical", "values": ["F", "M"]},
        {"name": "income", "type": "numeric", "edges": [0, 1024, 2048, 4096]},
    ]
}


def choosing(folder: pathlib.Path) -> Flags:
    flags = discovering(folder, VISITS, **CHOICE)
    (folder / "domain.json").write_text(json.dumps(CLOSED), encoding="utf-8")
    return flags


# Fields of valid transforms of Beam YAML, but for the output.
PROMISE: dict[str, Any] = {
    "epsilon": 1,
    "delta": 0,
    "neighboring": "add_or_remove_one",
    "privacy_unit": "household",
    "max_records_per_unit": 2,
}
RELEASE = {**PROMISE, "domain": DOMAIN, "workload": "marginals:2", "num_records": "noisy"}
WINDOWS: dict[str, Any] = {
    **PROMISE,
    "domain": {"age": 4},
    "workload": "marginals:1",
    "start": "2026-09-21T14:00Z",
    "window": "1h",
    "num_windows": 3,
    "grace": "0s",
    "event_time": "t",
    "arrival": "t",
    "max_windows_per_unit": 1,
    "protected_windows": 3,
}


def yaml_file(folder: pathlib.Path) -> Flags:
    """A pipeline that releases intervals; what a command line says of other programs is in it."""
    fields = {
        **{name: value for name, value in intervals(folder).items() if value is not None},
        "count_left_out": True,
        "domain": DOMAIN,
        "max_records_per_unit": 2,
        "epsilon": 1000,
        "delta": 1e-9,
    }
    source = {"type": "ReadRecords", "config": {"input": fields.pop("input")}}
    release = {"type": "ReleaseIntervals", "config": fields}
    spec = {"pipeline": {"type": "chain", "transforms": [source, release]}}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    return {"yaml_pipeline_file": str(folder / "pipeline.yaml")}


def release_in(folder: pathlib.Path, **changes: Any) -> dict[str, Any]:
    """What the YAML file of a folder says of the release, with some fields changed."""
    path = folder / "pipeline.yaml"
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    config: dict[str, Any] = spec["pipeline"]["transforms"][1]["config"]
    config |= changes
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    return config


def checked(folder: pathlib.Path) -> Flags:
    (folder / "domain.json").write_text(json.dumps(DOMAIN), encoding="utf-8")
    return {
        "domain": str(folder / "domain.json"),
        "sample": write_table(folder, people(40), "csv"),
    }


def windows(folder: pathlib.Path) -> Flags:
    return named(window_flags(folder))


def windows_of_persons(folder: pathlib.Path) -> Flags:
    units = {"privacy_unit": "person", "max_records_per_unit": "1", "max_windows_per_unit": "1"}
    return named(window_flags(folder, **units, protected_windows="3"))


def keys(folder: pathlib.Path, **changes: str | None) -> Flags:
    return named(key_flags(folder, **changes))


def answers(folder: pathlib.Path, **changes: str | None) -> Flags:
    return named(answer_flags(folder, QUERIES, **changes))


def sparse_answers(folder: pathlib.Path) -> Flags:
    path = folder / "queries.jsonl"
    path.write_text('{"id": "one", "sparse": {"plane 3": 1.0}}\n', encoding="utf-8")
    return keys(folder, epsilon="10", mechanism="sparse_mw", queries=str(path), num_records="noisy")


JOBS = {
    "synthetic database": Job("release_synthetic_database", synthetic),
    "small_db": Job("release_synthetic_database", small_db),
    "domain, then records": Job("release_synthetic_database", discovering, ("domain", "")),
    "records per unit, then records": Job(
        "release_synthetic_database", choosing, ("records_per_unit", "")
    ),
    "records per unit, domain, records": Job(
        "release_synthetic_database",
        lambda folder: discovering(folder, VISITS, **CHOICE),
        ("domain/records_per_unit", "domain", ""),
    ),
    "types, domain, records": Job(
        "release_synthetic_database",
        lambda folder: discovering(folder, domain=UNTYPED),
        ("domain/types", "domain", ""),
    ),
    "records per unit, types, domain, records": Job(
        "release_synthetic_database",
        lambda folder: discovering(folder, VISITS, UNTYPED, **CHOICE),
        ("domain/types/records_per_unit", "domain/types", "domain", ""),
    ),
    "intervals": Job("release_intervals", intervals),
    "projection": Job("release_projection", lambda folder: keys(folder, size="1024")),
    "hybrid sketch": Job(
        "release_projection",
        lambda folder: keys(folder, size="1024", mechanism="hybrid", epsilon="1"),
    ),
    "windows": Job(
        "release_windows", windows, ("windows/000000", "windows/000001", "windows/000002")
    ),
    "windows of persons": Job(
        "release_windows",
        windows_of_persons,
        ("windows/000000", "windows/000001", "windows/000002"),
    ),
    "answers, private_mw": Job("answer_queries", lambda folder: answers(folder, epsilon="10")),
    "answers, sparse_mw": Job("answer_queries", sparse_answers),
    "answers, laplace": Job("answer_queries", lambda folder: answers(folder, mechanism="laplace")),
    "answers, top_queries": Job(
        "answer_queries", lambda folder: answers(folder, mechanism="top_queries", top="1")
    ),
    "intervals, by a YAML file": Job("run_yaml", yaml_file),
    "check": Job("check_domain", checked),
}
# One job of each kind of plan, which makes one release.
ONE_OF_EACH = (
    "synthetic database",
    "projection",
    "intervals",
    "answers, private_mw",
    "answers, sparse_mw",
    "answers, laplace",
)
# The programs that release nothing.
CHECKS = ("check_domain",)
RELEASES = {name: job for name, job in JOBS.items() if job.program not in CHECKS}
