"""Every flag of every program does something: leaving it out changes what the program does.

The table of flags is the file that ``beam-dp`` reads (``beam_dp/flags/program_flags.json``); a flag
of it without a case fails. What a flag changes is looked at in the cheapest place that shows it.
"""

import contextlib
import dataclasses
import glob
import io
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from jobs import everything_under, interval_flags, job_flags
from program_jobs import (
    CHOICE,
    JOBS,
    Flags,
    answers,
    discovering,
    keys,
    main_of,
    named,
    release_in,
    shortened,
    sparse_answers,
    texts,
    windows,
)

from beam_dp.flags.command_line import PROGRAMS, flags_of_program, import_program
from beam_dp.privacy.ledger.ledger import Ledger
from pipelines import program, release_windows

Base = Callable[[pathlib.Path], Flags]
Look = Callable[[str, pathlib.Path, Flags], Any]


# --- where to look


def printed(name: str, folder: pathlib.Path, flags: Flags, *more: str) -> tuple[int, str]:
    """The exit code, and everything that is printed, but names that are drawn and times."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main_of(name)([*texts(flags), *more])
    text = re.sub(r"[0-9a-f]{32}|\[ *[\d.]+ s\]", "", out.getvalue())
    return code, text.replace(str(folder), "FOLDER")


def card(name: str, folder: pathlib.Path, flags: Flags) -> Any:
    """What is promised before anything is read, as JSON."""
    return preview(name, folder, flags, "--validate_only", "--json")


def page(name: str, folder: pathlib.Path, flags: Flags) -> Any:
    """The same for people."""
    return preview(name, folder, flags, "--validate_only")


def preview(name: str, folder: pathlib.Path, flags: Flags, *more: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "build", lambda *_: None)  # nobody looks at the pipeline
        patch.setenv("COLUMNS", "200")
        return printed(name, folder, flags, *more)


def built(name: str, folder: pathlib.Path, flags: Flags) -> Any:
    """The same as JSON, once the pipeline is built, too."""
    return printed(name, folder, flags, "--validate_only", "--json")


def started(name: str, folder: pathlib.Path, flags: Flags) -> Any:
    """Whether a job runs."""
    found: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (program, release_windows):
            patch.setattr(module, "run_pipeline", lambda *given: bool(found.append(given)))
        code, _ = printed(name, folder, flags)
    return code if found == [] else 0, len(found)


def job(name: str, folder: pathlib.Path, flags: Flags) -> Any:
    """What Beam is told, and how the source of records is made."""
    found = import_program(name).parse_arguments(shortened(texts(flags)))
    return 0, found.beam_flags, getattr(found, "read", None)


def run(name: str, folder: pathlib.Path, flags: Flags) -> Any:
    """What is said of the release, its card without its checksums, and the names of all files."""
    code, text = printed(name, folder, flags)
    said = re.findall(r"^(?:warning: --?expect.*|warning: the noisy.*|[A-Z].*)$", text, re.M)
    names = [re.sub("[0-9a-f]{32}", "", each) for each in everything_under(folder)]
    cards = [json.loads(path.read_text()) for path in folder.glob("out/card.json")]
    stated = [{key: each.get(key) for key in ("parameters", "list_keys")} for each in cards]
    return code, [re.sub(r"\d", "", each) for each in said], names, stated


def job_of_answers(name: str, folder: pathlib.Path, flags: Flags) -> Any:
    """What the program reads."""
    return 0, import_program(name).parse_arguments(shortened(texts(flags))).columns


# --- the cases


@dataclasses.dataclass(frozen=True)
class Case:
    """A value of a flag, and the other flags of a run that is valid with it."""

    value: str
    look: Look = card
    others: Flags = dataclasses.field(default_factory=dict)
    base: Base | None = None


BASES: dict[str, Base] = {
    **{job.program: job.flags for job in JOBS.values()},
    "answer_queries": answers,
    "release_intervals": lambda folder: named(interval_flags(folder)),
    "release_projection": keys,
    "release_windows": windows,
    "release_synthetic_database": lambda folder: named(job_flags(folder)),
}
UNIT: Flags = {"privacy_unit": "household", "max_records_per_unit": "2"}
OWNERS: Flags = {"privacy_unit": "owner", "max_records_per_unit": "2"}
PERSONS: Flags = {
    "privacy_unit": "person",
    "max_records_per_unit": "1",
    "max_windows_per_unit": "1",
    "protected_windows": "2",
}
PAID: Flags = {"ledger": "FOLDER/ledger.sqlite", "dataset_id": "people"}
STREAM: Flags = {"replay": None, "runner": "portable", "job_endpoint": "embed"}
MANY_WINDOWS: Flags = {
    **PERSONS,
    "strategy": "best",
    "num_windows": "48",
    "protected_windows": "48",
    "max_windows_per_unit": "3",
}
SHAPE: Flags = {"num_records": "2000", "num_keys": "50", "largest_count": "40"}


def without_extension(base: Base) -> Base:
    """The file's name does not say what its format is."""

    def flags(folder: pathlib.Path) -> Flags:
        found = base(folder)
        name = "sample" if "sample" in found else "input"
        (path,) = map(pathlib.Path, sorted(glob.glob(str(found[name])))[:1])
        path.rename(folder / "data")
        return {**found, name: str(folder / "data")}

    return flags


