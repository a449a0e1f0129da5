"""The wheels of `make dist`, in an empty environment of each version of Python that they name.

``PYTHONS=3.13`` chooses among them. An interpreter that is not here is skipped by its name.
"""

import json
import os

import pytest
from interpreters import HERE, built, interpreter, named_versions
from newcomers import GOLDEN, GOLDEN_RELEASES, Home, installed, reading_line

import beam_dp as dp
from beam_dp.hashing.evaluation import ENVIRONMENT_VARIABLE, available_backends

pytestmark = [pytest.mark.wheel, pytest.mark.release]
CHOSEN = os.environ.get("PYTHONS", "").split() or named_versions()
DOMAIN = {
    "attributes": [
        {"name": "age", "type": "integer", "min": 0, "max": 3},
        {"name": "sex", "type": "categorical", "values": ["f", "m"]},
    ]
}
IN_MEMORY = """
import warnings, beam_dp as dp, pyarrow.csv

warnings.filterwarnings("ignore", "epsilon 1000 protects little")
domain = dp.read_domain("domain.json")
guarantee = dp.Guarantee(1000, 1e-9, "add_or_remove_one", "record", 1)
people = pyarrow.csv.read_csv("people.csv")
released = dp.release(people, domain, dp.marginals(domain, ways=1), guarantee)
print(*released.answer(dp.marginals(domain, attributes=[["age"]]))[0].values)
"""


@pytest.fixture(scope="module", params=CHOSEN)
def reading(request, tmp_path_factory) -> Home:
    """What reads releases, alone."""
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"python{request.param} is not here")
    folder = tmp_path_factory.mktemp(f"python{request.param}-")
    return installed(folder, *reading_line(built(HERE)), python=python)


@pytest.fixture(scope="module")
def making(reading) -> Home:
    """Then what makes them, too."""
    reading.install(built(HERE))
    return reading


@pytest.mark.parametrize("release", GOLDEN_RELEASES)
def test_release_is_described_verified_and_reported(reading, release):
    reading.check_reading(release)


def test_release_answers_queries_on_each_python(reading):
    version = built(HERE).name.split("-")[1]
    assert reading.run("beam-dp", "--version") == f"beam-dp {version}\n"
    place = str(GOLDEN / "synthetic_database")
    (line,) = json.loads(reading.run("beam-dp", "answer", place, "--marginal=member", "--json"))
    assert line["records"] == pytest.approx([1253.414918, 1146.585082], abs=1e-6)


def test_wheel_kernel_hashes_like_the_local_one(making):
    """A compiler may make a kernel that is right, and takes each processor for the oldest."""
    program = "from beam_dp.hashing.evaluation import available_backends as a; print(*a())"
    backends = making.run("python", "-c", program).split()
    assert tuple(backends) == available_backends()
    (making.folder / "elsewhere" / "keys.txt").write_text("key 3\nkey 4\n", encoding="utf-8")
    place = GOLDEN / "sparse_project"
    release = dp.read_release(place)
    assert isinstance(release, dp.SparseRelease)
    true = release.answer_query(dp.SparseQuery({"key 3": 1, "key 4": 1}))
    for backend in backends:
        asked = ("answer", str(place), "--sparse", "keys.txt", "--json")
        answer = json.loads(making.run("beam-dp", *asked, **{ENVIRONMENT_VARIABLE: backend}))
        assert answer["value"] == pytest.approx(true.value)


def test_table_is_released_by_a_job_and_in_memory(making):
    elsewhere = making.folder / "elsewhere"
    (elsewhere / "domain.json").write_text(json.dumps(DOMAIN), encoding="utf-8")
    rows = "".join(f"{number % 4},{'fm'[number % 2]}\n" for number in range(400))
    (elsewhere / "people.csv").write_text(f"age,sex\n{rows}", encoding="utf-8")
    making.run(
        "beam-dp", "release-synthetic-database", "--runner=DirectRunner", "--input=people.csv",
        "--domain=domain.json", "--workload=marginals:2", "--epsilon=1000", "--delta=1e-9",
        "--neighboring=add_or_remove_one", "--privacy_unit=record", "--max_records_per_unit=1",
        "--num_records=noisy", "--output=released",
    )  # fmt: skip
    (line,) = json.loads(making.run("beam-dp", "answer", "released", "--marginal=age", "--json"))
    assert line["records"] == pytest.approx([100] * 4, abs=2)
    counts = [float(count) for count in making.run("python", "-c", IN_MEMORY).split()]
    assert counts == pytest.approx([100] * 4, abs=2)
