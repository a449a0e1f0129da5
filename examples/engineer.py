"""The journey of a data engineer: from a Parquet file to released rows, by the command line.

    make journeys                            # or: python examples/engineer.py

From a declared schema to a domain, a plan, a budget, a pipeline of Apache Beam on this machine, and
the released rows downstream. It needs nothing but `pip install beam_dp`.
"""

from __future__ import annotations

import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
from story import Story
from visits import DOMAIN, MAX_VISITS, visits

# What the job and its plan have in common.
PROMISE = (
    "--delta 1e-9 --neighboring add_or_remove_one --privacy_unit person_id"
    f" --max_records_per_unit {MAX_VISITS}"
)
# Rows that somebody made up, as the form may be filled in.
MADE_UP = """age,sex,education,smoker,charge
34,Female,BA,true,80
17,male,PhD,false,12.5
101,Male,HS,false,299
"""


def fill_in(path: pathlib.Path) -> None:
    """Completes a draft as an editor would: from the form, never from the rows."""
    draft = json.loads(path.read_text())
    known = {attribute["name"]: attribute for attribute in DOMAIN["attributes"]}
    names = [attribute["name"] for attribute in draft["attributes"] if attribute["name"] in known]
    path.write_text(json.dumps({"attributes": [known[name] for name in names]}))


def admit_more(path: pathlib.Path) -> None:
    """Declares what made-up rows have shown: other capitals, and ages beyond the last edge."""
    domain = json.loads(path.read_text())
    by_name = {attribute["name"]: attribute for attribute in domain["attributes"]}
    by_name["sex"]["case"] = "ignore"
    by_name["age"]["clip"] = True
    path.write_text(json.dumps(domain))


def read_rows(release: pathlib.Path) -> pa.Table:
    """Reads released rows as any reader of Parquet does."""
    rows = pa.concat_tables(map(pq.read_table, sorted(release.glob("records-*.parquet"))))
    print(rows.schema.remove_metadata())
    print(rows.num_rows, rows.slice(0, 3).to_pylist())
    return rows


def declare(story: Story) -> None:
    """From a schema to a domain."""
    domain = story.folder / "visits.json"
    story.step(
        "A domain, from a declared schema",
        "`init` reads names and types, and nothing of the rows. What a schema does not say is an"
        " open point, and so is what looks like an identifier; no program takes the file before.",
    )
    drafted = story.run("beam-dp init visits.parquet --output visits.json")
    assert "6 attributes, 8 open points" in drafted
    job = "beam-dp plan --domain visits.json --workload marginals:2 --num_records 16000"
    refused = story.run(f"{job} --epsilon 1 {PROMISE}", code=2)
    assert "is open" in refused and "and 7 more" in refused
    story.say(
        "They are filled in from the form that visitors get. The column of the privacy unit,"
        " person_id, is removed: it is protected, not released."
    )
    story.python(fill_in, domain)

    story.step(
        "Tried on made-up rows",
        "A record with a value that the domain does not know is left out of a release, silently:"
        " how many is private. So it is tried before, on rows that are no secret. Exit code 1 says"
        " that some would be left out.",
    )
    (story.folder / "made_up.csv").write_text(MADE_UP)
    tried = "beam-dp check-domain --domain visits.json --sample made_up.csv"
    assert "2 of 3 rows are left out" in story.run(tried, code=1)
    story.python(admit_more, domain)
    assert "0 of 3 rows are left out" in story.run(tried)


def plan(story: Story) -> str:
    """Finds the least epsilon; returns the command line of the release."""
    story.step(
        "The least epsilon for an error",
        "Counts may be wrong by 20 visits, and the clinic publicly has about 16,000 a year. `plan`"
        " reads no data; its last line is the command to run.",
    )
    asked = "--domain visits.json --workload marginals:2 --num_records 16000 --target_error 20"
    line = story.run(f"beam-dp plan {asked} {PROMISE}").splitlines()[-1]
    assert line.startswith("beam-dp release-synthetic-database --input INPUT ")

    story.step(
        "A budget",
        "All releases from the same people add up. A ledger keeps their sum within what is declared"
        " here, once; here in a sqlite file, for teams in PostgreSQL.",
    )
    story.run(
        "beam-dp ledger budgets.sqlite --declare visits --epsilon 1.5 --delta 1e-9"
        " --privacy_unit person_id --neighboring add_or_remove_one"
    )
    line = line.replace("INPUT", "visits.parquet").replace("OUTPUT", "out/visits")
    return f"{line} --records_format parquet --ledger budgets.sqlite --dataset_id visits"


def rehearse(story: Story, command: str) -> None:
    """Shows what would happen, and what mistakes cost."""
    story.step("A rehearsal", "`--validate_only` checks everything, and reads no record.")
    page = story.run(f"{command} --validate_only")
    assert "Nothing was read, paid or written" in page
    story.say("Mistakes cost one line and exit code 2, before anything is read or paid:")
    for right, wrong, told in (
        ("--records_format parquet", "--record_format parquet", "nearest is --records_format"),
        ("--delta 1e-9", "--delta le-9", "must be a number"),
        ("--privacy_unit person_id", "--privacy_unit person", "the nearest known is 'person_id'"),
    ):
        assert right in command
        shown = f"beam-dp release-synthetic-database ... {wrong} ..."
        assert told in story.run(command.replace(right, wrong), code=2, shown=shown)
    assert not (story.folder / "out").exists()


def release(story: Story, command: str) -> None:
    """Runs the job, and shows that it cannot happen twice by accident."""
    story.step(
        "The release",
        "Without `--runner` Beam runs on this machine alone. The ledger is paid"
        " first: it then says who, why, where and when.",
    )
    story.run(f'{command} --who alice --purpose "the yearly report"')
    story.say("The same again would be a second release. It is refused, and nothing is paid:")
    again = "beam-dp release-synthetic-database ... --output out/visits ..."
    assert "--output" in story.run(f"{command}", code=2, shown=again)
    entry = story.run("beam-dp ledger budgets.sqlite")
    assert "visits/1" in entry and "visits/2" not in entry
    story.say(
        "Had a worker died, drafts could be left. Whatever starts jobs ends them with `finish`:"
    )
    assert "the release is complete" in story.run("beam-dp finish out/visits")


def main() -> None:
    """Tells the story."""
    story = Story.from_command_line("engineer", __doc__)
    table = visits()
    pq.write_table(table, story.folder / "visits.parquet")
    story.say(f"{table.num_rows:,} visits lie in visits.parquet, with the columns")
    story.say(", ".join(f"{field.name} {field.type}" for field in table.schema))

    declare(story)
    command = plan(story)
    rehearse(story, command)
    release(story, command)

    story.step(
        "Downstream",
        "The rows have the columns and the values of the table, without person_id: what reads the"
        " table reads them. Error bars come from `beam-dp answer`.",
    )
    rows = story.python(read_rows, story.folder / "out" / "visits")
    assert rows.column_names == [attribute["name"] for attribute in DOMAIN["attributes"]]
    # The noise of the number of rows exceeds this in less than one run of a million.
    assert abs(rows.num_rows - table.num_rows) < 1000
    story.run("beam-dp answer out/visits --group_by education --mean charge")
    story.end("Next: examples/officer.py checks a release that somebody else made.")


if __name__ == "__main__":
    main()