def common(name: str) -> dict[str, Case]:
    """The cases of flags that programs share."""
    unit = {"release_windows": PERSONS, "release_projection": OWNERS}.get(name, UNIT)
    return {
        "input_format": Case(
            "csv" if name == "check_domain" else "parquet",
            printed if name == "check_domain" else built,
            base=without_extension(BASES[name]),
        ),
        "allow_large_delta": Case("", others={"delta": "1e-4"}),
        "max_records_per_unit": Case(str(unit["max_records_per_unit"]), others=unit),
        "calibration": Case("textbook", others={"delta": "0", "num_records": "500"}),
        "ledger": Case(str(PAID["ledger"]), others=PAID),
        "dataset_id": Case("people", others=PAID),
        "purpose": Case("the monthly report", page, others=PAID),
        "who": Case("Zoë", page, others=PAID),
        "validate_only": Case("", started),
        "json": Case("", preview, others={"validate_only": ""}),
        "key_type": Case("integer"),
        "count_left_out": Case(""),
        "expect_records": Case("90210457", run),
    }


def synthetic_release(folder: pathlib.Path) -> str:
    """A release of the same domain."""
    out = folder / "earlier"
    assert main_of("release_synthetic_database")(job_flags(folder, output=str(out))) == 0
    return str(out)


def starting(base: Base) -> Base:
    def flags(folder: pathlib.Path) -> Flags:
        synthetic_release(folder)
        return base(folder)

    return flags


def saved_run(folder: pathlib.Path) -> Flags:
    flags = answers(folder, num_questions="5")
    first = {"output": str(folder / "first"), "state": str(folder / "state")}
    assert main_of("answer_queries")(texts({**flags, **first})) == 0
    return flags


def template(folder: pathlib.Path) -> Flags:
    flags = BASES["run_yaml"](folder)
    release_in(folder, output="{{ output }}")
    return flags


