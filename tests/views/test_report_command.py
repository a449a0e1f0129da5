"""The command `beam-dp report`."""

import functools
import json
import os
import pathlib
import re
import stat

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from jobs import refused_line
from kind_examples import unpack
from pages import GOLDEN, Parsed
from seeded_releases import seeded_releases  # noqa: F401
from written_draws import draw_of

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.releases.files.commit import Draw
from pipelines.flags import read_truth

DOMAIN = dp.Domain((dp.IntegerAttribute("age", 0, 9), dp.CategoricalAttribute("sex", ("f", "m"))))
# Three records per person, two of them used; one record is outside the domain.
AGES = [*(np.arange(600) % 10), 99]
TABLE = pa.table(
    {
        "age": pa.array(AGES, pa.int64()),
        "sex": ["f", "m"] * 300 + ["f"],
        "person": pa.array([*(np.arange(600) // 3), 9999], pa.int64()),
    }
)
GUARANTEE = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 2)


@functools.cache
def released() -> Draw:
    return draw_of(dp.release(TABLE, DOMAIN, dp.marginals(DOMAIN, ways=2), GUARANTEE))


@pytest.fixture
def directory(tmp_path) -> str:
    unpack(released(), tmp_path / "out")
    return str(tmp_path / "out")


def refusal(capfd: pytest.CaptureFixture[str], *argv: str) -> str:
    return refused_line(main, ["report", *argv], capfd)


def write(path: pathlib.Path) -> str:
    pyarrow.csv.write_csv(TABLE, path)
    return str(path)


def test_page_is_written_next_to_the_release_and_never_overwritten(directory, capfd):
    assert main(["report", f"{directory}/"]) == 0
    assert "as public as the release" in capfd.readouterr().out
    page = pathlib.Path(f"{directory}.html").read_bytes()
    assert Parsed(page.decode()).faults == []
    assert b"PRIVATE" not in page
    assert "must not exist: nothing is overwritten" in refusal(capfd, directory)
    assert pathlib.Path(f"{directory}.html").read_bytes() == page
    assert main(["report", directory, "--output", f"{directory}-2.html"]) == 0
    assert pathlib.Path(f"{directory}-2.html").read_bytes() == page


def test_truth_leaves_out_the_same_records_as_the_release(directory, tmp_path):
    truth = read_truth(dp.read_release(directory), write(tmp_path / "people.csv"))
    assert (truth.num_records, truth.num_left_out, truth.num_beyond) == (400, 1, 200)
    assert repr(truth) == "Truth(secret)"


def test_truth_handles_broken_csv_lines_like_a_job(directory, tmp_path):
    """An open quote ends with its line, and quoted fields hold no line ends."""
    lines = ["age,sex,person"] + [f"{place % 7},f,{place}" for place in range(9)]
    lines[3:3] = ['1,"f,a', "4,m"]
    lines += ['5,"x ""y""",d', '3,"m",c']
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    truth = read_truth(dp.read_release(directory), str(path))
    assert (truth.num_records, truth.num_left_out, truth.num_beyond) == (10, 1, 0)


def test_page_with_the_truth_is_marked_private(directory, tmp_path, capfd):
    output = tmp_path / "private.html"
    table = write(tmp_path / "people.csv")
    assert main(["report", directory, "--against", table, "--output", str(output)]) == 0
    assert "PRIVATE" in capfd.readouterr().out
    page = output.read_text("utf-8")
    parsed = Parsed(page)
    assert parsed.faults == []
    assert parsed.texts["title"][0].startswith("PRIVATE: ")
    assert page.count("PRIVATE: contains exact counts of records. Do not share.") == 2
    assert parsed.texts["b"] == ["PRIVATE"]
    assert any(each.get("class") == "each-page" for _, each in parsed.elements)
    assert re.search(r"\.each-page \{ display: block; position: fixed;", page)
    assert "Compared with the truth" in parsed.texts["h2"]
    assert "200 records beyond the limit of their unit" in page
    assert any(each.get("class") == "truth" for _, each in parsed.elements)
    assert {"Records", "Records in the truth"} <= {*parsed.texts["p"]}
    assert stat.S_IMODE(os.stat(output).st_mode) == 0o600


def test_python_and_command_write_the_same_page(tmp_path, capfd):
    directory = str(GOLDEN / "intervals")
    pages = tmp_path / "python.html", tmp_path / "shell.html"
    assert dp.report(directory, pages[0]) == pages[0]
    assert main(["report", directory, "--output", str(pages[1])]) == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_shows_the_ledger_entry(tmp_path, capfd):
    url = f"sqlite:///{tmp_path}/budgets.db"
    ledger = dp.Ledger(url)
    ledger.declare("people", 2.0, 1e-8, "person", "add_or_remove_one")
    out = tmp_path / "paid"
    dp.release(
        TABLE,
        DOMAIN,
        dp.marginals(DOMAIN, ways=1),
        GUARANTEE,
        output=out,
        ledger=ledger,
        dataset_id="people",
    )
    assert main(["report", str(out), "--ledger", url]) == 0
    texts = Parsed(out.with_suffix(".html").read_text("utf-8")).texts
    assert "people/1" in texts["dd"] and "Complete at" in texts["dt"]
    capfd.readouterr()
    other = str(GOLDEN / "intervals")
    text = refusal(capfd, other, "--ledger", url, "--output", str(tmp_path / "other.html"))
    assert "must be the ledger that paid" in text
    text = refusal(capfd, other, "--ledger", "no.db", "--output", str(tmp_path / "other.html"))
    assert text.startswith("error: --ledger: 'sqlite:///no.db' is not valid: must exist"), text
    assert not (tmp_path / "other.html").exists()


def test_compares_interval_counts_with_records(tmp_path):
    table = tmp_path / "ages.csv"
    table.write_text("cell,person_id\n" + "".join(f"{place % 20},{place}\n" for place in range(90)))
    output = tmp_path / "intervals.html"
    argv = ["report", str(GOLDEN / "intervals"), "--against", str(table)]
    assert main([*argv, "--output", str(output)]) == 0
    parsed = Parsed(output.read_text("utf-8"))
    assert "Compared with the truth" in parsed.texts["h2"]


def test_shows_notes_and_failures_of_verification(directory):
    card, told = pathlib.Path(directory, "card.json"), []
    stated = json.loads(card.read_text())
    del stated["parameters"]["strategy"]
    for mechanism in ("favourite", "mwem"):
        card.write_text(json.dumps({**stated, "mechanism": mechanism}))
        page = pathlib.Path(directory).with_name(f"{mechanism}.html")
        assert main(["report", directory, "--output", str(page)]) == 0
        told.append(page.read_text())
    assert "it holds: epsilon 1" in told[0] and "Note: The card states no strategy" in told[0]
    assert "can&#x27;t recompute it from the noise on the card: strategy: None" in told[1]
    assert "it holds" not in told[1]
    heads = [page.partition("<nav")[0] for page in told]
    assert "confirmed from the recorded noise" in heads[0] and "can&#x27;t recompute" in heads[1]


def test_hides_the_password_of_an_unused_ledger(directory, capfd, monkeypatch):
    class Empty:
        name = "postgresql://bob:***@host/db"

        def __init__(self, url: str) -> None:
            pass

        def datasets(self) -> list[object]:
            return []

    monkeypatch.setattr("beam_dp.privacy.ledger.ledger.Ledger", Empty)
    told = refusal(capfd, directory, "--ledger", "postgresql://bob:tell-tale@host/db")
    assert "'postgresql://bob:***@host/db' is not valid: must be the ledger that paid" in told
