"""From records to a directory, with a mechanism that adds no noise."""

from __future__ import annotations

import collections
import functools
import logging
import pickle
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from barriers import remove_barrier
from fakes import COLLECTED, DOMAIN, DRAWS, WORKLOAD, NoPrivacy, collect, guarantee, pipeline

import beam_dp.transforms.drawing.release as release_module
from beam_dp.domain.attributes import BooleanAttribute
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.noise.source import NoiseSource
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.kinds import read_release
from beam_dp.summaries.histogram import (
    HistogramAccumulator,
    MarginalsAccumulator,
    choose_accumulator,
)
from beam_dp.transforms import PrivateStepError, ReleaseSyntheticDatabase, WriteRelease
from beam_dp.transforms.drawing import one_worker

PEOPLE = [
    {"age": i % 10, "sex": "fm"[i % 2], "smokes": [True, False, None][i % 3], "household": i // 4}
    for i in range(500)
]


def released(directory: Path) -> collections.Counter:
    found: collections.Counter = collections.Counter()
    for batch in read_release(directory).records():
        found.update(zip(*batch.values(), strict=True))
    return found


def as_counter(people: list[dict[str, Any]]) -> collections.Counter:
    return collections.Counter((p["age"], p["sex"], p["smokes"]) for p in people)


def run(
    people: list[Any],
    directory: Path,
    *,
    bundle_repeat: int = 0,
    domain: Domain = DOMAIN,
    workload: Workload = WORKLOAD,
    unit: str = "record",
    k: int = 1,
) -> None:
    with pipeline(bundle_repeat) as p:
        _ = (
            p
            | beam.Create(people)
            | ReleaseSyntheticDatabase(domain, workload, guarantee(unit, k), NoPrivacy())
            | WriteRelease(directory)
        )


@pytest.mark.mostly_slow(one_in=2)
@pytest.mark.parametrize("people", [PEOPLE, PEOPLE[:1], []], ids=["many", "one", "none"])
@pytest.mark.parametrize("unit", ["record", "household"])
def test_release_contains_the_records(tmp_path, people, unit):
    run(people, tmp_path / "out", unit=unit, k=1 if unit == "record" else 4)
    assert released(tmp_path / "out") == as_counter(people)


@pytest.mark.slow
def test_release_of_no_records_has_the_same_shape(tmp_path):
    run([], tmp_path / "none")
    run(PEOPLE, tmp_path / "many")
    for directory in ("none", "many"):
        draw = read_release(tmp_path / directory).draw_id
        names = [path.name.replace(draw, "") for path in (tmp_path / directory).iterdir()]
        assert sorted(names) == ["card.json", "hypothesis-.avro", "records--00000-of-00001.avro"]


@pytest.mark.slow
def test_unit_with_many_records_keeps_k_of_them(tmp_path):
    people = PEOPLE[:8] + [dict(PEOPLE[i % 7], household=77) for i in range(1000)]
    run(people, tmp_path / "out", unit="household", k=3)
    found = released(tmp_path / "out")
    assert found.total() == 3 + 3 + 3
    assert not found - as_counter(people)


@pytest.mark.slow
@pytest.mark.parametrize(
    "domain",
    [
        Domain((IntegerAttribute("age", 0, 9),)),
        Domain((IntegerAttribute("age", 4, 4),)),
        Domain((IntegerAttribute("age", 4, 4), BooleanAttribute("none"))),
    ],
    ids=["one attribute", "one cell", "an attribute that no record has"],
)
def test_releases_the_smallest_domains(tmp_path, domain):
    run(PEOPLE, tmp_path / "out", domain=domain, workload=marginals(domain, ways=1))
    kept = [p["age"] for p in PEOPLE if p["age"] == 4 or domain.num_cells == 10]
    expected = collections.Counter((age,) for age in kept) if "none" not in domain else {}
    assert released(tmp_path / "out") == expected


@pytest.mark.slow
def test_replayed_bundles_see_one_release(tmp_path):
    DRAWS.clear()
    with pipeline(bundle_repeat=2) as p:
        release = (
            p
            | beam.Create(PEOPLE)
            | ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy())
        )
        _ = release | collect("seen")
        _ = release | WriteRelease(tmp_path / "out")
    assert len(set(DRAWS)) == 3  # the replay did redraw
    assert len({draw_id for draw_id, _ in COLLECTED["seen"]}) == 1
    assert released(tmp_path / "out") == as_counter(PEOPLE)
    assert len(list((tmp_path / "out").iterdir())) == 3  # and left no draft


