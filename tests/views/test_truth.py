"""The exact counts of windows next to their releases, against counts made by hand."""

import datetime
import json
import os
import pathlib
import re

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from horizons import DOMAIN, FIRST, WORKLOAD, card_of, commit_window
from pages import Parsed
from window_plans import RECORD, horizon_of, person, plan_of

from beam_dp.cli.main import main
from beam_dp.domain.horizon import WindowUnit
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.windows.plan import plan_window_databases
from beam_dp.releases.kinds import read_any
from beam_dp.releases.windows.horizon_files import begin_horizon
from beam_dp.views.cells import single_levels
from pipelines.flags import read_truth

HOUR, NUM_WINDOWS = 3600, 4
START = horizon_of(NUM_WINDOWS).start
PERSONS = person(2, NUM_WINDOWS)  # at most one record in each of two windows
TIMES = {"event_time": "t", "arrival": "came"}
# Person, event and arrival in seconds after the start, a0, a1. A window closes after 30 minutes.
ROWS = [
    (1, 0, 10, 0, 0),
    (2, HOUR - 1, HOUR, 1, 2),
    (4, 100, 5399, 1, 0),
    (3, HOUR, 3700, 0, 1),
    (1, 3605, 3700, 1, 1),
    (3, 7300, 7400, 0, 2),
    (2, HOUR - 1, HOUR, 1, 2),  # another record of a person in a window
    (1, 7205, 7300, 1, 1),  # the third window of a person
    (5, 100, 5400, 1, 0),  # late
    (6, 500, 499, 0, 0),  # arrived before its event
    (7, -1, 10, 0, 0),
    (8, 4 * HOUR, 4 * HOUR + 1, 0, 0),
    (9, 10, 20, 2, 0),  # outside the domain
    (10, 3 * HOUR + 5, 3 * HOUR + 10, 0, 0),  # in a window that is not released
    (None, 30, 40, 0, 0),
]
OF_PERSONS = [[1, 0, 0, 1, 0, 1], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0]]
OF_RECORDS = [[2, 0, 0, 1, 0, 2], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 1, 0]]


def horizon(folder: pathlib.Path, unit: WindowUnit = PERSONS, **source: str) -> str:
    """A horizon of four windows, of which three are released."""
    directory, plan = str(folder / "week"), plan_of(NUM_WINDOWS, unit, WORKLOAD)
    begin_horizon(directory, card_of(plan, source={**TIMES, **source}), FIRST)
    for number in range(3):
        commit_window(plan, directory, number, FIRST)
    return directory


def moments(place: int) -> list[datetime.datetime]:
    return [datetime.datetime.fromtimestamp(START + row[place], datetime.UTC) for row in ROWS]


def write(folder: pathlib.Path, extension: str = "parquet") -> str:
    """The records in one file, whose times have the type that is usual in its format."""
    path = folder / f"visits.{extension}"
    columns = {
        "person_id": [row[0] for row in ROWS],
        "a0": [row[3] for row in ROWS],
        "a1": [row[4] for row in ROWS],
    }
    if extension == "parquet":
        seconds = {
            name: [START + row[place] for row in ROWS] for place, name in ((1, "t"), (2, "came"))
        }
        pyarrow.parquet.write_table(pa.table({**columns, **seconds}), path)
        return str(path)
    times = {"t": moments(1), "came": moments(2)}
    texts = {name: [each.isoformat() for each in column] for name, column in times.items()}
    pyarrow.csv.write_csv(pa.table({**columns, **texts}), path)
    return str(path)


def counts_of(truth) -> list[list[int]]:
    """The cells of each released window."""
    groups = [single_levels(attribute) for attribute in DOMAIN]
    return [truth.among(range(number, number + 1)).of((0, 1), groups) for number in range(3)]


@pytest.mark.parametrize("extension", ["parquet", "csv"])
def test_truth_of_windows_follows_the_rules_of_the_job(extension, tmp_path):
    truth = read_truth(read_any(horizon(tmp_path)), write(tmp_path, extension))
    assert counts_of(truth) == OF_PERSONS
    assert (truth.num_records, truth.num_beyond, truth.num_left_out) == (6, 2, 7)
    assert truth.among(range(1, 3)).num_records == 3
    assert truth.among(range(3, 4)).num_records == 0
    assert repr(truth) == "Truth(secret)"


