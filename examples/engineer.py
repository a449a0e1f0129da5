"""A tutorial for data engineers: from a Parquet file to released rows, on the command line.

    make journeys                            # or: python examples/engineer.py

It declares a domain, plans, sets a budget, runs an Apache Beam pipeline on this machine, and reads
the released rows. It needs only `pip install beam_dp`.
"""

from __future__ import annotations

import json
import pathlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from story import Story
from visits import DOMAIN, MAX_VISITS, visits

# Flags of both the job and its plan.
GUARANTEE = (
    "--delta 1e-9 --neighboring add_or_remove_one --privacy_unit person_id"
    f" --max_records_per_unit {MAX_VISITS}"
)
# Made-up rows, as people may fill in the form.
MADE_UP = """age,sex,education,smoker,charge,degree
34,Female,BA,true,80,true
17,male,PhD,false,12.5,true
101,Male,HS,false,299,false
"""
# A column of the file that follows from another.
DEGREE = {"name": "degree", "type": "boolean"}
DEGREES = {"HS": False, "BA": True, "MA": True, "other": True}
# Made-up customers, about whom not everything is known.
PARTLY = """customer,age,sex
17,34,Female
18,51,
"""


def fill_in(path: pathlib.Path) -> None:
    """Completes a draft from the form, never from the rows."""
    draft = json.loads(path.read_text())
    known = {attribute["name"]: attribute for attribute in (*DOMAIN["attributes"], DEGREE)}
    names = [attribute["name"] for attribute in draft["attributes"] if attribute["name"] in known]
    attributes = [known[name] for name in names]
    determines = {"education": {"degree": DEGREES}}
    path.write_text(json.dumps({"attributes": attributes, "determines": determines}))


def admit_more(path: pathlib.Path) -> None:
    """Accepts other capitals, and ages above the last edge, as the made-up rows have."""
    domain = json.loads(path.read_text())
    by_name = {attribute["name"]: attribute for attribute in domain["attributes"]}
    by_name["sex"]["case"] = "ignore"
    by_name["age"]["clip"] = True
    path.write_text(json.dumps(domain))


def read_rows(release: pathlib.Path) -> pa.Table:
    """Reads released rows like any Parquet files."""
    rows = pa.concat_tables(map(pq.read_table, sorted(release.glob("records-*.parquet"))))
    print(rows.schema.remove_metadata())
    print(rows.num_rows, rows.slice(0, 3).to_pylist())
    return rows


def declare(story: Story) -> None:
    """Makes a domain from a schema."""
    domain = story.folder / "visits.json"
    story.step(
        "Draft a domain from the schema",
        "`init` reads the names and types of the columns, but no rows. A release could find the"
        " values that the schema does not list, for a part of its budget. A column that looks like"
        " an identifier becomes an open point; programs accept the file once no point is open.",
    )
    drafted = story.run("beam-dp init visits.parquet --output visits.json")
    assert "7 attributes, 1 open point" in drafted
    job = "beam-dp plan --domain visits.json --workload marginals:2 --num_records 16000"
    refused = story.run(f"{job} --epsilon 1 {GUARANTEE}", code=2)
    assert "is open" in refused
    story.say(
        "The form that visitors get is public, so list its values, at no cost. Remove person_id,"
        " the privacy unit: it is protected, not released. A degree follows from the education:"
        " with `determines`, no released row contradicts itself."
    )
    story.python(fill_in, domain)

    story.step(
        "Check the domain on made-up rows",
        "A release silently leaves out records with values outside the domain, because even their"
        " number is private. So check the domain first, on rows that are not secret. Exit code 1"
        " means that some rows would be left out.",
    )
    (story.folder / "made_up.csv").write_text(MADE_UP)
    tried = "beam-dp check-domain --domain visits.json --sample made_up.csv"
    assert "2 of 3 rows are left out" in story.run(tried, code=1)
    story.python(admit_more, domain)
    assert "0 of 3 rows are left out" in story.run(tried)


