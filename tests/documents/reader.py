"""Somebody who reads a page from the top, and does what each block says, in a folder of its own."""

import ast
import importlib.metadata
import json
import pathlib
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from documents.blocks import ROOT, Block
from documents.outputs import NUMBER, missing, number

import beam_dp as dp
from beam_dp.cli import main as cli
from beam_dp.flags.command_line import flags_of_program, parse_own
from beam_dp.queries.reader import read_line
from pipelines.beam_flags import read_beam_flags

# The attributes that the examples of impossible combinations and of mappings are about.
CENSUS = [
    {"name": "sex", "type": "categorical", "values": ["Female", "Male"]},
    {"name": "relationship", "type": "categorical", "values": ["Husband", "Wife"]},
    {"name": "age", "type": "integer", "min": 0, "max": 99},
    {"name": "married", "type": "boolean", "nullable": True},
    {"name": "hours", "type": "integer", "min": 0, "max": 99},
    {"name": "city", "type": "categorical", "values": ["Boston", "Salem", "Austin"]},
    {"name": "state", "type": "categorical", "values": ["MA", "TX"]},
    {"name": "works", "type": "boolean"},
]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")

# What "..." stands for in a command line: flags of such a job that are not typed there.
_PROMISE = {
    "epsilon": "1",
    "delta": "1e-9",
    "neighboring": "add_or_remove_one",
    "privacy_unit": "person_id",
    "max_records_per_unit": "1",
}
_JOB = {"input": "visits.parquet", "output": "out/other", **_PROMISE}
_OF_DOMAIN = {"domain": "visits.json", **_JOB}
OMITTED: Mapping[str, Mapping[str, str]] = {
    "release-synthetic-database": {
        "workload": "marginals:2", "num_records": "noisy", **_OF_DOMAIN
    },
    "release-intervals": {"attribute": "age", **_OF_DOMAIN},
    "answer-queries": {"num_records": "noisy", **_OF_DOMAIN},
    "release-projection": _OF_DOMAIN,
}  # fmt: skip
# Samples of which rows would be left out end with 1, and attacks on a domain of few cells with 4.
EXIT_CODES = {"check-domain": (0, 1), "attack": (4,)}


def words_of(command: str) -> list[str]:
    """Returns the words of a command line, with the flags that three points leave out."""
    words = shlex.split(command, comments=True)
    if words[0] != "beam-dp" or "..." not in words:
        return words
    place = words.index("...")
    given = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
    omitted = dict(OMITTED[words[1]])
    if "key" in given:
        del omitted["domain"]
    flags = [(f"--{name}", value) for name, value in omitted.items() if name not in given]
    return [*words[:place], *(word for flag in flags for word in flag), *words[place + 1 :]]