def test_truth_of_windows_counts_all_records_if_the_unit_is_a_record(tmp_path):
    truth = read_truth(read_any(horizon(tmp_path, RECORD)), write(tmp_path))
    assert counts_of(truth) == OF_RECORDS
    assert (truth.num_records, truth.num_beyond, truth.num_left_out) == (9, 0, 6)


def test_arrivals_may_be_the_times_of_files(tmp_path):
    for number, (who, event, arrival, first, second) in enumerate(ROWS):
        path = tmp_path / f"{number}.parquet"
        values = {"t": [START + event], "a0": [first], "a1": [second]}
        table = pa.table({"person_id": pa.array([who], pa.int64()), **values})
        pyarrow.parquet.write_table(table, path)
        os.utime(path, (START + arrival, START + arrival + 0.5))
    release = read_any(horizon(tmp_path, arrival="file_time"))
    assert counts_of(read_truth(release, str(tmp_path / "*.parquet"))) == OF_PERSONS


def test_page_shows_the_truth_of_each_window(tmp_path, capfd):
    directory, page = horizon(tmp_path), tmp_path / "private.html"
    assert main(["report", directory, "--against", write(tmp_path), "--output", str(page)]) == 0
    assert "PRIVATE" in capfd.readouterr().out
    parsed = Parsed(page.read_text("utf-8"))
    assert parsed.faults == []
    (words,) = [each for each in parsed.texts["p"] if each.startswith("PRIVATE")]
    assert words.startswith("PRIVATE: contains exact counts of records. Do not share.")
    assert words.endswith(
        "the 6 original records. Not counted: 7 records outside the domain, too late, or in"
        " no released window, and 2 records beyond the limit of their unit."
    )
    told = "\n".join(parsed.texts["title"])
    pattern = r"^2026-11-23 0(\d):00: .* truth (\d+)$"
    assert re.findall(pattern, told, re.MULTILINE) == [("0", "3"), ("1", "2"), ("2", "1")]
    pattern = r"^1, 2026-11-23 0(\d):00: .* truth (\d+)$"  # the level 1, first of a0
    assert re.findall(pattern, told, re.MULTILINE)[:3] == [("0", "2"), ("1", "1"), ("2", "0")]
    assert {"Records", "Records in the truth"} <= {*parsed.texts["p"]}
    assert parsed.texts["h2"][:2] == ["Over time", "Columns"]
    assert parsed.texts["h2"][2] == "Compared with the truth"
    assert any(each.get("class") == "line true" for _, each in parsed.elements)


def refusal(capfd: pytest.CaptureFixture[str], directory: str, records: str) -> str:
    page = pathlib.Path(f"{records}.html")
    assert main(["report", directory, "--against", records, "--output", str(page)]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and not page.exists()
    return err


def test_one_window_cannot_be_compared(tmp_path, capfd):
    records, words = write(tmp_path), "give the directory that contains the windows"
    tables = f"{horizon(tmp_path)}/windows/000001"
    assert words in refusal(capfd, tables, records)
    plan = plan_window_databases(MWEM(), WORKLOAD, horizon_of(NUM_WINDOWS), PERSONS, 1.0, 1e-9)
    directory = str(tmp_path / "databases")
    begin_horizon(directory, card_of(plan, source=TIMES), FIRST)
    commit_window(plan, directory, 1, FIRST)
    assert words in refusal(capfd, f"{directory}/windows/000001", records)
    truth = read_truth(read_any(directory), records)
    assert (truth.num_records, truth.num_beyond, truth.num_left_out) == (2, 2, 11)
    page = tmp_path / "databases.html"
    assert main(["report", directory, "--against", records, "--output", str(page)]) == 0
    assert "truth 2" in page.read_text("utf-8")


def test_columns_of_times_must_be_known_and_exist(tmp_path, capfd):
    directory, records = horizon(tmp_path, event_time="when"), write(tmp_path)
    assert "'when' is not valid: must be a column of" in refusal(capfd, directory, records)
    card = pathlib.Path(directory, "horizon.json")
    known = json.loads(card.read_text())
    for source in ({"arrival": "came"}, {"event_time": None, "arrival": "came"}):
        card.write_text(json.dumps({**known, "source": source}))
        line = refusal(capfd, directory, records)
        assert "needs the column of event_time, which the horizon's card does not name" in line
