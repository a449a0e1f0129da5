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

If the program is started again with the same flags, it continues where it stopped, at no cost.
`beam-dp release-windows --help` lists the flags.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beam_dp.checks import checked_integer
from beam_dp.domain.horizon import Horizon, seconds_of_duration, span_text
from beam_dp.flags import shared, windows as window_flags
from beam_dp.flags.command_line import known_beam
from beam_dp.flags.flag import Flag, integer, integer_flag, number, refused
from beam_dp.mechanisms.marginals.measurements import predicted_variance
from beam_dp.mechanisms.registry import SYNTHETIC
from beam_dp.mechanisms.windows.plan import (
    WindowDatabasesPlan,
    WindowTablesPlan,
    horizon_card,
    plan_window_databases,
    plan_window_tables,
)
from beam_dp.privacy.ledger.entries import Entry, Token
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.workload import parse_workload
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import finish_writing, holds_horizon
from beam_dp.releases.release import Release
from beam_dp.releases.windows.horizon_files import HorizonCard, begin_horizon, released
from beam_dp.storage.store import plain_path
from beam_dp.views.terminal import counted, short

from . import flags
from .beam_flags import LOCAL_RUNNER, read_beam_flags, refuse_unshared_output, runner_name
from .job_servers import PRISM_RUNNER
from .program import Job, Program, build, marginals_error
from .progress import Progress, is_working
from .running import mark_released, mark_submitted, run_pipeline

if TYPE_CHECKING:
    import apache_beam as beam

    from .program import Transform

TABLES = "tables"
MECHANISM = Flag(
    "mechanism",
    "tables: noisy counts, which can be summed over windows; mwem, laplace or gaussian: a"
    " synthetic database of each window",
    default=TABLES,
    choices=(TABLES, *(name for name in SYNTHETIC if name != "small_db")),
)
POLL = Flag("poll", "how often to look for new files, such as 30s", "LENGTH", default="30s")
SETTLE = Flag(
    "settle",
    "how long after its modification time a file may appear, such as 2m; later files are ignored",
    "LENGTH",
    default="2m",
)
PRIVATE_FOLDER = Flag(
    "private_folder",
    "a folder outside --output for a list of the files that were read, so that a resumed job"
    " reads the same ones. It must be local and accessible only to you, and every worker must"
    " reach it under your account."
    " Required if --output is in a bucket (default: the name of --output with .private)",
    "DIR",
)
REPLAY = Flag(
    "replay",
    "read the files that exist now, then end, on any runner; counts the same records as a stream",
    is_switch=True,
)
CHECKPOINTING_INTERVAL = integer_flag(
    "checkpointing_interval",
    "Flink: milliseconds between the checkpoints from which a job resumes when it loses a worker",
    "MS",
)
SAVEPOINT_PATH = Flag(
    "savepoint_path",
    "Flink: a savepoint of this horizon's job, from which it goes on instead of reading everything"
    " again; as secret as the records",
    "PATH",
)
_SECONDS_TO_END = 20
_UNUSED = (shared.NUM_RECORDS, shared.CALIBRATION, shared.INPUT)
FLAGS = (
    dataclasses.replace(shared.INPUT, form="text"),  # a stream may begin without files
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
    SAVEPOINT_PATH,
)


