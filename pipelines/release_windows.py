"""Release the windows of a stream, each once it closes, with differential privacy.

    beam-dp release-windows \
        --input 'landing/*.parquet' --domain visits.json --workload marginals:2 \
        --event_time t --arrival file_time \
        --start 2026-11-23T00:00Z --window 1h --num_windows 168 --grace 30m \
        --poll 30s --settle 2m \
        --privacy_unit person_id --max_records_per_unit 3 \
        --max_windows_per_unit 7 --protected_windows 168 \
        --epsilon 1 --delta 1e-9 --neighboring add_or_remove_one \
        --runner PrismRunner --output out/week-48

Started again with the same flags it goes on where it stopped, and pays nothing.
`beam-dp release-windows --help` lists the flags.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions

from beam_dp.checks import checked_integer
from beam_dp.cli.programs import command_of
from beam_dp.flags import shared, windows as window_flags
from beam_dp.flags.flag import Flag, refused
from beam_dp.flags.numbers import integer, number
from beam_dp.mechanisms.marginals.strategies import predicted_variance
from beam_dp.mechanisms.registry import SYNTHETIC
from beam_dp.mechanisms.windows.databases import WindowDatabasesPlan, plan_window_databases
from beam_dp.mechanisms.windows.plan import WindowTablesPlan, plan_window_tables
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.ledger.origin import Origin
from beam_dp.queries.workload import parse_workload
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import holds_horizon
from beam_dp.releases.leftovers import finish_writing
from beam_dp.releases.windows.horizon_files import HorizonCard, begin_horizon, released
from beam_dp.reports.terminal import counted, short
from beam_dp.transforms.drawing.release_windows import ReleaseWindows, horizon_card
from beam_dp.transforms.reading.listing import plain_path
from beam_dp.transforms.reading.read_arrivals import ReadArrivals
from beam_dp.windows.horizon import Horizon, seconds_of_duration, span_text

from . import flags
from .flags import check_json_flag, read_ledger, read_origin
from .job_servers import PRISM_RUNNER
from .named_files import read_domain
from .preview import marginals_error, print_json, print_preview
from .progress import Progress, is_working
from .runners import LOCAL_RUNNER, make_pipeline, refuse_unshared_output, runner_name
from .running import mark_released, run_main, run_pipeline

NAME = "release_windows"
TABLES = "tables"
MECHANISM = Flag(
    "mechanism",
    "tables of noisy counts, whose sums over windows can be asked for; or a synthetic database of"
    " each window, by this mechanism",
    default=TABLES,
    choices=(TABLES, *(name for name in SYNTHETIC if name != "small_db")),
)
POLL = Flag("poll", "how often to look for new files, such as 30s", "LENGTH", default="30s")
SETTLE = Flag(
    "settle",
    "how long after its time of modification a file may appear, such as 2m; one that appears later"
    " does not count",
    "LENGTH",
    default="2m",
)
PRIVATE_FOLDER = Flag(
    "private_folder",
    "where the path, size and time of each file that was read are kept, so that a job that goes on"
    " reads the same files: a local folder of yours alone, which every worker sees, and not in"
    " --output; required where that is in a bucket (default: --output and .private)",
    "DIR",
)
REPLAY = Flag(
    "replay",
    "read the files that are there, and end: the same exact tables as of a stream, on any runner",
    is_switch=True,
)
CHECKPOINTING_INTERVAL = Flag(
    "checkpointing_interval",
    "of Flink: milliseconds between checkpoints, from which a job that lost a worker goes on",
    "MS",
    form="integer",
)
_SECONDS_TO_END = 20
_UNUSED = (shared.NUM_RECORDS, shared.CALIBRATION, shared.INPUT)
FLAGS = (
    dataclasses.replace(shared.INPUT, form="text"),  # of a stream the files may all be yet to come
    *(flag for flag in shared.COMMON if flag not in _UNUSED),
    *window_flags.TIMES,
    *window_flags.HORIZON,
    *window_flags.UNIT,
    *window_flags.MEASURED,
    MECHANISM,
    POLL,
    SETTLE,
    PRIVATE_FOLDER,
    REPLAY,
    CHECKPOINTING_INTERVAL,
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the flags say, checked, and the plan that was made of it.

    Args:
        source: makes that of the records, a new one for each pipeline.
        is_replay: whether it ends with the files that are there.
        times: the columns of events and of arrivals.
        private_folder: of what is known of files, if one is named.
        plan: of all windows.
        card: what ``horizon.json`` says.
        ledger: that pays, if one does.
        dataset_id: from whose budget.
        origin: what the ledger is told of who releases it, and why.
        output: where the horizon is written.
        validate_only: whether nothing is run.
        as_json: whether what is shown then is for machines.
        beam_flags: Beam's own.
    """

    source: Callable[[], ReadArrivals]
    is_replay: bool
    times: tuple[str, str]
    private_folder: str | None
    plan: WindowTablesPlan | WindowDatabasesPlan
    card: HorizonCard
    ledger: Ledger | None
    dataset_id: str
    origin: Origin
    output: str
    validate_only: bool
    as_json: bool
    beam_flags: tuple[str, ...]