SMALL_DB: Flags = {"mechanism": "small_db", "workload": "prefixes:age", "num_records": "500"}
TOP: Flags = {"mechanism": "top_queries", "top": "1"}
SPARSE_PROJECT: Flags = {"mechanism": "sparse_project", "size": "1024"}
OWN: dict[str, dict[str, Case]] = {
    "answer_queries": {
        "domain": Case("FOLDER/domain.json"),
        "key": Case("plane", base=sparse_answers),
        "key_type": Case("bytes", job_of_answers, base=sparse_answers),
        "mechanism": Case("laplace"),
        "num_questions": Case("9"),
        "failure_probability": Case("0.2"),
        "max_error": Case("0.5", others={"num_records": "500"}),
        "max_updates": Case("3"),
        "max_sparsity": Case("3", base=sparse_answers),
        "top": Case("1", others=TOP),
        "choice": Case("exponential", others=TOP),
        "start_from": Case("FOLDER/earlier", base=starting(answers)),
        "state": Case("FOLDER/state", run),
        "resume": Case("FOLDER/state", base=saved_run, others={"num_questions": None}),
    },
    "check_domain": {
        "limit": Case("1", printed),
        "json": Case("", printed),
    },
    "release_intervals": {"strategy": Case("tree")},
    "release_projection": {
        "weight": Case("seats", others={"max_weight": "3"}),
        "max_weight": Case("3", others={"weight": "seats"}),
        "mechanism": Case("hybrid", others={"size": "1024"}),
        "size": Case("1024"),
        "num_records": Case("2000", others={**SHAPE, "mechanism": "auto"}),
        "num_keys": Case("50", others={**SHAPE, "mechanism": "auto"}),
        "largest_count": Case("40", others={**SHAPE, "mechanism": "auto"}),
        "family": Case("dense", others=SPARSE_PROJECT),
        "calibration": Case("textbook", others={**SPARSE_PROJECT, "epsilon": "1"}),
        "num_rows": Case("5"),
        "noise": Case("gaussian"),
        "unit_norm": Case("2", others={"noise": "gaussian"}),
        "list_keys": Case("", others={"mechanism": "hybrid", "size": "1024"}),
        "histogram_share": Case("0.4", others={"mechanism": "hybrid", "size": "1024"}),
    },
    "release_windows": {
        "max_windows_per_unit": Case("1", others=PERSONS),
        "protected_windows": Case("2", others=PERSONS),
        "strategy": Case("levels", others={"block": "2"}),
        "questions": Case("one", others=MANY_WINDOWS),
        "block": Case("3", others={"strategy": "levels"}),
        "mechanism": Case("mwem"),
        "poll": Case("7s", job),
        "settle": Case("7s", job),
        "private_folder": Case("FOLDER/mine", run),
        "replay": Case("", built),
        "checkpointing_interval": Case("7000", job, others=STREAM),
        "savepoint_path": Case("/savepoints/1", job, others=STREAM),
    },
    "release_synthetic_database": {
        "most_records_per_unit": Case("20", others={**UNIT, **CHOICE}),
        "without_bin_sums": Case(""),
        "within_bins": Case("midpoint"),
        "records_format": Case("csv", run),
        "num_synthetic_records": Case("40"),
        "mechanism": Case("laplace"),
        "start_from": Case("FOLDER/earlier", base=starting(BASES["release_synthetic_database"])),
        "domain_share": Case("0.2", base=discovering),
        "num_rounds": Case("2"),
        "max_unit_cost": Case("planned", others=UNIT),
        "stop_below": Case(
            "0.9",
            others={
                "calibration": "textbook",
                "num_rounds": "3",
                "delta": "0",
                "num_records": "50000",
            },
        ),
        "size": Case("4", others=SMALL_DB),
        "max_error_fraction": Case("0.3", others=SMALL_DB),
        "vc_dimension": Case("2", others={**SMALL_DB, "size": "4"}),
        "sampler": Case("search", others={**SMALL_DB, "size": "3", "epsilon": "1"}),
    },
    "run_yaml": {"jinja_variables": Case('{"output": "FOLDER/out"}', run, base=template)},
}


def cases_of(name: str) -> dict[str, Case]:
    return {**common(name), **OWN.get(name, {})}


def optional(name: str) -> list[str]:
    return [flag.name for flag in flags_of_program(name) if not flag.required]


def is_dear(name: str, flag: str) -> bool:
    """Whether a case starts Beam, or tries all mechanisms."""
    case = cases_of(name)[flag]
    needs_release = flag in ("start_from", "resume")
    return case.look in (run, started) or needs_release or {*SHAPE} <= {*case.others}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_optional_flag_has_a_case(name):
    assert {*optional(name)} <= {*cases_of(name)}, "a flag without a case"
    assert {*OWN.get(name, {})} <= {*optional(name)}, "a case without a flag"


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        pytest.param(name, flag, marks=pytest.mark.job if is_dear(name, flag) else [])
        for name in PROGRAMS
        for flag in optional(name)
        if flag in cases_of(name)
    ],
)
def test_leaving_out_a_flag_changes_what_the_program_does(name, flag, tmp_path):
    case, seen = cases_of(name)[flag], []
    for is_given in (True, False):
        folder = tmp_path / str(is_given)
        folder.mkdir()
        given = {**(case.base or BASES[name])(folder), **case.others, flag: case.value}
        if PAID.items() <= given.items():
            ledger = Ledger(str(folder / "ledger.sqlite"))
            ledger.declare("people", 1e6, 1e-6, str(given["privacy_unit"]), "add_or_remove_one")
        if not is_given:
            del given[flag]
        filled = {
            each: value and value.replace("FOLDER", str(folder)) for each, value in given.items()
        }
        seen.append(case.look(name, folder, filled))
    assert seen[0][0] == 0, seen[0]  # it is valid
    assert seen[0] != seen[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_required_flags_are_refused_by_name_if_left_out(name, tmp_path):
    flags = BASES[name](tmp_path)
    for flag in flags_of_program(name):
        if flag.required:
            assert flag.name in flags
            rest = {each: value for each, value in flags.items() if each != flag.name}
            code, text = printed(name, tmp_path, rest)
            assert code == 2 and text.startswith(f"error: --{flag.name} is required"), text