def plan(story: Story) -> str:
    """Finds the smallest epsilon; returns the command line of the release."""
    story.step(
        "Find the smallest epsilon for an error",
        "An error of 20 visits is acceptable, and it is public that the clinic has about 16,000"
        " visits a year. `plan` reads no data; its last line is the command to run.",
    )
    asked = "--domain visits.json --workload marginals:2 --num_records 16000 --target_error 20"
    line = story.run(f"beam-dp plan {asked} {GUARANTEE}").splitlines()[-1]
    assert line.startswith("beam-dp release-synthetic-database --input INPUT ")

    story.step(
        "Set a budget",
        "Privacy losses add up over releases about the same people. A ledger keeps their sum within"
        " a budget that you declare once. It is a SQLite file here; a team uses PostgreSQL.",
    )
    story.run(
        "beam-dp ledger budgets.sqlite --declare visits-2026 --epsilon 1.5 --delta 1e-9"
        " --privacy_unit person_id --neighboring add_or_remove_one"
    )
    line = line.replace("INPUT", "visits.parquet").replace("OUTPUT", "out/visits")
    return f"{line} --records_format parquet --ledger budgets.sqlite --dataset_id visits-2026"


def rehearse(story: Story, command: str) -> None:
    """Checks the job without running it, and shows the messages for mistakes."""
    story.step("Check the job", "`--validate_only` checks everything, and reads no record.")
    page = story.run(f"{command} --validate_only")
    assert "Nothing was read, paid or written" in page
    story.say("Mistakes are reported in one line with exit code 2; nothing is read or paid:")
    for right, wrong, told in (
        ("--records_format parquet", "--record_format parquet", "Did you mean --records_format?"),
        ("--delta 1e-9", "--delta le-9", "must be a number"),
        ("--privacy_unit person_id", "--privacy_unit person", "the nearest known is 'person_id'"),
    ):
        assert right in command
        shown = f"beam-dp release-synthetic-database ... {wrong} ..."
        assert told in story.run(command.replace(right, wrong), code=2, shown=shown)
    assert not (story.folder / "out").exists()


def release(story: Story, command: str) -> None:
    """Runs the job, and shows that it cannot run twice by accident."""
    story.step(
        "Release",
        "Without `--runner`, Beam runs on this machine. The job pays first: the ledger records who"
        " paid, why, where and when.",
    )
    story.run(f'{command} --who alice --purpose "the yearly report"')
    story.say("A second run is refused, because it would be a second release. Nothing is paid:")
    again = "beam-dp release-synthetic-database ... --output out/visits ..."
    assert "--output" in story.run(f"{command}", code=2, shown=again)
    entry = story.run("beam-dp ledger budgets.sqlite")
    assert "visits-2026/1" in entry and "visits-2026/2" not in entry
    story.say("Run `finish` after each job: it removes drafts that a failed worker may have left.")
    assert "the release is complete" in story.run("beam-dp finish out/visits")


def main() -> None:
    """Runs the tutorial."""
    story = Story.from_command_line("engineer", __doc__)
    table = visits()
    table = table.append_column("degree", pc.not_equal(table["education"], "HS"))
    pq.write_table(table, story.folder / "visits.parquet")
    columns = ", ".join(f"{field.name} {field.type}" for field in table.schema)
    story.say(f"visits.parquet has {table.num_rows:,} visits, with the columns {columns}.")

    declare(story)
    command = plan(story)
    rehearse(story, command)
    release(story, command)

    story.step(
        "Use the rows",
        "The released rows have the columns of the table, without person_id, so the same programs"
        " read them. `beam-dp answer` adds error bars.",
    )
    rows = story.python(read_rows, story.folder / "out" / "visits")
    assert rows.column_names == [each["name"] for each in (*DOMAIN["attributes"], DEGREE)]
    has_degree = pc.not_equal(rows["education"].cast(pa.string()), "HS")
    assert pc.all(pc.equal(rows["degree"], has_degree)).as_py()
    # The noise of the number of rows exceeds this in less than one run of a million.
    assert abs(rows.num_rows - table.num_rows) < 1000
    story.run("beam-dp answer out/visits --group_by education --mean charge")
    story.say(
        "`impute` completes rows of your own, such as these made-up ones, with what the release"
        " tells about such people. The result contains your rows, so it is as secret as they are."
    )
    (story.folder / "partly.csv").write_text(PARTLY)
    completed = story.run("beam-dp impute out/visits --input partly.csv").splitlines()
    assert completed[0].count(",") == rows.num_columns and len(completed) == 3
    story.end("Next: examples/officer.py checks a release.")


if __name__ == "__main__":
    main()
