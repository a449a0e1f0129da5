"""Two releases in one directory: refused while the pipeline is built, under whatever path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_dp.domain.files import parse_domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.storage.bucket import BucketStore
from beam_dp.transforms import WriteAnswers, WriteRelease

GUARANTEE = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
PLAN = plan_private_mw(parse_domain('{"age": 3}'), GUARANTEE, 10, num_questions=2)
WRITERS = {
    "release": WriteRelease,
    "answers": lambda directory: WriteAnswers(directory, PLAN),
}


def apply(pipeline: beam.Pipeline, writer: str, directory: object) -> None:
    number = len(pipeline.applied_labels)
    given = pipeline | f"Given {number}" >> beam.Create([]).with_output_types(Any)
    _ = given | f"Write {number}" >> WRITERS[writer](directory)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "link").symlink_to(".")
    return tmp_path


@pytest.mark.parametrize("first", WRITERS)
@pytest.mark.parametrize("second", WRITERS)
@pytest.mark.parametrize("path", ["out", "out/", "./out", "deep/../out", "{}/out", "link/out"])
def test_refuses_second_writer_of_a_directory(folder, first, second, path):
    pipeline = beam.Pipeline("FnApiRunner")
    apply(pipeline, first, Path("out"))
    path = path.format(folder)
    with pytest.raises(InputError) as refused:
        apply(pipeline, second, path)
    condition = "must be another directory: this pipeline writes there already"
    assert str(refused.value) == f"output: {path!r} is refused; {condition}"


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_distinguishes_folders_of_buckets(monkeypatch, scheme):
    monkeypatch.setattr(BucketStore, "check_free", lambda self: None)
    monkeypatch.setattr(BucketStore, "drafts", lambda self: [])
    pipeline = beam.Pipeline("FnApiRunner")
    for url in ("one/out", "one/out2", "two/out"):
        apply(pipeline, "release", f"{scheme}://{url}")
    with pytest.raises(InputError, match="writes there already"):
        apply(pipeline, "answers", f"{scheme}://two/out/")


def test_accepts_other_directories_and_other_pipelines(folder):
    pipeline = beam.Pipeline("FnApiRunner")
    for path in ("out", "deep/out", "Out"):
        apply(pipeline, "release", path)
    apply(beam.Pipeline("FnApiRunner"), "release", "out")


def test_refused_writer_does_not_reserve_the_directory(folder):
    pipeline = beam.Pipeline("FnApiRunner")
    windowed = (
        pipeline | "Records" >> beam.Create([]) | beam.WindowInto(beam.window.FixedWindows(1))
    )
    with pytest.raises(InputError, match="records"):
        _ = windowed | WriteRelease("out")
    apply(pipeline, "release", "out")