@pytest.mark.slow
def test_without_the_barrier_replayed_bundles_see_two_draws(monkeypatch):
    remove_barrier(monkeypatch)
    with pipeline(bundle_repeat=2) as p:
        _ = (
            p
            | beam.Create(PEOPLE)
            | ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy())
            | collect("seen")
        )
    assert len({draw_id for draw_id, _ in COLLECTED["seen"]}) == 3


@pytest.mark.slow
def test_writes_only_one_of_two_draws(tmp_path):
    with pipeline() as p:
        people = p | beam.Create(PEOPLE)
        arguments = (DOMAIN, WORKLOAD, guarantee(), NoPrivacy())
        one = people | "One" >> ReleaseSyntheticDatabase(*arguments)
        two = people | "Two" >> ReleaseSyntheticDatabase(*arguments)
        _ = (one, two) | beam.Flatten() | WriteRelease(tmp_path / "out") | collect("written")
    assert set(COLLECTED["written"]) == {str(tmp_path / "out")}
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_does_not_write_an_incomplete_draw(tmp_path):
    with pipeline() as p:
        _ = p | beam.Create([("0" * 32, (0, 2, b"half"))]) | WriteRelease(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_releases_in_one_pipeline_need_labels(tmp_path):
    with pipeline() as p:
        people = p | beam.Create(PEOPLE)
        for name in ("one", "two"):
            release = ReleaseSyntheticDatabase(
                DOMAIN, WORKLOAD, guarantee("household", 4), NoPrivacy()
            )
            release_of_name = people | f"Release {name}" >> release
            _ = release_of_name | f"Write {name}" >> WriteRelease(tmp_path / name)
    assert released(tmp_path / "one") == released(tmp_path / "two") == as_counter(PEOPLE)


@pytest.mark.slow
def test_sends_large_release_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(one_worker, "RELEASE_SHARD_BYTES", 100)
    run(PEOPLE, tmp_path / "out")
    assert released(tmp_path / "out") == as_counter(PEOPLE)


def test_refuses_bad_parameters_at_construction(tmp_path):
    with pytest.raises(InputError, match="domain"):
        ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy(max_cells=3))
    (tmp_path / "card.json").write_text("{}")
    with pytest.raises(InputError, match="output"):
        WriteRelease(tmp_path)
    windowed = pipeline() | beam.Create(PEOPLE) | beam.WindowInto(beam.window.FixedWindows(1))
    with pytest.raises(InputError, match="records"):
        windowed | ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy())
    with pytest.raises(InputError, match="records"):
        windowed | WriteRelease(tmp_path / "out")


@pytest.mark.slow
def test_keys_have_deterministic_coders(tmp_path, caplog):
    with caplog.at_level(logging.DEBUG):
        run(PEOPLE, tmp_path / "out", unit="household", k=2)
    assert "fallback" not in caplog.text.lower()
    assert "deterministic" not in caplog.text.lower()


@pytest.mark.slow
def test_logs_contain_no_records(tmp_path, caplog):
    people = [{"age": "tell-tale", "sex": object, "smokes": "tell-tale", "household": "tell-tale"}]
    with caplog.at_level(logging.DEBUG):
        run(people * 7, tmp_path / "out", unit="household", k=2)
    assert "tell-tale" not in "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("beam_dp")
    )
    progress = [r.getMessage() for r in caplog.records if r.name == "beam_dp.progress"]
    assert progress == ["draw"]


def test_no_noise_source_is_pickled():
    transform = ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy())
    drawing = functools.partial(
        release_module._released_database,
        transform.mechanism,
        transform.plan,
        transform.accumulator,
    )
    draw = one_worker.Draw(drawing)
    assert NoiseSource.__name__.encode() not in pickle.dumps(draw)


class Broken(NoPrivacy):
    def release(self, *arguments: Any, **keywords: Any) -> Any:
        raise ValueError("tell-tale")


def test_withholds_message_of_a_failing_private_step(tmp_path):
    transform = ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), Broken())
    with pytest.raises(PrivateStepError) as error, pipeline() as p:
        _ = p | beam.Create(PEOPLE) | transform
    assert "tell-tale" not in str(error.value)


def test_public_sizes_determine_the_summary():
    choose = choose_accumulator
    binary = Domain(tuple(BooleanAttribute(f"a{i}") for i in range(20)))
    assert isinstance(choose(binary, [("a0", "a1")]), MarginalsAccumulator)
    assert isinstance(choose(binary, marginals(binary, ways=3).marginals), HistogramAccumulator)
    assert isinstance(choose(binary, [binary.names]), HistogramAccumulator)
    huge = Domain(tuple(IntegerAttribute(f"a{i}", 0, 999) for i in range(9)))
    assert isinstance(choose(huge, marginals(huge, ways=2).marginals), MarginalsAccumulator)
    with pytest.raises(InputError, match="cells"):
        choose(huge, [huge.names])
