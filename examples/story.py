"""Prints the steps of a tutorial, with each command and each line of Python that it runs."""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

WIDTH = 80


class Story:
    """A tutorial that runs in its own folder, which is emptied first."""

    def __init__(self, folder: pathlib.Path) -> None:
        # An earlier run wrote it, and a release is never overwritten.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder.resolve()
        self._num_steps = 0

    @classmethod
    def from_command_line(cls, name: str, description: str) -> Story:
        """Returns the story of a script, in the folder ``name`` inside ``--folder``."""
        parser = argparse.ArgumentParser(description=description.partition("\n")[0])
        parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("demo-output"))
        return cls(parser.parse_args().folder / name)

    def step(self, title: str, text: str = "") -> None:
        """Prints the title of a step and its introduction."""
        self._num_steps += 1
        print(f"\n\n{self._num_steps}. {title}\n{'-' * WIDTH}")
        self.say(text)

    def say(self, text: str) -> None:
        """Prints a paragraph."""
        if text:
            lines = textwrap.wrap(" ".join(text.split()), WIDTH, break_on_hyphens=False)
            print("\n" + "\n".join(lines), flush=True)

    def run(self, command: str, *, code: int = 0, shown: str = "") -> str:
        """Runs a command in the folder, and prints the command and its output.

        Args:
            command: the command line.
            code: the exit code that it must have.
            shown: the command line to print, if it is shortened.

        Returns:
            The output, with errors.
        """
        words = shlex.split(command)
        print("\n" + (f"$ {shown}" if shown else _wrapped(words)), flush=True)
        # `beam-dp` of the environment that runs this script, whatever PATH says.
        done = subprocess.run(
            [sys.executable, "-m", "beam_dp.cli", *words[1:]],
            cwd=self.folder,
            env={**os.environ, "COLUMNS": str(WIDTH)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for line in done.stdout.splitlines():
            is_long = line.startswith(("[{", "{")) and len(line) > WIDTH
            print(f"    {line[:WIDTH] + ' ...' if is_long else line}".rstrip())
        if done.returncode != code:
            sys.exit(f"the command ended with exit code {done.returncode}; {code} was expected")
        return done.stdout

    def python(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Prints the body of a function, runs the function and returns its result."""
        print("\n" + _prompted(_body(function)), flush=True)
        return function(*arguments)

    def end(self, text: str) -> None:
        """Prints the last words."""
        self.say(text)
        print(f"\nAll files are in {self.folder}")


def _wrapped(words: list[str]) -> str:
    """Returns a command on several lines, broken before flags as a shell can read it."""
    lines = ["$ " + words[0]]
    for place, word in enumerate(words[1:], 1):
        quoted = f'"{word}"' if "'" in word else shlex.quote(word)
        value = words[place + 1] if place + 1 < len(words) else ""
        if word.startswith("--") and len(lines[-1] + quoted + value) > WIDTH - 6:
            lines[-1] += " \\"
            lines.append("      " + quoted)
        else:
            lines[-1] += " " + quoted
    return "\n".join(lines)


def _body(function: Callable[..., Any]) -> str:
    """Returns the source of a function's body, without its docstring and its ``return``."""
    source = textwrap.dedent(inspect.getsource(function))
    (parsed,) = ast.parse(source).body
    assert isinstance(parsed, ast.FunctionDef)
    steps = [step for step in parsed.body[1:] if not isinstance(step, ast.Return)]
    lines = source.splitlines()[steps[0].lineno - 1 : steps[-1].end_lineno]
    return textwrap.dedent("\n".join(lines))


def _prompted(code: str) -> str:
    """Returns Python code with the prompts of an interactive session."""
    going_on = (" ", ")", "]", "}", "except", "else")
    return "\n".join(
        ("... " if line.startswith(going_on) else ">>> ") + line for line in code.splitlines()
    )
