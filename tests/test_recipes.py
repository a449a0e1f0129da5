"""The recipes, each run as a reader runs it, in a folder with the made-up tables."""

import collections
import pathlib
import re
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from databases import new_database, postgresql_server
from patience import HANG_SECONDS

import beam_dp as dp

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples" / "recipes"
# What needs packages that no other test needs is run by `make recipes` only.
pytestmark = [pytest.mark.job]


def start(folder: pathlib.Path, script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(FOLDER / script), *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def run(folder: pathlib.Path, script: str, *arguments: str, code: int = 0) -> str:
    with start(folder, script, *arguments) as process:
        printed, _ = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == code, printed
    return printed


@pytest.fixture
def folder(tmp_path):
    run(tmp_path, "made_up.py")
    return tmp_path


def verified(directory: pathlib.Path) -> dp.SyntheticDatabase:
    """The release of a recipe, which protects persons."""
    release = dp.read_release(directory, kind=dp.SyntheticDatabase)
    assert release.guarantee.privacy_unit == "person_id"
    assert dp.verify_release(release).holds
    return release


def near(value: float, truth: float) -> bool:
    """Whether they differ by less than some 30 standard errors of the releases of recipes."""
    return abs(value - truth) < 0.1 * truth


def test_every_recipe_is_run_here_and_named_on_the_page():
    text = pathlib.Path(__file__).read_text("utf-8")
    page = (FOLDER.parents[1] / "docs" / "recipes.md").read_text("utf-8")
    names = {path.name for path in FOLDER.glob("*.*")}
    assert {name for name in names if f'"{name}"' not in text or f"/{name})" not in page} == set()


def test_one_row_per_person_is_counted_and_wrong_ways_are_refused(folder):
    printed = run(folder, "one_row_per_person.py")
    assert "privacy_unit: 'record' is not valid: must be 'person_id'" in printed
    assert "privacy_unit: 'person_id' is not valid: must be a column of the table" in printed
    assert printed.endswith("paid: 0\n")
    smokers, dearest = set(), collections.defaultdict[int, float](float)
    table = pq.read_table(folder / "visits.parquet", columns=["person_id", "smoker", "charge"])
    for person, smokes, charge in zip(*table.to_pydict().values(), strict=True):
        smokers |= {person} if smokes else set()
        dearest[person] = max(dearest[person], charge)
    query = verified(folder / "out/people").query("smoker_any and charge_max >= 100")
    truth = sum(dearest[person] >= 100 for person in smokers)
    assert near(query.count().to_arrow()["count"][0].as_py(), truth)


def test_survey_has_weighted_totals_and_is_calibrated(folder):
    printed = run(folder, "survey_weights.py")
    survey = pq.read_table(folder / "survey.parquet")
    weights, smokes = np.array(survey["weight"]), np.array(survey["smoker"])
    (share,) = re.findall(r"smokers: ([\d.]+)%", printed)
    assert near(float(share), 100 * weights[smokes].sum() / weights.sum())
    (mean,) = re.findall(r"mean charge: ([\d.]+)", printed)
    assert near(float(mean), np.average(np.array(survey["charge"]), weights=weights))
    rows = pq.read_table(folder / "out/calibrated.parquet")
    of_women = np.array(rows["calibrated"])[np.array(rows["sex"]) == "Female"]
    assert of_women.sum() == pytest.approx(220_000)
    verified(folder / "out/survey")


@pytest.mark.release
def test_duckdb_gets_the_copy(folder):
    import duckdb

    run(folder, "duckdb_tables.py")
    copy = verified(folder / "out/half").to_arrow()
    with duckdb.connect(str(folder / "clinic.duckdb")) as database:
        rows = database.sql("FROM half_copy").fetchall()
        assert rows == [*zip(*copy.to_pydict().values(), strict=True)]
        counts = database.sql("SELECT sum(count) FROM half_counts").fetchall()
        people = "SELECT count(DISTINCT person_id) FROM visits WHERE day < 180"
        assert near(counts[0][0], database.sql(people).fetchall()[0][0])


def test_postgresql_gets_the_copy_and_keeps_the_ledger(folder):
    with postgresql_server() as server:
        import psycopg

        url = new_database(server)
        assert run(folder, "postgresql_tables.py", url).endswith("paid: 1\n")
        copy = verified(folder / "out/postgresql").to_arrow()
        with psycopg.connect(url) as database:
            rows = database.execute("SELECT age, sex, smoker FROM people_copy").fetchall()
        assert sorted(rows) == sorted(zip(*copy.to_pydict().values(), strict=True))
    assert near(copy.num_rows, 12_000)


@pytest.mark.release
def test_iceberg_gets_the_copy_without_the_rows_that_were_deleted(folder):
    printed = run(folder, "iceberg_tables.py")
    release = verified(folder / "out/iceberg")
    assert f"{release.to_arrow().num_rows:,} rows in clinic.visits_copy" in printed
    ages = np.array(pq.read_table(folder / "visits.parquet")["age"])
    assert near(release.to_arrow().num_rows, (ages < 65).sum())


@pytest.mark.part
def test_a_night_is_paid_for_once(folder):
    """By two starts at once, by a later one, and after one that died when it had paid."""
    manifest = yaml.safe_load((FOLDER / "nightly.yaml").read_text("utf-8"))
    job = manifest["spec"]["jobTemplate"]["spec"]
    assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [3]
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"] == ["python", "/data/nightly.py", "$(RUN_ID)"]
    ledger = dp.Ledger(str(folder / "budgets.sqlite"))
    ledger.declare("visits-2026", 3, 1e-9, "person_id", "add_or_remove_one")
    both = [start(folder, "nightly.py", "2026-11-29") for _ in range(2)]
    for process in both:
        process.communicate(timeout=HANG_SECONDS)
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 3])
    assert "released" in run(folder, "nightly.py", "2026-11-29")
    (entry,) = ledger.entries("visits-2026")
    assert verified(folder / "out/2026-11-29").draw_id == entry.draw_id
    parameters = {"run_id": "2026-11-30"}
    paid = ("visits-2026", entry.guarantee, entry.loss, entry.mechanism, parameters, "run_id")
    ledger.spend_once(*paid)
    assert "spent" in run(folder, "nightly.py", "2026-11-30", code=3)
    assert len(ledger.entries("visits-2026")) == 2
    assert not (folder / "out/2026-11-30").exists()
