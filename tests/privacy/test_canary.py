"""Data leaves only through noise: no output distinguishes jobs on neighbours.

Noise comes from a script that answers the same whatever the data are, so everything that a job
shows must be equal to the byte: a difference went around the noise. The last tests add a leak by
hand, and see it.
"""

import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from jobs import DOMAIN, job_flags, people
from leaks import LEAKS
from noise_sources import NoNoise, SeededEntropy
from observe import Observed, SameWhateverTheData, clean, left_by, observe

import beam_dp.transforms.counting.summarise as encode_module
from beam_dp.storage import store as filesystem
from beam_dp.transforms.drawing import one_worker
from pipelines.release_intervals import main as release_intervals
from pipelines.release_synthetic_database import main

pytestmark = pytest.mark.job
FORMATS = ("csv", "parquet", "avro")
ONE_LEAK_ALWAYS = [
    pytest.param(leak, marks=[pytest.mark.part] * (number > 0)) for number, leak in enumerate(LEAKS)
]
MARK = "xkcdcanary"
BROKEN = "not UTF-8"  # stands for bytes that are not; formats with types write them over it
Row = dict[str, Any]
Program = Callable[[Sequence[str]], int]


def common(num_records: int = 300) -> list[Row]:
    return people(num_records).to_pylist()


def marked() -> list[Row]:
    """The records of one more person, who is remarkable in every way."""
    home = 424_242
    return [
        {"household": home, "age": 100, "sex": "Male", "smokes": None},  # the only such age
        {"household": home, "age": 31337, "sex": "Male", "smokes": True},  # out of the domain
        {"household": home, "age": 33, "sex": MARK, "smokes": False},
        {"household": home, "age": MARK, "sex": "Female", "smokes": False},  # of another type
        {"household": home, "age": float("nan"), "sex": "Female", "smokes": False},
        {"household": home, "age": None, "sex": None, "smokes": None},
        {"household": home, "age": 10**25, "sex": "", "smokes": MARK},
        {"household": MARK, "age": 44, "sex": "Female", "smokes": True},
        {"household": home, "age": "9" * 5000, "sex": BROKEN, "smokes": False},
        *[{"household": home, "age": 99, "sex": "Female", "smokes": True}] * 700,  # a heavy unit
    ]


def write_input(path: pathlib.Path, rows: Sequence[Row]) -> None:
    """Writes rows of any types; in CSV, some of the marked person's lines are malformed, too."""
    names = ["household", "age", "sex", "smokes"]
    texts = [
        [None if row[name] is None else str(row[name]) for name in names]
        for row in rows
    ]  # fmt: skip
    is_marked = any(MARK in (row["household"], row["sex"]) for row in rows)
    if path.suffix == ".csv":
        lines = [",".join(text or "" for text in line).encode() for line in texts]
        if is_marked:
            lines[150:150] = [
                b'424242,33,"' + MARK.encode(),  # an open quote
                b"424242,33,Male,true,what,is," + MARK.encode(),  # too many fields
                b"424242",
                b"424242,33,Fem\xff\xfeale,true",
                b"\x00\x00" + MARK.encode(),
                b"",
                b"424242,1e999,Male," + MARK.encode(),
            ]
        text = b"\n".join([",".join(names).encode(), *lines]) + b"\n"
        path.write_bytes(text.replace(BROKEN.encode(), b"\xff" * len(BROKEN)))
    elif path.suffix == ".parquet":
        columns = zip(*texts, strict=True) if texts else [[]] * len(names)
        data = [
            pa.array([None if each is None else each.encode() for each in column], pa.binary())
            for column in columns
        ]
        if is_marked:
            data = [
                pa.concat_arrays([column, pa.array([b"\xff" + MARK.encode()], pa.binary())])
                for column in data
            ]
        # Columns of strings that were not checked to be UTF-8.
        data = [column.view(pa.string()) for column in data]
        pyarrow.parquet.write_table(pa.table(data, names=names), path, row_group_size=400)
    else:
        kinds = ["null", "boolean", "long", "double", "string"]
        fields = [{"name": name, "type": kinds} for name in names]
        schema = {"type": "record", "name": "Person", "fields": fields}
        fitting = [
            {k: float(v) if isinstance(v, int) and abs(v) > 2**62 else v for k, v in row.items()}
            for row in rows
        ]
        with path.open("wb") as file:
            fastavro.writer(file, schema, fitting, sync_interval=4000)
        path.write_bytes(path.read_bytes().replace(BROKEN.encode(), b"\xff" * len(BROKEN)))


