"""Run a Beam YAML pipeline, as Beam's own program does, but with one-line error messages.

    beam-dp run-yaml --yaml_pipeline_file visits.yaml

Beam's own program shows the traceback of a failed job, which may quote records. Here every failure
before the job runs (an invalid field, a mistake in the file, a transform that can't be built, a
missing module) is reported in one line, with exit code 2. A failed job is reported as by the other
programs. After a job, private drafts of this package's transforms are removed.
`beam-dp run-yaml --help` lists the flags.
"""

from __future__ import annotations

import logging
import pathlib
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from beam_dp.errors import public_fault
from beam_dp.flags.command_line import importing
from beam_dp.flags.flag import Flag, FlagError
from beam_dp.yaml import PROVIDERS

from . import flags
from .progress import Progress, nothing
from .running import is_launched, run_main, run_pipeline, stage_pipeline

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

FLAGS = (
    Flag("yaml_pipeline_file", "the pipeline, in Beam YAML", "FILE", True, form="file"),
    Flag("jinja_variables", "a JSON object with a template's variables", "JSON", form="object"),
)
# Libraries that read records, even while transforms are built: their messages may quote records.
_READ_RECORDS = (
    "/pandas/",
    "/polars/",
    "/pyarrow/",
    "/fastavro/",
    "/duckdb/",
    "/apache_beam/dataframe/",
)
_SCHEMA_FOLLOWS = "Failed validating "


def _run(given: dict[str, str], beam_flags: Sequence[str], progress: Progress) -> int:
    with importing():
        from beam_dp.transforms.writing import outputs_of

        from .runners import pipeline_of
    # The root logger also gets Beam's warnings about missing optional libraries.
    root = logging.getLogger()
    root.addFilter(nothing)
    try:
        options, build = _read(given, beam_flags)
        pipeline = pipeline_of(options)
        build(pipeline)
    except FlagError:
        raise
    except Exception as error:
        raise FlagError(_told(error, given["yaml_pipeline_file"])) from None
    finally:
        root.removeFilter(nothing)
    progress.tell_warnings()
    outputs = outputs_of(pipeline)
    progress.say(f"{given['yaml_pipeline_file']}; runner {type(pipeline.runner).__name__}")
    if is_launched(pipeline):
        return stage_pipeline(pipeline, progress)
    if not run_pipeline(pipeline, progress, outputs):
        return flags.EXIT_JOB_FAILED
    for output in outputs:
        print(f"The release is in {output}. Look at it:\n  beam-dp describe {shlex.quote(output)}")
    return 0


def _read(
    given: dict[str, str], beam_flags: Sequence[str]
) -> tuple[PipelineOptions, Callable[[beam.Pipeline], None]]:
    """Returns the options of a pipeline, and a function that adds the transforms to a pipeline."""
    from apache_beam.yaml import yaml_provider
    from apache_beam.yaml.main import build_pipeline_components_from_argv

    # A file need not name this package as a provider. Providers that it names come first.
    providers = yaml_provider.merge_providers(yaml_provider.load_providers(PROVIDERS))
    yaml_provider.standard_providers().update(providers)
    argv = [*(f"--{name}={text}" for name, text in given.items()), *beam_flags]
    options, build, _ = build_pipeline_components_from_argv(argv)
    return options, build


def _told(error: BaseException, path: str = "") -> str:
    """Returns one line about a pipeline that can't be built.

    No record has been read yet, so the message is shown, with two exceptions. The first is an error
    inside a library that reads records: some transforms, such as Beam's ``ReadFromCsv``, read files
    when they are built. The second is a missing module that the YAML does not name.
    """
    chain = [error]
    while (before := chain[-1]).__cause__ or (
        before.__context__ and not before.__suppress_context__
    ):
        chain.append(before.__cause__ or before.__context__ or before)
    cause = chain[-1]
    places = [
        frame.filename.replace("\\", "/")
        for part in chain
        for frame in traceback.extract_tb(part.__traceback__)
    ]
    if isinstance(cause, ImportError):
        is_shown = (fault := public_fault(cause)) is not None and _is_named(cause, path)
        text = f"the pipeline can't be built: {fault}"
    else:
        is_shown = not any(reader in place for reader in _READ_RECORDS for place in places)
        # For a file that does not match Beam's schema, the message continues with the long schema.
        text = " ".join(str(error).partition(_SCHEMA_FOLLOWS)[0].split()) or type(error).__name__
    if is_shown:
        return text
    place = places[-1].rpartition("/")[2]
    return (
        f"the pipeline can't be built: {type(cause).__name__} in {place}; its"
        " message is withheld, because it may quote records, and was not stored"
    )


def _is_named(error: BaseException, path: str) -> bool:
    """Returns whether the YAML names the missing module.

    If so, the name did not come from a record and may be shown.
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    try:
        return bool(name) and str(name) in pathlib.Path(path).read_text("utf-8")
    except (OSError, ValueError):
        return False


# The exit code: 0, 1 if the job failed, 2 if the command line is invalid.
main = partial(run_main, "run_yaml", FLAGS, __doc__, _run)

if __name__ == "__main__":
    sys.exit(main())
