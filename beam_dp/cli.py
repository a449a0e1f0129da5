"""The `beam-dp` command: planning and reading releases, with no Beam and no privacy budget."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import itertools
import json
import os
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from beam_dp.cli_tables import print_table
from beam_dp.errors import InputError, shown
from beam_dp.programs import import_program

if TYPE_CHECKING:
    from beam_dp.domain import Domain
    from beam_dp.privacy.ledger import Dataset, Ledger
    from beam_dp.queries.linear_workload import LinearWorkload
    from beam_dp.releases import MarginalAnswer, SyntheticDatabase

EXIT_BAD_INPUT = 2
# Programs that need Beam live beside the package in a checkout, and inside it once installed.
PIPELINES = {
    "answer-queries": "answer_queries",
    "release-intervals": "release_intervals",
    "release-projection": "release_projection",
    "release-synthetic-database": "release_synthetic_database",
}

# The flags that go with `ledger --declare`; all but the last must be given.
DECLARATION = (
    ("epsilon", "E", "total epsilon, > 0"),
    ("delta", "X", "total delta, 0 <= delta <= 1e-5; 0 admits purely private releases only"),
    ("privacy_unit", "U", "the unit of every release: a column, or the word record"),
    ("neighboring", "R", "the relation of every release: add_or_remove_one or replace_one"),
    ("composition", "C", "how releases add up: auto (default), zcdp or gaussian"),
)


class _RefusedError(Exception):
    """One line for the user."""


class _Parser(argparse.ArgumentParser):
    """An argparse parser that raises where argparse would print its usage and exit."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        # Also 1e-9 after a minus is a number, which its own check refuses, and no flag.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        raise _RefusedError(message.removeprefix("argument "))