def job(
    folder: pathlib.Path,
    rows: Sequence[Row],
    file_format: str,
    *,
    switches: Sequence[str] = (),
    scripted: bool = True,
    program: Program = main,
    **flags: Any,
) -> Observed:
    """What is seen of a job on these rows; every job of a test runs in the same folder."""
    clean(folder)
    path = folder / f"people.{file_format}"
    write_input(path, rows)
    defaults = {"epsilon": "1", "privacy_unit": "household", "max_records_per_unit": "2"}
    given = {**defaults, "input": str(path), **flags}
    argv = [*job_flags(folder, people(2), domain=DOMAIN, **given), *switches]
    with pytest.MonkeyPatch.context() as patch:
        return observe(argv, folder, patch, scripted=scripted, program=program)


def neighbours() -> dict[str, list[Row]]:
    rows = common()
    return {"with": rows + marked(), "without": rows, "empty": []}


def jobs(folder: pathlib.Path, file_format: str = "csv", **given: Any) -> dict[str, Observed]:
    """What is seen of a job on each of the neighbours."""
    return {n: job(folder, rows, file_format, **given) for n, rows in neighbours().items()}


def assert_same(seen: dict[str, Observed]) -> None:
    first = seen["without"]
    for name, other in seen.items():
        assert not first.explain(other), name


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory) -> Iterator[None]:
    """Does first what a process does only once; imports are not compiled into files meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        job(tmp_path_factory.mktemp("warm"), common(4), "csv")
        yield


COUNTED = ("--count_left_out", "--expect_records=1000000")
AGES: dict[str, Any] = {"workload": None, "num_records": None, "attribute": "age"}
JOBS: list[dict[str, Any]] = [
    *({"file_format": each} for each in FORMATS),
    *(
        {"file_format": each, "privacy_unit": "record", "max_records_per_unit": None}
        for each in FORMATS
    ),
    *({"file_format": each, "switches": COUNTED} for each in FORMATS),
    *(
        {"program": release_intervals, "strategy": each, "epsilon": "1000", **AGES}
        for each in ("best", "textbook_tree", "sine")
    ),
    {"mechanism": "gaussian"},
    {"mechanism": "laplace", "calibration": "textbook", "delta": "0"},
    {"mechanism": "mwem", "num_rounds": "3"},
    {"mechanism": "mwem", "num_rounds": "annealed"},
    {"mechanism": "mwem", "calibration": "textbook", "num_records": "300", "num_rounds": "3"},
    # Where it stops whatever the data: else that is for the noise of a comparison to hide.
    {"calibration": "textbook", "num_records": "300", "num_rounds": "3", "stop_below": "1"},
    {"workload": "marginals:1", "num_records": "300", "neighboring": "replace_one"},
    {"direct_runner_bundle_repeat": "1"},
    {"output": "what it is to write to is a file"},
]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            each,
            marks=[pytest.mark.part] * (number >= len(FORMATS)),
            id=" ".join(value for value in each.values() if isinstance(value, str))
            + ", counted" * ("switches" in each),
        )
        for number, each in enumerate(JOBS)
    ],
)
def test_outputs_do_not_distinguish_neighbours(tmp_path, given):
    fails = "output" in given  # a job that fails, fails alike
    if fails:
        given = {"output": str(tmp_path / "job" / "people.csv" / "out")}
    seen = {}
    for name, rows in neighbours().items():
        seen[name] = job(tmp_path / "job", rows, **{"file_format": "csv", **given})
        assert (seen[name].exit_code == 0) != fails, seen[name].stderr
        assert MARK not in seen[name].everything()
        for path, data in left_by(tmp_path / "job"):
            assert MARK.encode() not in data, path
    assert_same(seen)
    if "switches" in given:
        assert json.loads(seen["with"].card)["left_out"]["counts"]
        assert "warning: the noisy number of records" in seen["with"].stderr
    elif "file_format" in given:  # card, hypothesis, measurements and records
        assert json.loads(seen["with"].card)["num_records"]["noisy"] > 0
        assert len(seen["with"].files) == 4
    elif "strategy" in given:
        assert len(seen["with"].files) == 2


@pytest.mark.part
def test_error_of_a_failing_step_does_not_show_its_records(tmp_path, monkeypatch):
    def failing(domain: Any, unit: str, as_cells: bool, batch: Any) -> Any:
        raise ValueError(f"{MARK} {batch.num_rows}: {batch.to_pydict()}")

    monkeypatch.setattr(encode_module, "encode_records", failing)
    seen = jobs(tmp_path / "job")
    assert seen["with"].exit_code == seen["without"].exit_code == 1
    assert not seen["without"].explain(seen["with"])
    assert MARK not in seen["with"].everything()
    assert seen["with"].files == ()


def schemas(folder: pathlib.Path) -> list[Any]:
    found = []
    for path in sorted((folder / "out").glob("*.avro")):
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            found.append(
                [path.name[:7], reader.writer_schema, sorted(reader.metadata), reader.codec]
            )
            if path.name.startswith(("hypothesis", "measurements")):
                found.append([[row["attributes"], row["shape"]] for row in reader])
    return found


@pytest.mark.part
@pytest.mark.parametrize("file_format", FORMATS)
def test_card_and_schema_have_the_same_structure_under_different_noise(
    tmp_path, file_format, fresh_seed, monkeypatch
):
    SeededEntropy(fresh_seed).put_in(monkeypatch)
    seen, found = {}, {}
    for name, rows in neighbours().items():
        seen[name] = job(tmp_path / "job", rows, file_format, scripted=False, epsilon="0.5")
        found[name] = schemas(tmp_path / "job")
    assert_same(seen)
    assert found["with"] == found["without"] == found["empty"]


@pytest.mark.parametrize("leak", ONE_LEAK_ALWAYS)
def test_comparison_detects_a_deliberate_leak(tmp_path, leak, monkeypatch):
    add, kind = LEAKS[leak]
    seen = {}
    for name, rows in neighbours().items():
        if name == "empty":
            continue
        with pytest.MonkeyPatch.context() as patch:
            add(patch)
            seen[name] = job(tmp_path / "job", rows, "csv")
    assert kind in seen["without"].differences(seen["with"])
    with pytest.raises(AssertionError):
        assert_same(seen)


@pytest.mark.part
def test_progress_messages_of_a_slow_job_do_not_count_as_a_leak(tmp_path, monkeypatch):
    """A job that prints often that it is working shows the same as one that never does."""
    quick = job(tmp_path / "job", common(), "csv")
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", 0.001)
    assert not quick.explain(job(tmp_path / "job", common(), "csv"))


@pytest.mark.part
def test_comparison_lists_draft_files_that_were_not_removed(tmp_path, monkeypatch):
    """The number of files is part of the comparison, also of those whose names begin with a dot."""
    monkeypatch.setattr(filesystem.LocalStore, "remove_draft", lambda self, draft: None)
    seen = job(tmp_path / "job", common(), "csv")
    assert any(".draft-" in name for name, _, _ in seen.files)


@pytest.mark.part
def test_comparison_detects_different_data_if_noise_is_negligible(tmp_path, monkeypatch):
    """The comparison is not blind: noise so small that it hides nothing shows the difference."""
    monkeypatch.setattr("observe.SameWhateverTheData", NoNoise)
    unit = {"privacy_unit": "record", "max_records_per_unit": None}
    seen = jobs(tmp_path / "job", epsilon="1000", **unit)
    assert {"files", "card"} <= set(seen["with"].differences(seen["without"]))
    assert one_worker.NoiseSource is not NoNoise


def test_scripted_noise_gives_equal_answers_for_different_data():
    noise = SameWhateverTheData()
    one = noise.gaussian(np.zeros((4, 2), np.int64), 1.0)
    two = SameWhateverTheData().gaussian(np.full((4, 2), 10**6), 1.0)
    assert (one == two).all() and (one > 0).all()