def check_flags(command: str) -> None:
    """Asserts that what a command line names exists: flags, and values of a choice or numbers.

    Raises:
        FlagError: if a flag of `beam-dp` is unknown, misspelt or missing, or a value is refused.
    """
    words = words_of(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", MAKEFILE, re.M), command
    elif words[0] == "python" and words[1].startswith("benchmarks/"):
        assert (ROOT / words[1]).exists(), command
    elif words[0] == "pip":
        for extra in re.findall(r"beam_dp\[(\w+)\]", command):
            assert extra in importlib.metadata.metadata("beam_dp").get_all("Provides-Extra")
    elif words[0] == "beam-dp" and words[1] in cli.PIPELINES:
        flags = flags_of_program(cli.PIPELINES[words[1]])
        _, rest = parse_own(flags, words[2:], program=words[1], description="")
        read_beam_flags(rest, flags)
    elif words[0] == "beam-dp":
        _, unknown = cli.command_parsers()[0].parse_known_args(words[1:])
        assert unknown == [], command


class Reader:
    """Follows blocks in the working directory.

    Args:
        printed: returns what was printed since it was asked last; of Beam's threads, too.
    """

    def __init__(self, printed: Callable[[], str]) -> None:
        self.names: dict[str, Any] = {"__name__": "page"}
        self._printed = printed
        self._last = ""

    def follow(self, block: Block) -> None:
        """Does what a block says; asserts that what it shows is what happens."""
        if block.file:
            pathlib.Path(block.file).write_text(block.text, encoding="utf-8")
        if block.kind == "shell":
            for command, shown in block.commands():
                self._type(command, shown)
        elif block.kind == "python":
            self._run(block)
        elif block.kind == "yaml" and not block.file:
            assert cli.main(_with_fields(yaml.safe_load(block.text))) == 0, self._printed()
        elif block.kind == "json" and not block.file:
            _read_json(block.text)
        elif block.kind == "text":
            told = self._last + self._printed()
            assert missing(block.text, told) == "", (str(block), told)

    def _type(self, command: str, shown: str) -> None:
        words = words_of(command)
        self._printed()
        if words[:2] == ["python", "-c"]:
            exec(words[2], {})
        elif words[0] == "pip":
            check_flags(command)
        else:
            assert words[0] == "beam-dp", command
            code = cli.main(words[1:])
            self._last = self._printed()
            assert code in EXIT_CODES.get(words[1], (0,)), (command, self._last)
        assert missing(shown, self._last) == "", (command, self._last)

    def _run(self, block: Block) -> None:
        """Runs Python a statement at a time; what stands behind one as its value must be it."""
        lines = block.text.splitlines()
        for step in ast.parse(block.text).body:
            assert step.end_lineno is not None
            # Errors then name the line of the page.
            ast.increment_lineno(step, block.line)
            comment = lines[step.end_lineno - block.line - 1].partition("  # ")[2]
            self._printed()
            if isinstance(step, ast.Expr):
                code = compile(ast.Expression(step.value), block.page, "eval", dont_inherit=True)
                value = eval(code, self.names)
                if NUMBER.match(comment):
                    _check_numbers(comment, self._printed() if value is None else str(value))
            else:
                exec(
                    compile(ast.Module([step], []), block.page, "exec", dont_inherit=True),
                    self.names,
                )


def _check_numbers(comment: str, told: str) -> None:
    """Asserts that the numbers of a comment are those of a value, as far as they are written."""
    for stated, found in zip(NUMBER.findall(comment), NUMBER.findall(told), strict=True):
        places = len(stated.partition(".")[2])
        assert round(number(found), places) == number(stated), (comment, told)


def _read_json(text: str) -> None:
    """Reads a domain, a part of one, or a query a line, as the programs do."""
    if text.startswith('{"attributes"'):
        dp.read_open_domain(text)
    elif text.startswith(('"impossible"', '"determines"')):
        dp.parse_domain(f'{{"attributes": {json.dumps(CENSUS)}, {text}}}')
    elif '{"open"' in text:
        with pytest.raises(dp.InputError, match="is open"):
            dp.read_open_domain(f'{{"attributes": [{text}]}}')
    elif text.startswith('{"name"'):
        dp.read_open_domain(f'{{"attributes": [{text}]}}')
    else:
        queries = dp.LinearQueries(dp.read_domain("visits.json"))
        for line in text.splitlines():
            assert read_line(queries, line).error is None, line


def _with_fields(fields: dict[str, Any]) -> list[str]:
    """Writes the pipeline of the page anew, with these fields of queries; returns what runs it."""
    job = yaml.safe_load(pathlib.Path("visits.yaml").read_text("utf-8"))
    reading, _ = job["pipeline"]["transforms"]
    config = {"num_records": "noisy", "output": "out/fields", **_PROMISE, **fields}
    job["pipeline"]["transforms"] = [reading, {"type": "AnswerQueries", "config": config}]
    pathlib.Path("fields.yaml").write_text(yaml.safe_dump(job))
    return ["run-yaml", "--yaml_pipeline_file", "fields.yaml"]
