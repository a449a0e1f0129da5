"""A tutorial for analysts: release a table in memory, and query the release.

    make journeys                            # or: python examples/analyst.py

The table is made up, so the last step can compare the answers with the truth. It needs only
`pip install beam_dp`.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from story import Story
from visits import DOMAIN, MAX_VISITS, visits

import beam_dp as dp

WHO = "sex == 'Female' and age < 45"
# The largest allowed error, in 95 % margins. The noise is Laplace noise, or sums of it, so one of
# the answers checked here has a larger error in less than one run in a million.
MARGINS = 7.0


def look(table: pa.Table) -> None:
    """Prints a part of the table."""
    print(table.slice(0, 3).to_pylist())


def state() -> dp.Guarantee:
    """States the guarantee for the people in the table."""
    guarantee = dp.Guarantee(
        epsilon=1.0,
        delta=1e-9,
        neighboring="add_or_remove_one",
        privacy_unit="person_id",
        max_records_per_unit=MAX_VISITS,
    )
    print(guarantee)
    return guarantee


def make(table: pa.Table, guarantee: dp.Guarantee, output: str) -> dp.SyntheticDatabase:
    """Releases the table and saves the release."""
    domain = dp.parse_domain(DOMAIN)
    workload = dp.marginals(domain, ways=3)
    release = dp.release(table, domain, workload, guarantee, output=output)
    print(release)
    return release


def ask_count(release: dp.SyntheticDatabase) -> pa.Table:
    """Counts, in groups."""
    women = release.query("sex == 'Female' and age < 45").group_by("education")
    counts = women.count()
    print(counts)
    return counts.to_arrow()


def ask_mean(release: dp.SyntheticDatabase) -> pa.Table:
    """Means, in groups."""
    women = release.query("sex == 'Female' and age < 45").group_by("education")
    means = women.mean("charge")
    print(means)
    return means.to_arrow()


def ask_share(release: dp.SyntheticDatabase) -> pa.Table:
    """Shares, in groups."""
    shares = release.query().group_by("age").share("smoker")
    print(shares)
    return shares.to_arrow()


def ask_quantile(release: dp.SyntheticDatabase) -> pa.Table:
    """The median."""
    median = release.query("sex == 'Female' and age < 45").quantile("charge", 0.5)
    print(median)
    return median.to_arrow()


def as_pandas(release: dp.SyntheticDatabase) -> None:
    """Records and answers as pandas frames."""
    print(release.to_pandas().head(3))
    print(release.query("smoker").group_by("sex").count().to_pandas())


def draw(release: dp.SyntheticDatabase) -> pa.Table:
    """New records with a condition."""
    women = release.sample(500, where="sex == 'Female' and age < 45")
    print(women.slice(0, 3).to_pylist())
    return women


def refuse(release: dp.SyntheticDatabase) -> None:
    """Prints the errors of questions that cannot be answered."""
    for condition in ("sex == 'female'", "age < 40", "agee < 45"):
        try:
            release.query(condition)
        except dp.InputError as error:
            print(error)


def is_close(answers: pa.Table, name: str, truth: list[float]) -> int:
    """Asserts that answers are near the truth; returns the number within their margins."""
    off = np.abs(np.array(answers[name]) - truth)
    margins = np.array(answers["margin"])
    assert (off <= MARGINS * margins).all(), (name, off, margins)
    return int((off <= margins).sum())


def compare(table: pa.Table, counts: pa.Table, means: pa.Table, shares: pa.Table) -> str:
    """Compares answers with the truth, which only the owner of a real table knows."""
    women = table.filter(pc.and_(pc.equal(table["sex"], "Female"), pc.less(table["age"], 45)))
    charges = np.array(women["charge"])
    education = np.array(women["education"])
    groups = [education == each for each in ("HS", "BA", "MA")]
    groups.append(~np.logical_or.reduce(groups))
    ages, smoker = np.array(table["age"]), np.array(table["smoker"])
    age_bins = np.digitize(ages, DOMAIN["attributes"][0]["edges"][1:-1])

    held = is_close(counts, "count", [group.sum() for group in groups])
    held += is_close(means, "mean_charge", [charges[group].mean() for group in groups])
    held += is_close(shares, "share", [smoker[age_bins == each].mean() for each in range(6)])
    return f"{held} of {len(counts) + len(means) + len(shares)}"


def main() -> None:
    """Runs the tutorial."""
    story = Story.from_command_line("analyst", __doc__)
    table = visits()

    story.step(
        "A table in memory",
        f"{table.num_rows:,} visits to a clinic are in an Arrow table; a pandas or polars frame"
        " works too. Declare the columns and their possible values from public knowledge, never"
        " from the rows.",
    )
    story.python(look, table)
    (story.folder / "visits.json").write_text(json.dumps(DOMAIN, indent=1), encoding="utf-8")

    story.step(
        "A release",
        "The guarantee protects people, not visits: all visits of a person together change the"
        " probability of a release by a factor of at most exp(epsilon), except for delta. The"
        " workload lists the answers that must be accurate: here, all tables of three columns.",
    )
    guarantee = story.python(state)
    output = story.folder / "release"
    release = story.python(make, table, guarantee, str(output))
    assert output.joinpath("card.json").exists()

    story.step(
        "Questions, each with its error bar",
        "Ask as often as you like: answers come from the release, and cost no privacy. `margin` is"
        " the error bar: in 95 % of cases the truth is that close to the answer.",
    )
    counts = story.python(ask_count, release)
    means = story.python(ask_mean, release)
    story.say(
        "Charges are released in bins, and their positions in the bins are unknown: `within_bins`"
        " is the part of the margin that is due to this. `error` says how the bar was computed."
    )
    shares = story.python(ask_share, release)
    median = story.python(ask_quantile, release)
    assert median["low"][0].as_py() <= median["quantile_charge"][0].as_py()

    story.step("Pandas", "Every program that reads Arrow tables reads answers and records.")
    story.python(as_pandas, release)
    assert release.to_arrow().column_names == [each["name"] for each in DOMAIN["attributes"]]

    story.step(
        "More records of a group",
        "A rare group has few rows. `sample` draws as many new ones as you like. They are as wrong"
        " as the answers about the group, and cost no privacy.",
    )
    women = story.python(draw, release)
    assert set(women["sex"].to_pylist()) == {"Female"} and women.num_rows == 500

    story.step(
        "Mistakes",
        "Error messages suggest a correction. A bin can't be split: the ages of this release can be"
        " cut at 45, but not at 40.",
    )
    story.python(refuse, release)

    story.step(
        "The same from a shell",
        "The release is a folder that you can copy to anyone. They ask the same questions, without"
        " the table.",
    )
    story.run("beam-dp describe release")
    story.say("`report` writes one page with pictures, which opens offline:")
    story.run("beam-dp report release")
    assert (story.folder / "release.html").exists()
    asked = f'beam-dp answer release --where "{WHO}" --group_by education --mean charge'
    story.run(asked)
    printed = json.loads(story.run(asked + " --json"))
    assert [row["mean_charge"] for row in printed] == means["mean_charge"].to_pylist()

    story.step(
        "Compare with the truth",
        "Only the owner of a real table can do this. Here the visits are made up. Each charge"
        " counts as the middle of its bin.",
    )
    held = compare(table, counts, means, shares)
    story.say(f"The truth is within the 95 % error bar of {held} answers.")
    story.end("Next: examples/engineer.py releases files, examples/officer.py checks a release.")


if __name__ == "__main__":
    main()
