"""The step that draws noise, on one worker with enough memory, and a barrier."""

from __future__ import annotations

from typing import Any

import apache_beam as beam


def run_once(
    pipeline: beam.Pipeline, step: beam.PTransform, barrier: str, min_ram: int
) -> beam.PCollection[Any]:
    """Returns the output of a step that is given one public element, from behind a barrier.

    Not the counts: they are a side input of the step, so that no records still make a release.

    A hint makes an environment of its own, and a runner fuses only what is in one. So the element
    before the step and the barrier behind it have the same hint: stages end where they would end
    without it.

    Args:
        pipeline: to which the step is added.
        step: a named ``ParDo`` that draws noise, with its side inputs.
        barrier: its name, as a person sees it.
        min_ram: of the worker that runs it, in bytes; asked of the runner, so it must be public.
    """
    return (
        pipeline
        | "Once" >> beam.Create([None]).with_resource_hints(min_ram=min_ram)
        | step.with_resource_hints(min_ram=min_ram)
        | barrier >> beam.Reshuffle().with_resource_hints(min_ram=min_ram)
    )