def parse_arguments(argv: Sequence[str]) -> Job:
    """Returns the job that a command line describes.

    Raises:
        FlagError: a flag is unknown, missing, repeated or outside its choices.
        InputError: a value, or a combination of them, is refused.
    """
    given, beam_flags = flags.parse(FLAGS, argv, program=command_of(NAME), description=__doc__)
    if given["neighboring"] != "add_or_remove_one":
        condition = (
            "must be add_or_remove_one: a unit that is replaced moves between windows, of which"
            " none has a public number of records"
        )
        raise refused("neighboring", given["neighboring"], condition)
    check_json_flag(given)
    is_replay = "replay" in given
    horizon = window_flags.read_horizon(given)
    plan = _plan(given, horizon)
    source = partial(
        ReadArrivals,
        given["input"],
        horizon,
        given.get("input_format"),
        poll=given["poll"],
        settle=given["settle"],
        replay=is_replay,
    )
    card = horizon_card(plan, _source(given), replayable=True)
    return Job(
        source=source,
        is_replay=is_replay,
        times=(given["event_time"], given["arrival"]),
        private_folder=given.get("private_folder"),
        plan=plan,
        card=card,
        ledger=read_ledger(given),
        dataset_id=given.get("dataset_id", ""),
        origin=read_origin(given),
        output=given["output"],
        validate_only="validate_only" in given,
        as_json="json" in given,
        beam_flags=(*beam_flags, *_stream_flags(given, horizon)),
    )


def _source(given: dict[str, str]) -> dict[str, str | None]:
    """Returns what must be the same when a job goes on, from wherever it is started."""
    pattern = plain_path("input", given["input"])
    return {
        "input": pattern if "://" in pattern else os.path.abspath(pattern),
        **{name: given.get(name) for name in ("input_format", "event_time", "arrival")},
    }


def _stream_flags(given: dict[str, str], horizon: Horizon) -> list[str]:
    """Returns the flags of Beam that a stream needs, and a replay does not."""
    if "replay" in given:
        if "checkpointing_interval" in given:
            condition = "must not be given with --replay, which is no stream"
            raise refused("checkpointing_interval", given["checkpointing_interval"], condition)
        return []
    # Flink ends a job when its sources do. What a job begins with is one, and so must outlast it.
    left = horizon.closes(horizon.num_windows - 1) - int(time.time())
    left += seconds_of_duration("settle", given["settle"], least=0)
    idle = max(left, 0) + 2 * seconds_of_duration("poll", given["poll"], least=1) + _SECONDS_TO_END
    streaming = ["--streaming", f"--shutdown_sources_after_idle_ms={1000 * idle}"]
    if "checkpointing_interval" not in given:
        return streaming
    interval = integer("checkpointing_interval", given["checkpointing_interval"])
    checked_integer("checkpointing_interval", interval, 1, 2**31 - 1, note=" milliseconds")
    # Else a checkpoint lacks what a bundle has read and not yet handed on: jobs ended well, and
    # records were missing.
    return [
        *streaming,
        f"--checkpointing_interval={interval}",
        "--finish_bundle_before_checkpointing",
    ]