class _Once(argparse.Action):
    """Stores a value, and refuses a second one: which of two budgets is meant is no guess."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        earlier = getattr(namespace, self.dest)
        if earlier is not None:
            raise _RefusedError(
                f"--{self.dest}: {shown(values)} is refused; must be given once"
                f" (before: {shown(earlier)})"
            )
        setattr(namespace, self.dest, values)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0, or 2 for input that was refused.

    Args:
        argv: the arguments without the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in PIPELINES:
            return _run_pipeline(PIPELINES[arguments[0]], arguments[1:])
        options = _parse(arguments)
        run = {"plan": _plan, "describe": _describe, "answer": _answer, "ledger": _ledger}
        run[options.command](options)
    except (_RefusedError, InputError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough; Python must not complain while it closes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="beam-dp", description="Read what was released; needs no Beam.", allow_abbrev=False
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    _add_plan(commands)
    describe = commands.add_parser(
        "describe", help="what was promised, and how wrong the answers can be", allow_abbrev=False
    )
    answer = commands.add_parser("answer", help="answer queries", allow_abbrev=False)
    for command in (describe, answer):
        command.add_argument("directory", metavar="DIR", help="directory that holds a release")
        command.add_argument("--json", action="store_true", help="JSON for machines")
    what = answer.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--marginal", action="append", metavar="a,b", help="one marginal; may be repeated"
    )
    what.add_argument(
        "--queries",
        metavar="FILE",
        help='JSON lines: all of them {"marginal": ["a", "b"]}, or any linear queries, such as'
        ' {"interval": {"attribute": "a", "low": 1, "high": 3}}',
    )
    what.add_argument(
        "--sparse", metavar="FILE", help="one key a line, after a tab its value from 0 to 1, or 1"
    )
    what.add_argument(
        "--interval",
        action="append",
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="of interval counts: integers, both included, or edges of bins; may be repeated",
    )
    what.add_argument(
        "--quantile",
        action="append",
        metavar="SHARE",
        help="of interval counts: where this share of the records is reached; may be repeated",
    )
    answer.add_argument(
        "--limit", type=int, default=50, metavar="N", help="rows shown of a table (default: 50)"
    )
    ledger = commands.add_parser(
        "ledger", help="what was spent on which data, and what is left", allow_abbrev=False
    )
    ledger.add_argument(
        "url", metavar="URL", help="sqlite file, or postgresql://USER@HOST/DATABASE"
    )
    ledger.add_argument(
        "--declare", metavar="NAME", action=_Once, help="declare the total budget of a dataset id"
    )
    for flag, metavar, meaning in DECLARATION:
        ledger.add_argument(f"--{flag}", metavar=metavar, action=_Once, help=meaning)
    ledger.add_argument(
        "--allow_large_delta", action="store_true", help="admit a total delta above 1e-5"
    )
    ledger.add_argument("--json", action="store_true", help="JSON for machines")
    for name in PIPELINES:
        commands.add_parser(name, help="run the pipeline; its own --help lists its flags")

    known_commands = [*commands.choices]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in known_commands:
        raise _RefusedError(
            f"{arguments[0]!r} is refused; must be one of {', '.join(known_commands)};"
            f" the nearest is {_nearest(arguments[0], known_commands)}"
        )
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        command = commands.choices[options.command]
        flags = [option for action in command._actions for option in action.option_strings]
        raise _RefusedError(
            f"{unknown[0]}: unknown; the nearest flag is {_nearest(unknown[0], flags)}"
        )
    return options


def _add_plan(commands: Any) -> None:
    from beam_dp.planning.flags import FLAGS, SWITCHES

    plan = commands.add_parser(
        "plan", help="every mechanism for a job, before any data is read", allow_abbrev=False
    )
    for flag in FLAGS:
        plan.add_argument(f"--{flag.name}", metavar=flag.metavar, action=_Once, help=flag.help)
    for flag in SWITCHES:
        plan.add_argument(f"--{flag.name}", action="store_true", help=flag.help)
    plan.add_argument("--json", action="store_true", help="JSON for machines")


def _plan(options: argparse.Namespace) -> None:
    from rich.console import Console

    from beam_dp.planning.command import command_line, job_of, ranking_json
    from beam_dp.planning.flags import FLAGS, SWITCHES
    from beam_dp.planning.ranking import rank_mechanisms
    from beam_dp.planning.table import ranking_table

    texts = {flag.name: getattr(options, flag.name) for flag in FLAGS}
    switches = {flag.name: getattr(options, flag.name) for flag in SWITCHES}
    try:
        job = job_of(texts, switches)
    except InputError as error:
        if error.name not in texts:
            raise
        condition = error.condition.replace("unless allow_", "unless --allow_")
        told = "missing" if error.value is None else f"{shown(error.value)} is refused"
        raise _RefusedError(f"--{error.name}: {told}; {condition}") from None
    ranking = rank_mechanisms(job)
    if options.json:
        print(json.dumps(ranking_json(ranking, texts), ensure_ascii=False))
        return
    Console().print(ranking_table(ranking))
    if ranking.best is not None:
        print(command_line(ranking, ranking.best, texts))


def _nearest(name: str, known: Sequence[str]) -> str:
    return difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]


def _run_pipeline(module: str, arguments: list[str]) -> int:
    try:
        program = import_program(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("beam_dp.pipelines"):
            raise
        print(f"error: {module}: not installed; must be run in a checkout", file=sys.stderr)
        return EXIT_BAD_INPUT
    code: int = program.main(arguments)
    return code


def _describe(options: argparse.Namespace) -> None:
    from rich.console import Console

    from beam_dp.releases import IntervalRelease, SparseRelease, read_release
    from beam_dp.releases.answers_release import read_answers_release
    from beam_dp.releases.describe import describe, describe_answers
    from beam_dp.releases.describe_intervals import describe_intervals
    from beam_dp.releases.describe_sparse import describe_sparse

    answers = read_answers_release(options.directory)
    if answers is not None:
        described = describe_answers(answers)
    else:
        release = read_release(options.directory)
        if isinstance(release, IntervalRelease):
            described = describe_intervals(release)
        elif isinstance(release, SparseRelease):
            described = describe_sparse(release)
        else:
            described = describe(release)
    if options.json:
        # All of the release was verified when it was read, so this is its card.
        print((pathlib.Path(options.directory) / "card.json").read_text("utf-8"), end="")
    else:
        Console().print(described)


def _answer(options: argparse.Namespace) -> None:
    from beam_dp.cli_intervals import answer_intervals
    from beam_dp.cli_sparse import answer_sparse
    from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
    from beam_dp.queries.workload import Workload, parse_workload
    from beam_dp.releases import IntervalRelease, SparseRelease, read_release
    from beam_dp.releases.answers_release import read_answers_release

    if options.limit < 1:
        raise _RefusedError(f"--limit: {options.limit} is refused; must be >= 1")
    if read_answers_release(options.directory) is not None:
        condition = "holds answers, and answers nothing more: see beam-dp describe"
        raise InputError("release", options.directory, condition)
    release = read_release(options.directory)
    if isinstance(release, SparseRelease):
        if options.sparse is None:
            raise _RefusedError("--sparse: missing; must be given: this release answers no other")
        print(answer_sparse(release, options.sparse, as_json=options.json))
        return
    if options.sparse is not None:
        condition = "must be asked of a release for sparse queries"
        raise _RefusedError(f"--sparse: {shown(options.sparse)} is refused; {condition}")
    if isinstance(release, IntervalRelease):
        answer_intervals(options, release)
        return
    for name in ("interval", "quantile"):
        if getattr(options, name) is not None:
            condition = "must be asked of interval counts; of synthetic records use --queries"
            raise _RefusedError(f"--{name}: {condition}")
    domain = release.domain
    flag = "--queries" if options.queries is not None else "--marginal"
    try:
        if options.queries is not None:
            if not pathlib.Path(options.queries).is_file():
                raise InputError("workload", options.queries, "must be a file that can be read")
            workload: Workload | LinearWorkload
            if _holds_marginals(options.queries):
                workload = parse_workload(options.queries, domain)
            else:
                workload = parse_linear_workload(options.queries, domain)
        else:
            # A name may hold a comma itself.
            tables = [[text] if text in domain else text.split(",") for text in options.marginal]
            workload = Workload(domain, tuple(tuple(map(str.strip, names)) for names in tables))
    except InputError as error:
        raise _RefusedError(f"{flag}: {shown(error.value)} is refused; {error.condition}") from None
    if isinstance(workload, LinearWorkload):
        _answer_queries(options, release, workload)
        return
    answers = release.answer(workload)
    if options.json:
        print(json.dumps([_answer_json(answer, domain) for answer in answers], ensure_ascii=False))
        return
    for answer in answers:
        attributes = [domain[name] for name in answer.attributes]
        cells = itertools.product(*(attribute.labels() for attribute in attributes))
        rows = [
            (*labels, f"{value:,.1f}")
            for labels, value in itertools.islice(
                zip(cells, answer.values.ravel().tolist(), strict=True),
                min(options.limit, answer.values.size),
            )
        ]
        notes = []
        if answer.standard_error is not None:
            notes.append(f"standard error of a cell {answer.standard_error:,.1f} records")
        else:
            notes.append("no error is stated: the release did not measure this marginal whole")
        if answer.bound is not None:
            notes.append(
                f"every cell is within {answer.bound:,.1f} records"
                f" but with probability {answer.failure_probability:g}"
            )
        if len(rows) < answer.values.size:
            notes.append(f"{len(rows)} of {answer.values.size:,} cells; --limit shows more")
        print_table(
            " x ".join(answer.attributes),
            (*answer.attributes, "records"),
            rows,
        )
        for note in notes:
            print(note)


def _holds_marginals(path: str) -> bool:
    """Whether a file asks for tables: what is on its first line decides."""
    with pathlib.Path(path).open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    return b'"marginal"' in first


def _answer_queries(
    options: argparse.Namespace, release: SyntheticDatabase, workload: LinearWorkload
) -> None:
    answers = release.answer_queries(workload.queries)
    if options.json:
        print(json.dumps([dataclasses.asdict(answer) for answer in answers]))
        return
    lines = pathlib.Path(options.queries).read_text("utf-8-sig").split("\n")
    asked = [line for line in lines if line.strip()]
    texts = asked if len(asked) == len(answers) else [json.dumps(q) for q in workload.to_json()]
    shown_answers = list(zip(texts, answers, strict=True))[: options.limit]
    print_table(
        "linear queries",
        ("query", "within (records)", "records"),
        [
            (
                text,
                "not stated" if each.bound is None else f"{each.bound:,.1f}",
                f"{each.value:,.1f}",
            )
            for text, each in shown_answers
        ],
    )
    if len(answers) > len(shown_answers):
        print(f"{len(shown_answers)} of {len(answers):,} queries; --limit shows more")
    stated = [each for each in answers if each.bound is not None]
    if stated:
        print(
            "all errors that are stated hold together but with probability"
            f" {stated[0].failure_probability:g}"
        )


def _answer_json(answer: MarginalAnswer, domain: Domain) -> dict[str, Any]:
    return {
        "marginal": list(answer.attributes),
        "labels": {name: domain[name].labels() for name in answer.attributes},
        "records": answer.values.tolist(),
        "standard_error": answer.standard_error,
        "bound": answer.bound,
        "failure_probability": answer.failure_probability,
    }


def _ledger(options: argparse.Namespace) -> None:
    from beam_dp.privacy.ledger import Ledger

    ledger = Ledger(options.url)
    if options.declare is not None:
        _declare(ledger, options)
    else:
        for flag in (*(flag for flag, _, _ in DECLARATION), "allow_large_delta"):
            if getattr(options, flag) not in (None, False):
                raise _RefusedError(f"--{flag}: must be given with --declare NAME")
    reports = [_report(ledger, dataset) for dataset in ledger.datasets()]
    if options.json:
        print(json.dumps({"ledger": ledger.name, "datasets": reports}, ensure_ascii=False))
        return
    rows = [
        (
            report["dataset_id"],
            f"{report['privacy_unit']}, {report['neighboring'].replace('_', ' ')}",
            f"{report['delta']:g}",
            f"{report['epsilon']:g}",
            f"{report['spent_epsilon']:.4g}",
            " / ".join(f"{left:.4g}" for left in report["remaining_epsilon"].values()),
        )
        for report in reports
    ]
    columns = ("dataset", "unit, relation", "delta", "epsilon", "spent", "left")
    print_table(f"budgets of {ledger.name}", columns, rows)
    print("left: the epsilon of one more release of pure, Gaussian or zero-concentrated privacy")
    entries = [entry for report in reports for entry in report["entries"]]
    if entries:
        rows = [
            (
                entry["release_id"],
                entry["mechanism"],
                entry["spent_at"],
                entry["state"],
                f"{entry['guarantee']['delta']:g}",
                f"{entry['guarantee']['epsilon']:g}",
            )
            for entry in entries
        ]
        print_table("releases", ("release", "mechanism", "time", "state", "delta", "epsilon"), rows)


def _declare(ledger: Ledger, options: argparse.Namespace) -> None:
    values: dict[str, Any] = {}
    for flag, _, meaning in DECLARATION:
        text = getattr(options, flag)
        if text is None:
            if flag == "composition":
                continue
            raise _RefusedError(f"--{flag}: missing; must be given with --declare: {meaning}")
        values[flag] = text
    try:
        for flag in ("epsilon", "delta"):
            values[flag] = _number(flag, values[flag])
        ledger.declare(options.declare, **values, allow_large_delta=options.allow_large_delta)
    except InputError as error:
        names = {"dataset_id": "declare"}
        if error.name in names or error.name in values:
            flag = names.get(error.name, error.name)
            condition = error.condition.replace("unless allow_", "unless --allow_")
            raise _RefusedError(f"--{flag}: {shown(error.value)} is refused; {condition}") from None
        raise


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(name, text, "must be a number") from None


def _report(ledger: Ledger, dataset: Dataset) -> dict[str, Any]:
    from beam_dp.privacy.loss import KINDS

    account = ledger.account(dataset.dataset_id)
    return {
        **dataclasses.asdict(dataset),
        "spent_epsilon": account.spent_epsilon(),
        "filters": list(account.filters()),
        "remaining_epsilon": {kind: account.largest_epsilon(kind, dataset.delta) for kind in KINDS},
        "entries": [entry.to_json() for entry in ledger.entries(dataset.dataset_id)],
    }


if __name__ == "__main__":
    sys.exit(main())
