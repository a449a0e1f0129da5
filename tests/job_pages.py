"""The counters of a job that releases, and what the files of the release say they must be."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

import beam_dp as dp
from beam_dp.queries.reader import read_line
from beam_dp.transforms.job_page import COUNTERS

BEAM = "beam"  # the namespace of Beam's own counters, which not all runners show
DOMAIN = dp.Domain((dp.IntegerAttribute("age", 0, 9), dp.CategoricalAttribute("sex", ("f", "m"))))
PROMISE = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
# One record less, and one of another kind: outside the domain.
PEOPLE = [{"age": number % 10, "sex": "fm"[number % 2]} for number in range(40)]
NEIGHBOURS = (PEOPLE, [*PEOPLE, {"age": 3, "sex": "f"}], [*PEOPLE, {"age": 99, "sex": "f"}])
LINES = ['{"conjunction": {"sex": "f"}}', '{"conjunction": {"sex": "unknown"}}']
QUERIES = [read_line(dp.LinearQueries(DOMAIN), line) for line in LINES]
ANSWERS = dp.plan_workload_answers(dp.LinearWorkload(DOMAIN, [QUERIES[0].query]), PROMISE, "noisy")
HORIZON = dp.Horizon(0, 5, 2, 0)
PAIR = dp.marginals(DOMAIN, ways=2)
WINDOWS = dp.plan_window_tables(PAIR, HORIZON, dp.WindowUnit("record", 1, 1, 1), 1.0, 1e-9)


def released(kind: str, records: Any, out: Path) -> Any:
    """Adds the release of a kind to a pipeline."""
    if kind == "synthetic database":
        release = dp.ReleaseSyntheticDatabase(DOMAIN, PAIR, PROMISE, dp.Gaussian())
        return records | release | dp.WriteRelease(out)
    if kind == "intervals":
        return records | dp.ReleaseIntervals(DOMAIN, "age", PROMISE) | dp.WriteRelease(out)
    if kind == "answers":
        return records | dp.AnswerWorkload(ANSWERS, QUERIES) | dp.WriteAnswers(out, ANSWERS)
    horizon_id = dp.begin_windows(WINDOWS, out, event_time="t", arrival="t", replayable=True)
    timed = records | beam.Map(lambda row: row | {"t": row["age"]})
    return timed | dp.ReleaseWindows(WINDOWS, out, horizon_id, "t", "t")


KINDS = ("synthetic database", "intervals", "answers", "windows")


def run(kind: str, people: Sequence[Any], out: Path, flags: Sequence[str] = ()) -> Any:
    """Releases, and returns the result of the job."""
    pipeline = beam.Pipeline(options=PipelineOptions(list(flags)))
    released(kind, pipeline | beam.Create(people), out)
    result = pipeline.run()
    result.wait_until_finish()
    return result


def counters(result: Any, namespace: str = COUNTERS) -> dict[str, int]:
    """The counters of a namespace, summed over steps; there must be no others, except Beam's."""
    found: dict[str, int] = {}
    for each in result.metrics().query()["counters"]:
        name = each.key.metric
        assert name.namespace in (COUNTERS, BEAM), name
        if name.namespace == namespace:
            found[name.name] = found.get(name.name, 0) + (each.result or 0)
    return found


def expected(out: Path) -> dict[str, int]:
    """What the files of the release say."""
    cards = sorted(out.rglob("card.json"))
    files = [path for path in out.rglob("*") if path.suffix != ".json" and path.is_file()]
    sizes = [path.stat().st_size for path in files]
    found = {"releases": len(cards), "files": len(files), "bytes": sum(sizes)}
    for card in cards:
        release = dp.read_release(card.parent)
        if isinstance(release, dp.SyntheticDatabase):
            found["records"] = release.num_records
        elif release.KIND == "answers":
            found["answers"] = release.card["num_answers"]
    return {f"{name}_committed": number for name, number in found.items()}


def write_row(row: Any, folder: Path) -> None:
    """A sink that keeps the rows of each attempt."""
    (folder / f"row-{uuid.uuid4()}").write_text(json.dumps(row._asdict()), encoding="utf-8")