def _plan(given: dict[str, str], horizon: Horizon) -> WindowTablesPlan | WindowDatabasesPlan:
    domain = read_domain(given)
    workload = parse_workload(given["workload"], domain)
    unit = window_flags.read_window_unit(given)
    epsilon, delta = (number(name, given[name]) for name in ("epsilon", "delta"))
    large_delta = "allow_large_delta" in given
    if "block" in given and given["strategy"] == "independent":
        raise refused("block", given["block"], "must be given with --strategy levels or best")
    if given["mechanism"] == TABLES:
        return plan_window_tables(
            workload,
            horizon,
            unit,
            epsilon,
            delta,
            strategy=given["strategy"],  # type: ignore[arg-type]  # one of its choices
            allow_large_delta=large_delta,
            **window_flags.read_measured(given),
        )
    for flag in window_flags.MEASURED:
        if given.get(flag.name, flag.default) != flag.default:
            condition = f"only applies to --mechanism {TABLES}"
            raise refused(flag.name, given[flag.name], condition)
    mechanism = SYNTHETIC[given["mechanism"]]()
    return plan_window_databases(
        mechanism, workload, horizon, unit, epsilon, delta, allow_large_delta=large_delta
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit code: 0, 1 if the job failed, 2 for a bad argument.

    Args:
        argv: the command line, without the program's name; that of the process by default.
    """
    return run_main(FLAGS, argv, _main)


def _main(argv: Sequence[str], progress: Progress) -> int:
    job = parse_arguments(argv)
    _build(job, "0" * 32)  # refuses what is left to refuse
    if job.validate_only:
        _preview(job)
        progress.tell_warnings()
        return 0
    return _run(job, progress)


def _build(job: Job, horizon_id: str) -> beam.Pipeline:
    """Returns the pipeline of a job.

    Raises:
        FlagError: the runner can't run it.
        InputError: the input or a combination of parameters is refused.
    """
    pipeline = make_pipeline(job.beam_flags, job.output)
    runner = runner_name(pipeline.options.view_as(StandardOptions).runner or LOCAL_RUNNER)
    if job.private_folder is not None:
        refuse_unshared_output(job.private_folder, runner, "private_folder")
    is_local = runner == LOCAL_RUNNER or runner in StandardOptions.LOCAL_RUNNERS
    if not job.is_replay and is_local and runner != PRISM_RUNNER:
        condition = "can't run a stream; must be PrismRunner, FlinkRunner or such, or give --replay"
        raise refused("runner", runner, condition)
    release = ReleaseWindows(job.plan, job.output, horizon_id, *job.times, job.private_folder)
    _ = pipeline | "Read" >> job.source() | "Release" >> release
    return pipeline


def _public_card(job: Job) -> dict[str, Any]:
    """Returns what ``horizon.json`` would say, and what is left of the budget."""
    card = job.card.promised()
    if job.ledger is not None:
        job.ledger.check(job.dataset_id, job.plan.guarantee, job.plan.loss)
        account = job.ledger.account(job.dataset_id)
        card["ledger"] = {
            "dataset_id": job.dataset_id,
            "budget": {"epsilon": account.epsilon, "delta": account.delta},
            "loss": job.plan.loss.to_json(),
        }
    return card


def _preview(job: Job) -> None:
    """Prints what would be released; nothing is read, paid or written."""
    if not holds_horizon(job.output):
        check_output(job.output)
    card = _public_card(job)
    if job.as_json:
        print_json(card)
        return
    plan, stated = job.plan, job.plan.public
    facts = {
        "promise": stated["promise"],
        "grace": f"{span_text(plan.horizon.grace)} for records that arrive late",
        "error": _error(plan),
    }
    places = {"input": str(job.card.source["input"]), "output": job.output}
    print_preview(_headline(job), plan, facts, places, card.get("ledger"), job.origin)


def _error(plan: WindowTablesPlan | WindowDatabasesPlan) -> str:
    if isinstance(plan, WindowDatabasesPlan):
        return f"of one window {marginals_error(plan.window)}"
    variance = predicted_variance(plan.workload, plan.measurements, total_is_public=False)
    return (
        f"{short(math.sqrt(variance))} records expected of a cell of one window, root mean squared"
    )


def _run(job: Job, progress: Progress) -> int:
    """Begins the horizon or goes on with it, pays once, and runs the job until all is released."""
    if job.ledger is not None and not holds_horizon(job.output):
        job.ledger.check(job.dataset_id, job.plan.guarantee, job.plan.loss)
    progress.tell_warnings()
    horizon_id = begin_horizon(job.output, job.card, NoiseSource().draw_id())
    before = _num_released(job)
    # What is refused of the files that are there is refused before anything is paid.
    pipeline = _build(job, horizon_id) if before < _num_releases(job) else None
    token = None
    if job.ledger is not None:
        token, is_paid_now = job.ledger.spend_once(
            job.dataset_id,
            job.plan.guarantee,
            job.plan.loss,
            job.plan.mechanism,
            job.card.ledger_parameters(horizon_id),
            "horizon_id",
            job.origin,
        )
        progress.say(f"{'spent' if is_paid_now else 'goes on'}: {token.release_id} in the ledger")
        if token.state == "released" and pipeline is not None:
            condition = (
                f"lacks windows that were released: {token.release_id} paid for one draw of each."
                " Restore them from a copy"
            )
            raise refused("output", job.output, condition)
    if before:
        progress.say(f"goes on: {before:,} of {_num_releases(job):,} releases are there")
    if pipeline is not None:
        progress.say(f"{_headline(job)}; runner {type(pipeline.runner).__name__}")
        if not run_pipeline(
            pipeline, progress, [job.output], lambda: _alive(job), lambda: _is_over(job)
        ):
            return flags.EXIT_JOB_FAILED
    missing = released(job.output, job.card).num_missing
    if not missing and not finish_writing(job.output):
        print(
            f"error: {job.output!r}: a committed release lacks its files; `beam-dp finish` tells"
            " which",
            file=sys.stderr,
        )
        return flags.EXIT_JOB_FAILED
    if missing:
        print(
            f"error: {missing:,} of {_num_releases(job):,} releases are missing: start the same"
            " command again, which goes on and pays nothing; every worker must see --output",
            file=sys.stderr,
        )
        return flags.EXIT_JOB_FAILED
    progress.say("released")
    if job.ledger is not None and token is not None:
        mark_released(job.ledger, token, horizon_id)
    _tell(job)
    return 0


def _num_releases(job: Job) -> int:
    return job.card.horizon.num_windows + job.card.num_blocks


def _num_released(job: Job) -> int:
    return _num_releases(job) - released(job.output, job.card).num_missing


def _alive(job: Job) -> str:
    """Returns how far a job is."""
    try:
        return f"released: {_num_released(job):,} of {_num_releases(job):,}"
    except OSError:
        return is_working()  # a look at a bucket may fail; the job goes on


def _is_over(job: Job) -> bool:
    try:
        return not released(job.output, job.card).num_missing
    except OSError:
        return False


def _headline(job: Job) -> str:
    horizon, marginals = job.plan.horizon, counted(len(job.plan.workload), "marginal")
    windows = counted(horizon.num_windows, "window")
    return f"{windows} of {horizon.window_text}, {marginals} each"


def _tell(job: Job) -> None:
    directory = shlex.quote(job.output)
    print(f"All windows are in {job.output}. Look at them:")
    print(f"  beam-dp describe {directory}")
    if isinstance(job.plan, WindowTablesPlan):
        names = shlex.quote(",".join(job.plan.workload.marginals[0]))
        print(f"  beam-dp answer {directory} --windows 0:1 --marginal {names}")


if __name__ == "__main__":
    raise SystemExit(main())