@dataclass(frozen=True, kw_only=True)
class WindowsJob(Job):
    """A job that releases the windows of a horizon, each once it closes."""

    plan: WindowTablesPlan | WindowDatabasesPlan
    horizon_id: str  # used if this job begins the horizon
    horizon: HorizonCard
    read: Mapping[str, Any]  # the arguments of the source of records
    is_replay: bool  # whether the job reads the existing files and ends
    times: tuple[str, str]  # the columns of event times and arrival times
    private_folder: str | None  # of the list of files read, if named

    def source(self) -> Transform:
        """Returns the transform that reads the files."""
        from beam_dp.transforms.reading.read_arrivals import ReadArrivals

        return ReadArrivals(**self.read)

    def add(self, records: beam.PCollection[Any], token: Token | None = None) -> beam.PCollection:
        """Adds the transforms that release each window into a folder."""
        from apache_beam.options.pipeline_options import StandardOptions

        if self.private_folder is not None:
            runner = records.pipeline.options.view_as(StandardOptions).runner or LOCAL_RUNNER
            refuse_unshared_output(self.private_folder, runner, "private_folder")
        return records | "Release" >> self.release()

    def release(self) -> Transform:
        """Returns the transform that releases the windows."""
        from beam_dp.transforms.windows import ReleaseWindows

        event_time, arrival = self.times
        return ReleaseWindows(
            self.plan, self.output, self.horizon_id, event_time, arrival, self.private_folder
        )

    def card(self) -> dict[str, Any]:
        """Returns the guarantee and settings for ``horizon.json``."""
        return self.horizon.promised()

    def headline(self) -> str:
        """Returns a short description of the job: the number of windows and marginals."""
        horizon, marginals = self.plan.horizon, counted(len(self.plan.workload), "marginal")
        windows = counted(horizon.num_windows, "window")
        return f"{windows} of {horizon.window_text}, {marginals} each"

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview: guarantee, waiting time and expected error."""
        plan = self.plan
        if isinstance(plan, WindowDatabasesPlan):
            error = f"of one window {marginals_error(plan.window)}"
        else:
            variance = predicted_variance(plan.workload, plan.measurements, total_is_public=False)
            error = f"{short(math.sqrt(variance))} records expected in a cell of one window"
            error += " (root mean square)"
        return {
            "promise": plan.public["promise"],
            "grace": f"{span_text(plan.horizon.grace)} for records that arrive late",
            "error": error,
        }

    def preview(self) -> None:
        """Prints a preview of the release; nothing is read, paid or written."""
        if not holds_horizon(self.output):
            check_output(self.output)
        super().preview()

    def run(self, progress: Progress) -> int:
        """Begins or resumes the horizon, pays once, and runs until all windows are released."""
        if not holds_horizon(self.output):
            # Before anything is written, checks that a pipeline can be built and is affordable.
            build(self, self.pipeline())
            if self.ledger is not None:
                self.ledger.check(self.dataset_id, self.plan.guarantee, self.plan.loss)
        progress.tell_warnings()
        horizon_id = begin_horizon(self.output, self.horizon, self.horizon_id)
        before = self._num_released()
        pipeline = None
        if before < self._num_releases:
            # The horizon has begun, and lists the files that were read: changed files are refused
            # before anything is paid.
            pipeline = self.pipeline()
            build(dataclasses.replace(self, horizon_id=horizon_id), pipeline)
        token, is_paid_now = self.pay_once(horizon_id)
        if token is not None:
            verb = "spent" if is_paid_now else "continues"
            progress.say(f"{verb}: {token.release_id} in the ledger")
        if before:
            progress.say(f"continues: {before:,} of {self._num_releases:,} releases exist")
        if pipeline is not None:
            progress.say(f"{self.headline()}; runner {type(pipeline.runner).__name__}")
            if not mark_submitted(self.ledger, token):
                return flags.EXIT_JOB_FAILED
            if not run_pipeline(pipeline, progress, [self.output], self._alive, self._is_over):
                return flags.EXIT_JOB_FAILED
        if (fault := self._fault()) is not None:
            print(f"error: {fault}", file=sys.stderr)
            return flags.EXIT_JOB_FAILED
        progress.say(self.done)
        if self.ledger is not None and token is not None:
            mark_released(self.ledger, token, horizon_id)
        self.tell()
        return 0

    def tell(self, release: Release | None = None) -> None:
        """Prints the location of the windows, and commands that read the windows."""
        directory = shlex.quote(self.output)
        print(f"All windows are in {self.output}. Look at them:")
        print(f"  beam-dp describe {directory}")
        if isinstance(self.plan, WindowTablesPlan):
            names = shlex.quote(",".join(self.plan.workload.marginals[0]))
            print(f"  beam-dp answer {directory} --windows 0:1 --marginal {names}")

    def pay_once(self, horizon_id: str) -> tuple[Entry | None, bool]:
        """Returns the ledger's entry for the horizon, and whether it was paid for now.

        Refuses to draw windows again that were all released.
        """
        if self.ledger is None:
            return None, False
        plan, parameters = self.plan, self.horizon.ledger_parameters(horizon_id)
        entry, is_paid_now = self.ledger.spend_once(
            dataset_id=self.dataset_id,
            guarantee=plan.guarantee,
            loss=plan.loss,
            mechanism=plan.mechanism,
            parameters=parameters,
            key="horizon_id",
            origin=self.origin,
        )
        if entry.state == "released" and self._num_released() < self._num_releases:
            condition = (
                f"is missing released windows, and {entry.release_id} paid for only one draw of"
                " each: restore them from a copy"
            )
            raise refused("output", self.output, condition)
        return entry, is_paid_now

    def _fault(self) -> str | None:
        """Returns a message about missing releases or files after a job, otherwise None."""
        missing = released(self.output, self.horizon).num_missing
        if missing:
            return (
                f"{missing:,} of {self._num_releases:,} releases are missing: start the same"
                " command again, which resumes at no cost; every worker must see --output"
            )
        if not finish_writing(self.output):
            return (
                f"{self.output!r}: a committed release is missing some of its files;"
                " `beam-dp finish` shows which release"
            )
        return None

    @property
    def _num_releases(self) -> int:
        return self.horizon.horizon.num_windows + self.horizon.num_blocks

    def _num_released(self) -> int:
        return self._num_releases - released(self.output, self.horizon).num_missing

    def _alive(self) -> str:
        """Returns the progress line of the job."""
        try:
            return f"released: {self._num_released():,} of {self._num_releases:,}"
        except OSError:
            return is_working()  # listing a bucket may fail; the job continues

    def _is_over(self) -> bool:
        try:
            return not released(self.output, self.horizon).num_missing
        except OSError:
            return False


def _read_job(given: dict[str, str], shared: dict[str, Any]) -> WindowsJob:
    """Returns the job that the flags describe; does not read records."""
    if given["neighboring"] != "add_or_remove_one":
        condition = (
            "must be add_or_remove_one: replacing a unit can move its records to other windows,"
            " and the number of records in a window is not public"
        )
        raise refused("neighboring", given["neighboring"], condition)
    is_replay, horizon = "replay" in given, window_flags.read_horizon(given)
    plan = _plan(given, horizon)
    plan.unit.check_times(given["event_time"], given["arrival"])
    read = {
        "pattern": given["input"],
        "horizon": horizon,
        "file_format": given.get("input_format"),
        "poll": given["poll"],
        "settle": given["settle"],
        "replay": is_replay,
    }
    shared["beam_flags"] += tuple(_stream_flags(given, horizon, shared["beam_flags"]))
    return WindowsJob(
        **shared,
        plan=plan,
        horizon_id=NoiseSource().draw_id(),
        horizon=horizon_card(plan, _source(given), replayable=True),
        read=read,
        is_replay=is_replay,
        times=(given["event_time"], given["arrival"]),
        private_folder=given.get("private_folder"),
    )


def _source(given: dict[str, str]) -> dict[str, str | None]:
    """Returns the settings of the input that must not change when a job is resumed."""
    pattern = plain_path("input", given["input"])
    return {
        "input": pattern if "://" in pattern else os.path.abspath(pattern),
        **{name: given.get(name) for name in ("input_format", "event_time", "arrival")},
    }


def _stream_flags(given: dict[str, str], horizon: Horizon, rest: Sequence[str]) -> list[str]:
    """Returns the flags of Beam that a stream needs; a replay does not need these flags."""
    settle = seconds_of_duration("settle", given["settle"], least=0)
    poll = seconds_of_duration("poll", given["poll"], least=1)
    if "replay" in given:
        for name in (CHECKPOINTING_INTERVAL.name, SAVEPOINT_PATH.name):
            if name in given:
                condition = "cannot be combined with --replay, which is not a stream"
                raise refused(name, given[name], condition)
        if given["input"]:  # else a source that ends by itself
            horizon.check_over(time.time() - settle)
        return []
    runner = runner_name(read_beam_flags(rest, FLAGS).get("runner") or LOCAL_RUNNER)
    if runner in known_beam()["local_runners"] and runner != PRISM_RUNNER:
        condition = "can't run a stream; use PrismRunner or FlinkRunner, or give --replay"
        raise refused("runner", runner, condition)
    # Flink ends a job when any source ends; `Impulse` is a source, so it must outlast the job.
    left = horizon.closes(horizon.num_windows - 1) - int(time.time())
    idle = max(left + settle, 0) + 2 * poll + _SECONDS_TO_END
    streaming = ["--streaming", f"--shutdown_sources_after_idle_ms={1000 * idle}"]
    if "savepoint_path" in given:
        streaming.append(f"--savepoint_path={given['savepoint_path']}")
    if "checkpointing_interval" not in given:
        return streaming
    interval = integer("checkpointing_interval", given["checkpointing_interval"])
    checked_integer("checkpointing_interval", interval, 1, 2**31 - 1, note=" milliseconds")
    # Without this flag, a checkpoint lacks the records that a bundle has read but not yet emitted:
    # jobs succeeded although records were missing.
    return [
        *streaming,
        f"--checkpointing_interval={interval}",
        "--finish_bundle_before_checkpointing",
    ]


def _plan(given: dict[str, str], horizon: Horizon) -> WindowTablesPlan | WindowDatabasesPlan:
    domain = flags.read_domain(given)
    workload = parse_workload(given["workload"], domain)
    unit = window_flags.read_window_unit(given)
    epsilon, delta = (number(name, given[name]) for name in ("epsilon", "delta"))
    large_delta = "allow_large_delta" in given
    if "block" in given and given["strategy"] == "independent":
        raise refused("block", given["block"], "needs --strategy levels or best")
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
            condition = f"applies only to --mechanism {TABLES}"
            raise refused(flag.name, given[flag.name], condition)
    mechanism = SYNTHETIC[given["mechanism"]]()
    return plan_window_databases(
        mechanism, workload, horizon, unit, epsilon, delta, allow_large_delta=large_delta
    )


PROGRAM = Program("release_windows", FLAGS, __doc__, _read_job)
parse_arguments, main = PROGRAM.parse_arguments, PROGRAM.main

if __name__ == "__main__":
    raise SystemExit(main())
