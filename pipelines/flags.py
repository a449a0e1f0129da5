"""Flags of a program: parsing of its command line, and reading of the flags that all share.

Beam's own flags pass through. A flag that neither Beam nor the program knows is refused with the
nearest known one, where Beam itself would only warn and drop it.
"""

from __future__ import annotations

from collections.abc import Sequence

from apache_beam.options import pipeline_options

from beam_dp.errors import InputError
from beam_dp.flags.command_line import in_words_of_flags, no_flag, parse_own, unknown_flag
from beam_dp.flags.flag import Flag, FlagError, Parser, nearest
from beam_dp.privacy.ledger.entries import Origin, place_text
from beam_dp.privacy.ledger.ledger import Ledger

EXIT_BAD_INPUT = 2
EXIT_JOB_FAILED = 1


def parse(
    flags: Sequence[Flag],
    argv: Sequence[str],
    *,
    program: str,
    description: str | None,
    parsed: tuple[dict[str, str], list[str]] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Returns the values of our flags as text, and what is left: Beam's own flags.

    ``parsed``: what ``parse_own`` has made of the command line, where it was parsed.
    """
    texts, rest = parsed or parse_own(flags, argv, program=program, description=description or "")
    if rest:
        _check_beam_flags(rest, [f"--{flag.name}" for flag in flags])
    return texts, rest


def _check_beam_flags(rest: Sequence[str], our_options: Sequence[str]) -> None:
    """Refuses what Beam does not know either, and what Beam knows but cannot read."""
    beam = _beam_parser()
    # A lone "--" ends the flags for argparse, and would hide everything behind it.
    _, unknown = (None, ["--"]) if "--" in rest else beam.parse_known_args(rest)
    if not unknown:
        return
    name = unknown[0].partition("=")[0]
    if not name.startswith("-"):
        raise no_flag(name, rest)
    raise unknown_flag(name, nearest(name, [*our_options, *_options(beam)]))


def beam_options() -> list[str]:
    """Returns the flags that the installed Beam knows, with their dashes."""
    return _options(_beam_parser())


def _beam_parser() -> Parser:
    parser = Parser(add_help=False, conflict_handler="resolve")
    # Beam marks options that a job template fills in later by a method of its own parser.
    parser.add_value_provider_argument = parser.add_argument  # type: ignore[attr-defined]
    for options in pipeline_options.PipelineOptions.__subclasses__():
        # Others are there or not, as modules of Beam happen to be imported.
        if options.__module__ == pipeline_options.__name__:
            options._add_argparse_args(parser)
    return parser


def _options(parser: Parser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]


def typed(argv: Sequence[str]) -> dict[str, str]:
    """Returns the values of a command line by flag, as they were typed, checked or not.

    Example:
        >>> typed(["--input=a.csv", "--output", "out", "--validate_only"])
        {'input': 'a.csv', 'output': 'out'}
    """
    values = {}
    for text, following in zip(argv, [*argv[1:], "--"], strict=True):
        name, equals, value = text.partition("=")
        if name.startswith("--") and (equals or not following.startswith("--")):
            values[name[2:]] = value if equals else following
    return values


def one_line(error: InputError | FlagError, flags: Sequence[Flag]) -> str:
    """Returns the line for the user: `error: --epsilon: 0.0 is refused; must be ...`."""
    return f"error: {in_words_of_flags(error, flags)}"


def read_ledger(given: dict[str, str]) -> Ledger | None:
    """Returns the ledger that flags name, if they do."""
    for name, other in (("ledger", "dataset_id"), ("dataset_id", "ledger")):
        if name in given and other not in given:
            raise FlagError(f"--{other}: missing; must be given with --{name}")
    for name in ("purpose", "who"):
        if name in given and "ledger" not in given:
            raise FlagError(f"--ledger: missing; must be given with --{name}")
    return Ledger(given["ledger"]) if "ledger" in given else None


def read_origin(given: dict[str, str]) -> Origin | None:
    """Returns who releases something, why and where, for the ledger; None without one."""
    if "ledger" not in given:
        return None
    said = {name: given[name] for name in ("who", "purpose") if name in given}
    return Origin(**said, output=place_text(given["output"]))
