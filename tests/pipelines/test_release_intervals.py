"""The programs that release interval counts and projections, from files to answers."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from jobs import interval_flags, key_flags

import beam_dp as dp
from beam_dp.cli import main as cli
from beam_dp.views.sketches import read_query
from pipelines.release_intervals import main
from pipelines.release_projection import main as release_projection

AGES: dict[str, Any] = {"name": "age", "type": "integer", "min": 10, "max": 79}


def domain(**flags: bool) -> dict[str, Any]:
    return {
        "attributes": [
            {**AGES, **flags},
            {"name": "sex", "type": "categorical", "values": ["Female", "Male"]},
            {"name": "constant", "type": "integer", "min": 1, "max": 1},
            {"name": "many", "type": "integer", "min": 0, "max": 2**20},
        ]
    }


@pytest.mark.job
@pytest.mark.parametrize("flags", [{}, {"other": True, "nullable": True}])
def test_no_interval_includes_other_or_null(tmp_path, flags):
    table = pa.table({"age": [15, 15, None, 500, 79], "household": [1, 2, 3, 4, 5]})
    flagged = interval_flags(tmp_path, table, domain=domain(**flags), strategy="histogram")
    assert main(flagged) == 0
    release = dp.read_release(tmp_path / "out")
    assert isinstance(release, dp.IntervalRelease)
    assert release.num_leaves == 70
    assert np.rint(release.histogram()).tolist() == [0] * 5 + [2] + [0] * 63 + [1]


@pytest.mark.job
def test_date_bins_are_counted_and_queried_by_their_edges(tmp_path):
    rows = {"visit": ["2020-01-02"] * 30 + ["2020-02-03"] * 20 + ["2020-03-01"] * 10 + [None]}
    pa.csv.write_csv(pa.table(rows), tmp_path / "visits.csv")
    visit = {"name": "visit", "type": "date", "nullable": True,
             "edges": ["2020-01-01", "2020-02-01", "2020-03-01", "2020-04-01"]}  # fmt: skip
    named = {"input": str(tmp_path / "visits.csv"), "attribute": "visit", "output": f"{tmp_path}/o"}
    named |= {"neighboring": "replace_one", "privacy_unit": "record", "delta": "0"}
    dated = {"domain": {"attributes": [visit]}, "max_records_per_unit": None}
    assert main(interval_flags(tmp_path, **named, **dated)) == 0
    release = dp.read_release(tmp_path / "o")
    assert isinstance(release, dp.IntervalRelease)
    cells = release.cells("2020-01-01", "2020-03-01")
    assert cells == (0, 1)
    assert abs(release.answer(*cells).values - 50) < 3


NUMBERS = [i % 50 for i in range(2000)]  # 40 records of each key


def flags_of_keys(folder: Path, **named: Any) -> list[str]:
    return key_flags(folder, **{"size": "65536", **named})


def answer(folder: Path, lines: str) -> float:
    """What the release says of the query in a file."""
    (folder / "keys.txt").write_text(lines, encoding="utf-8")
    release = dp.read_release(folder / "out", kind=dp.SparseRelease)
    return release.answer_query(read_query(release, str(folder / "keys.txt"))).value


@pytest.mark.job
@pytest.mark.parametrize("file_format", ["parquet", "csv", "avro"])
def test_releases_keys_of_files(tmp_path, file_format):
    assert release_projection(flags_of_keys(tmp_path, file_format=file_format)) == 0
    assert answer(tmp_path, "plane 3\nplane 4\t0.5\nplane 99\n") == pytest.approx(60, abs=1)


@pytest.mark.job
@pytest.mark.parametrize(
    ("keys", "key_type", "key"),
    [
        (pa.array(NUMBERS), "integer", "3"),
        (pa.array([b"p%d" % number for number in NUMBERS]), "bytes", "p3"),
        (
            pa.array([2**64 - 1 - number for number in NUMBERS], pa.uint64()),
            "integer",
            f"{2**64 - 4}",
        ),
    ],
)
def test_keys_have_the_declared_type(tmp_path, keys, key_type, key):
    assert release_projection(flags_of_keys(tmp_path, keys=keys, key_type=key_type)) == 0
    assert answer(tmp_path, f"{key}\n") == pytest.approx(40, abs=1)


@pytest.mark.job
@pytest.mark.parametrize("mechanism", ["stability_histogram", "hybrid"])
def test_lists_frequent_keys_in_words(tmp_path, capfd, mechanism):
    more: dict[str, str | None] = {"mechanism": mechanism, "list_keys": "true"}
    if mechanism == "stability_histogram":
        more |= {"size": None}
    argv = [each.removesuffix("=true") for each in flags_of_keys(tmp_path, **more)]
    assert release_projection(argv) == 0
    release = dp.read_release(tmp_path / "out", kind=dp.SparseRelease)
    assert dict(release.listed_keys()) == pytest.approx(
        {f"plane {number}": 40 for number in range(50)}, abs=1
    )
    assert cli.main(["verify", str(tmp_path / "out")]) == 0
    capfd.readouterr()
    assert cli.main(["describe", str(tmp_path / "out")]) == 0
    out, _ = capfd.readouterr()
    assert re.search(r"^plane \d+ +40 +0[.]0\d+$", out, re.MULTILINE) and "and 30 more" in out
    assert answer(tmp_path, "plane 3\nplane 99\n") == pytest.approx(40, abs=1)


@pytest.mark.job
def test_release_with_a_histogram_spends_delta(tmp_path, capfd):
    ledger = dp.Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("flights", 50.0, 3e-9, "record", "add_or_remove_one")
    shape = {"num_records": "2000", "num_keys": "50", "largest_count": "40"}
    paid: dict[str, str | None] = {"ledger": ledger.name, "dataset_id": "flights", "epsilon": "5"}
    paid |= {"mechanism": "auto", "size": "512", **shape}
    assert release_projection(flags_of_keys(tmp_path, **paid)) == 0
    (entry,) = ledger.entries("flights")
    assert entry.loss.slack == 1e-9
    assert dp.read_release(tmp_path / "out", kind=dp.SparseRelease).histogram is not None

    # Half of delta is kept for histograms: no second one, and `auto` takes what else fits.
    second = flags_of_keys(
        tmp_path,
        **{**paid, "mechanism": "stability_histogram", "size": None} | dict.fromkeys(shape),
        output=str(tmp_path / "second"),
    )
    capfd.readouterr()
    assert release_projection(second) == 2
    assert capfd.readouterr().err == (
        "error: --delta: 1e-09 is not valid: must fit 'flights', which leaves at most epsilon 45,"
        " delta 5e-10 for a release that is private except with some probability; largest releases:"
        " flights/1 (stability_histogram, epsilon 5)\n"
    )
    assert len(ledger.entries("flights")) == 1 and not (tmp_path / "second").exists()
    argv = flags_of_keys(tmp_path, output=str(tmp_path / "second"), **paid)
    assert release_projection([*argv, "--validate_only", "--json"]) == 0
    card = json.loads(capfd.readouterr().out)
    assert card["mechanism"] == "count_sketch"
    assert {"stability_histogram", "hybrid_sketch"}.isdisjoint(
        choice["mechanism"] for choice in card["choices"]
    )
