"""From the flags of `beam-dp plan` to a job, and from an option to its command line."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Mapping
from typing import Any

from beam_dp.cli.plan_flags import (
    FLAGS,
    OF_SPARSE,
)
from beam_dp.cli.programs import command_of
from beam_dp.domain import Domain
from beam_dp.domain.files import parse_domain
from beam_dp.errors import InputError
from beam_dp.flags.numbers import (
    integer,
    number,
)
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.ranking import Ranking
from beam_dp.privacy.guarantee import RECORD, Guarantee, Neighboring
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload


def job_of(texts: Mapping[str, str | None], switches: Mapping[str, bool]) -> PlanningJob:
    """Returns the job that flags describe; reads the domain and a file of queries, and no data.

    Args:
        texts: the text of each of ``FLAGS``; None where it was not given.
        switches: whether each of ``SWITCHES`` was.

    Raises:
        InputError: naming the flag, without its dashes.
    """
    for flag in OF_SPARSE:
        if texts[flag.name] is not None:
            raise InputError(flag.name, texts[flag.name], "must be given with --max_sparsity")
    for flag in FLAGS:
        if flag.required and texts[flag.name] is None:
            raise InputError(flag.name, None, f"must be given: {flag.help}")
    given = {name: text for name, text in texts.items() if text is not None}
    guarantee = read_guarantee(given, switches)
    domain = _read_domain(given["domain"])
    max_error = given.get("max_error")
    is_public = switches["num_records_is_public"]
    try:
        return PlanningJob(
            workload=read_workload(given["workload"], domain),
            guarantee=guarantee,
            num_records=_guess(given["num_records"]),
            num_records_is_public=is_public or guarantee.neighboring is Neighboring.REPLACE_ONE,
            failure_probability=number(
                "failure_probability", given.get("failure_probability", "0.05")
            ),
            max_error_fraction=None if max_error is None else number("max_error", max_error),
        )
    except InputError as error:
        if error.name == "max_error_fraction":
            raise InputError("max_error", error.value, error.condition) from None
        raise


def read_guarantee(given: Mapping[str, str], switches: Mapping[str, bool]) -> Guarantee:
    """Returns the guarantee that flags describe.

    Raises:
        InputError: naming the flag, without its dashes.
    """
    unit = given["privacy_unit"]
    if "max_records_per_unit" not in given and unit not in ("", RECORD):
        condition = f"must be given with --privacy_unit {unit}: how many records of one are kept"
        raise InputError("max_records_per_unit", None, condition)
    return Guarantee(
        epsilon=number("epsilon", given["epsilon"]),
        delta=number("delta", given["delta"]),
        neighboring=given["neighboring"],  # type: ignore[arg-type]  # its value is accepted
        privacy_unit=unit,
        max_records_per_unit=integer(
            "max_records_per_unit", given.get("max_records_per_unit", "1")
        ),
        allow_large_delta=switches["allow_large_delta"],
    )


def read_workload(spec: str, domain: Domain) -> Workload | LinearWorkload:
    """Returns marginals where a workload is of nothing else, else linear queries.

    Raises:
        InputError: if it is neither.
    """
    form, colon, _ = spec.partition(":")
    if colon and form == "marginals":
        return parse_workload(spec, domain)
    try:
        return parse_workload(spec, domain)
    except InputError:
        return parse_linear_workload(spec, domain)


def command_line(ranking: Ranking, option: Option, texts: Mapping[str, str | None]) -> str | None:
    """Returns what to type to run an option; None where no program runs it.

    Args:
        ranking: of the job.
        option: one of its options.
        texts: the text of each of ``FLAGS``.
    """
    if option.program is None or not option.is_feasible:
        return None
    job = ranking.job
    guarantee = job.guarantee
    flags: dict[str, str] = {
        "input": texts["input"] or "INPUT",
        "domain": texts["domain"] or "DOMAIN",
        "workload": texts["workload"] or "WORKLOAD",
        "epsilon": f"{guarantee.epsilon:.17g}",
        "delta": f"{guarantee.delta:.17g}",
        "neighboring": guarantee.neighboring.value,
        "privacy_unit": guarantee.privacy_unit,
        "max_records_per_unit": str(guarantee.max_records_per_unit),
        "num_records": str(job.given_num_records),
        "mechanism": option.mechanism,
        "calibration": option.calibration,
        **dict(option.parameters),
        "output": texts["output"] or "OUTPUT",
    }
    for name in ("epsilon", "delta"):
        flags[name] = texts[name] or flags[name]
    if option.program == "answer_queries":
        spec = flags.pop("workload")
        # Marginals have weights for a release only.
        is_weighted = isinstance(job.workload, Workload) and set(job.workload.weights) != {1.0}
        is_other = pathlib.Path(spec).is_file() and is_weighted
        flags["queries"] = "QUERIES" if is_other else spec
        flags["failure_probability"] = f"{job.failure_probability:g}"
    if option.program == "release_intervals":
        # All intervals are released, of any number of records.
        for name in ("workload", "num_records", "mechanism", "calibration"):
            del flags[name]
    words = [f"--{name} {shlex.quote(value)}" for name, value in flags.items()]
    if guarantee.delta > 1e-5:
        words.append("--allow_large_delta")
    return " ".join([command_of(option.program), *words])


def ranking_json(ranking: Ranking, texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns a ranking with the command lines of its options."""
    found = ranking.to_json()
    for entry, option in zip(found["options"], ranking.options, strict=True):
        entry["command"] = command_line(ranking, option, texts)
    return found


def _guess(text: str) -> int:
    if text == "noisy":
        condition = "must be about how many records there are: a public guess, to compare errors by"
        raise InputError("num_records", text, condition)
    return integer("num_records", text)


def _read_domain(path: str) -> Domain:
    try:
        text = pathlib.Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("domain", path, f"is not UTF-8 at byte {error.start}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise InputError("domain", path, f"cannot be read as a file ({reason})") from None
    return parse_domain(text, source=path)
