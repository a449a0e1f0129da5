"""Small jobs for the tests of programs: files on disk, and the flags that name them."""

import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from beam_dp.privacy.ledger.ledger import Ledger

DOMAIN: dict[str, Any] = {
    "attributes": [
        {"name": "age", "type": "numeric", "edges": [0, 20, 40, 60, 100]},
        {"name": "sex", "type": "categorical", "values": ["Female", "Male"]},
        {"name": "smokes", "type": "boolean", "nullable": True},
    ]
}


def people(num_records: int = 500) -> pa.Table:
    """A table of people, the same in every test; two people a household."""
    generator = np.random.default_rng(7)
    smokes = generator.integers(0, 3, num_records)
    return pa.table(
        {
            "household": pa.array(np.arange(num_records) // 2),
            "age": pa.array(generator.integers(0, 101, num_records)),
            "sex": pa.array(np.array(["Female", "Male"])[generator.integers(0, 2, num_records)]),
            "smokes": pa.array([None if value == 2 else bool(value) for value in smokes]),
        }
    )


def write_table(folder: pathlib.Path, table: pa.Table, file_format: str = "parquet") -> str:
    """Writes the table in one of the input formats, and returns the file's path."""
    path = folder / f"people.{file_format}"
    if file_format == "parquet":
        pyarrow.parquet.write_table(table, path)
    elif file_format == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        avro_types = {"bool": "boolean", "int64": "long", "double": "double", "string": "string"}
        schema = {
            "type": "record",
            "name": "Person",
            "fields": [
                {"name": field.name, "type": ["null", avro_types[str(field.type)]]}
                for field in table.schema
            ],
        }
        with path.open("wb") as file:
            fastavro.writer(file, schema, table.to_pylist())
    return str(path)


def job_flags(
    folder: pathlib.Path,
    table: pa.Table | None = None,
    *,
    domain: Mapping[str, Any] = DOMAIN,
    file_format: str = "parquet",
    **overrides: str | None,
) -> list[str]:
    """Flags of a valid job on that table, its files written; None drops a flag.

    A huge epsilon, so that noise does not hide a wrong answer.
    """
    domain_path = folder / "domain.json"
    domain_path.write_text(json.dumps(domain), encoding="utf-8")
    values: dict[str, str | None] = {
        "input": write_table(folder, people() if table is None else table, file_format),
        "domain": str(domain_path),
        "workload": "marginals:2",
        "epsilon": "1000",
        "delta": "1e-9",
        "neighboring": "add_or_remove_one",
        "privacy_unit": "record",
        "num_records": "noisy",
        "output": str(folder / "out"),
    }
    return [
        f"--{name}={value}" for name, value in {**values, **overrides}.items() if value is not None
    ]


def interval_flags(
    folder: pathlib.Path, table: pa.Table | None = None, **overrides: str | None
) -> list[str]:
    """Flags of a valid job that releases interval counts of ages; None drops a flag."""
    unused = {"workload": None, "num_records": None}
    values = {
        **unused,
        "attribute": "age",
        "privacy_unit": "household",
        "max_records_per_unit": "2",
        **overrides,
    }
    return job_flags(folder, table, **values)


def released_records(directory: pathlib.Path) -> list[dict[str, Any]]:
    """The records, read as any program reads Avro, under the users' own column names."""
    rows = []
    for path in sorted(directory.glob("records-*.avro")):
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            schema = reader.writer_schema
            assert isinstance(schema, dict)
            original = {
                field["name"]: field.get("original_name", field["name"])
                for field in schema["fields"]
            }
            rows += [{original[name]: row[name] for name in row} for row in reader]
    return rows


def refused_line(
    main: Callable[[list[str]], int],
    argv: Sequence[str],
    capfd: pytest.CaptureFixture[str],
    *patterns: str,
    folder: pathlib.Path | None = None,
) -> str:
    """Runs a program that must refuse its flags, in one line with these patterns; returns it.

    ``folder``: where nothing may be written.
    """
    before = None if folder is None else everything_under(folder)
    capfd.readouterr()
    code = main(list(argv))
    out, err = capfd.readouterr()
    assert (code, out) == (2, "") and re.fullmatch(r"error: [^\n]+\n", err), err
    for pattern in patterns:
        assert re.search(pattern, err), err
    assert folder is None or everything_under(folder) == before
    return err


def damage_pages(path: str | pathlib.Path) -> None:
    """Damages the pages of a Parquet file; header and footer stay whole, so only rows show it."""
    data = pathlib.Path(path).read_bytes()
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    damaged = data[:4] + bytes(byte ^ 255 for byte in data[4:end]) + data[end:]
    pathlib.Path(path).write_bytes(damaged)


def paid_by(
    flags: Sequence[str], folder: pathlib.Path, epsilon: float = 1e6, delta: float = 1e-6
) -> tuple[Ledger, list[str]]:
    """Returns a new ledger with a budget for the unit of a job, and the job's flags with it."""
    (unit,) = (flag.partition("=")[2] for flag in flags if flag.startswith("--privacy_unit="))
    ledger = Ledger(str(folder / "ledger.sqlite"))
    ledger.declare("people", epsilon, delta, unit, "add_or_remove_one")
    return ledger, [*flags, f"--ledger={ledger.name}", "--dataset_id=people"]


def breaks_later(patch: pytest.MonkeyPatch) -> None:
    """Leaves out the trial before a job: what is then broken broke while the job ran."""
    patch.setattr("pipelines.program.probe_output", lambda *_, **__: None)


def everything_under(folder: pathlib.Path) -> Sequence[str]:
    """Every path below a folder, hidden ones too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def files_of_one_draw(output: pathlib.Path, num_shards: int = 1) -> Sequence[str]:
    """Returns the names of all files of a synthetic database, with the draw id of its card."""
    draw_id = json.loads((output / "card.json").read_text(encoding="utf-8"))["draw_id"]
    return [
        "card.json",
        *([f"distinct-{draw_id}.avro"] if num_shards > 1 else []),
        f"hypothesis-{draw_id}.avro",
        f"measurements-{draw_id}.avro",
        *(f"records-{draw_id}-{n:05d}-of-{num_shards:05d}.avro" for n in range(num_shards)),
    ]


def text_of(values: Mapping[str, str | None]) -> list[str]:
    """Flags as typed; None drops a flag, an empty text makes it a switch."""
    return [
        f"--{name}" + (f"={value}" if value else "")
        for name, value in values.items()
        if value is not None
    ]


START = 1_700_000_000  # in 2023: the horizon is over
AGES = {"attributes": [{"name": "age", "type": "integer", "min": 0, "max": 3}]}


def write_landing(folder: pathlib.Path) -> str:
    """Two files: the second one arrives when the first window has closed."""
    landing = folder / "landing"
    landing.mkdir(exist_ok=True)
    for number, (arrived, rows) in enumerate(
        [(12, [(0, 0), (0, 9), (1, 11), (2, 13)]), (18, [(3, 9), (3, 12), (3, 12)])]
    ):
        path = landing / f"{number}.parquet"
        table = pa.table(
            {
                "age": [age for age, _ in rows],
                "t": [START + second for _, second in rows],
                "person": [age for age, _ in rows],
                "came": [START + arrived] * len(rows),
            }
        )
        pyarrow.parquet.write_table(table, path)
        os.utime(path, (START + arrived, START + arrived))
    return str(landing / "*.parquet")


def window_flags(folder: pathlib.Path, **overrides: str | None) -> list[str]:
    """Flags of a valid job of three windows; see ``text_of``."""
    values: dict[str, str | None] = {
        "input": write_landing(folder),
        "domain": json.dumps(AGES),
        "workload": "marginals:1",
        "event_time": "t",
        "arrival": "file_time",
        "start": "2023-11-14T22:13:20Z",
        "window": "10s",
        "num_windows": "3",
        "grace": "5s",
        "privacy_unit": "record",
        "epsilon": "2000",
        "delta": "0",
        "neighboring": "add_or_remove_one",
        "output": str(folder / "out"),
        "replay": "",
    }
    return text_of({**values, **overrides})


def key_flags(
    folder: pathlib.Path,
    *,
    keys: Any = None,
    file_format: str = "parquet",
    **overrides: str | None,
) -> list[str]:
    """Flags of a valid job on a column of keys, 50 planes by default; None drops a flag."""
    keys = [f"plane {number % 50}" for number in range(2000)] if keys is None else keys
    table = pa.table({"plane": keys, "seats": [2] * len(keys), "owner": list(range(len(keys)))})
    values: dict[str, str | None] = {
        "input": write_table(folder, table, file_format),
        "key": "plane",
        "max_sparsity": "10",
        "epsilon": "1000",
        "delta": "1e-9",
        "neighboring": "add_or_remove_one",
        "privacy_unit": "record",
        "output": str(folder / "out"),
    }
    return text_of({**values, **overrides})


def answer_flags(
    folder: pathlib.Path,
    lines: Sequence[str] = ('{"id": "women", "conjunction": {"sex": "Female"}}',),
    table: pa.Table | None = None,
    **overrides: str | None,
) -> list[str]:
    """Flags of a valid job that answers the queries of some lines; None drops a flag."""
    path = folder / "queries.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return job_flags(folder, table, workload=None, **{"queries": str(path), **overrides})
