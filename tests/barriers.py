"""A pipeline without what keeps a draw of noise apart from its reader."""

from typing import Any

import apache_beam as beam
import pytest

from beam_dp.transforms import writing


def remove_barrier(patch: pytest.MonkeyPatch) -> None:
    """Lets a reader be one stage with the draw, so that both are done again together.

    Also without hints: what has another hint is in another stage, by accident and on FnApiRunner.
    """

    def keep(transform: beam.PTransform, **_: Any) -> beam.PTransform:
        return transform

    patch.setattr(beam, "Reshuffle", lambda: beam.Map(lambda element: element))
    patch.setattr(beam.PTransform, "with_resource_hints", keep)


def remove_barriers(patch: pytest.MonkeyPatch) -> None:
    """One fused step draws and writes."""
    remove_barrier(patch)

    def expand(self: Any, shards: Any) -> Any:
        return (
            shards
            | beam.Map(lambda shard: (shard[0], [shard[1]]))  # this small release is one piece
            | beam.ParDo(writing._Commit(self.directory))
        )

    patch.setattr(writing.WriteRelease, "expand", expand)
