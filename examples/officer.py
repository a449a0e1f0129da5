"""The journey of a privacy officer: two releases that somebody else made, looked at and checked.

    make journeys                            # or: python examples/officer.py

What was promised and to whom, whether the noise keeps the promise, what was spent, what changed
between two releases, and how a changed card is caught. It needs only `pip install beam_dp`.
"""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

import pyarrow.compute as pc
from story import Story
from visits import DOMAIN, MAX_VISITS, visits

import beam_dp as dp

EPSILON = 1.0


def made_by_somebody_else(folder: pathlib.Path) -> None:
    """Two releases of two years, paid for by one ledger; in the second year more people smoke."""
    ledger = dp.Ledger(str(folder / "budgets.sqlite"))
    ledger.declare("visits", 2.5, 1e-9, "person_id", "add_or_remove_one")
    domain = dp.parse_domain(DOMAIN)
    guarantee = dp.Guarantee(EPSILON, 1e-9, "add_or_remove_one", "person_id", MAX_VISITS)
    table = visits()
    started = pc.and_(pc.equal(table["sex"], "Male"), pc.greater(table["charge"], 100))
    column = table.column_names.index("smoker")
    later = table.set_column(column, "smoker", pc.or_(table["smoker"], started))
    for name, rows in (("first", table), ("second", later)):
        dp.release(
            rows,
            domain,
            dp.marginals(domain, ways=2),
            guarantee,
            output=folder / name,
            ledger=ledger,
            dataset_id="visits",
            purpose=f"the report of the {name} year",
        )


def change_card(folder: pathlib.Path, copy: pathlib.Path, epsilon: float) -> None:
    """Makes a copy of a release whose card promises more than its noise keeps."""
    shutil.copytree(folder, copy)
    card = json.loads((copy / "card.json").read_text())
    card["guarantee"]["epsilon"] = epsilon
    (copy / "card.json").write_text(json.dumps(card, indent=2))


def change_rows(folder: pathlib.Path, copy: pathlib.Path) -> None:
    """Makes a copy of a release with one bit of one byte of its rows turned."""
    shutil.copytree(folder, copy)
    (path,) = copy.glob("records-*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def paid_for(printed: str, card: dict[str, Any]) -> list[str]:
    """Which entries of a ledger, as JSON, paid for the draw of a card."""
    (dataset,) = json.loads(printed)["datasets"]
    return [
        entry["release_id"]
        for entry in dataset["entries"]
        if entry["draw_id"] == card["draw_id"] and entry["guarantee"] == card["guarantee"]
    ]


def read_promise(story: Story) -> None:
    """What is promised, and to whom."""
    story.step(
        "What is promised, and to whom",
        "The folder `first` came by mail: no table, no code, no Beam. `describe` reads its card.",
    )
    described = story.run("beam-dp describe first")
    assert f"epsilon {EPSILON:g}, delta 1e-09, add or remove one" in described
    story.say(
        f"""Each value of person_id is protected as a whole, with up to {MAX_VISITS} visits.
        Whatever anybody sees in this release is at most exp({EPSILON:g}) = 2.7 times as likely with
        a person in the data as without, but for a chance of 1e-9. It does not protect what a whole
        group has in common, nor somebody who appears under two values of person_id."""
    )


def verify(story: Story) -> None:
    """Whether the noise keeps the promise."""
    story.step(
        "Does the noise keep the promise",
        "`verify` derives epsilon again from the scales of the noise, by code that shares nothing"
        " with what planned it. Exit code 0 says that the promise holds.",
    )
    assert "holds: epsilon 1 at delta 1e-09" in story.run("beam-dp verify first")
    verdict = json.loads(story.run("beam-dp verify second --json"))
    assert verdict["holds"] and verdict["epsilon"] <= EPSILON


def audit_ledger(story: Story) -> dict[str, Any]:
    """What was spent; returns the card of the first release."""
    story.step(
        "What was spent on these people",
        "Releases from the same people add up. The ledger has an entry for each, with the draw that"
        " it paid for; a card names its entry. Both are compared.",
    )
    told = story.run("beam-dp ledger budgets.sqlite")
    assert "left       epsilon 0.5" in told and "for the report of the first year" in told
    card: dict[str, Any] = json.loads((story.folder / "first" / "card.json").read_text())
    entries = paid_for(story.run("beam-dp ledger budgets.sqlite --json"), card)
    assert entries == [card["parameters"]["ledger_release"]] == ["visits/1"]
    story.say(f"The draw of `first` is {card['draw_id']}, which {entries[0]} paid for.")
    story.say("For the files: one page with the promise, the noise, the answers and this entry.")
    story.run("beam-dp report first --ledger budgets.sqlite")
    assert card["draw_id"] in (story.folder / "first.html").read_text(encoding="utf-8")
    return card


def compare(story: Story) -> None:
    """What changed between two releases."""
    story.step(
        "What changed between two releases",
        "A difference is news where it exceeds its noise: beyond 3 standard errors, say.",
    )
    story.run("beam-dp diff first second --marginal smoker,sex --marginal age,education --limit 6")
    asked = "beam-dp diff first second --marginal smoker,sex --json"
    cells = json.loads(story.run(asked))
    # Some 1,100 men more: 35 standard errors. Noise hides that in no run.
    assert {cell["cell"]["sex"] for cell in cells[:2]} == {"Male"}
    assert all(abs(cell["z_score"]) > 5 for cell in cells[:2])
    story.say("More men smoke in the second year.")


def catch(story: Story, card: dict[str, Any]) -> None:
    """What is changed, and how it shows."""
    story.step(
        "Changed cards and rows",
        "Somebody wants to look more private, and writes a tenth of epsilon on the card. `verify`"
        " ends with exit code 1.",
    )
    story.python(change_card, story.folder / "first", story.folder / "forged", EPSILON / 10)
    assert "does not hold" in story.run("beam-dp verify forged", code=1)
    story.say("One bit of the rows was turned on the way. Whatever reads the release refuses it:")
    story.python(change_rows, story.folder / "first", story.folder / "damaged")
    assert "error: " in story.run("beam-dp verify damaged", code=2)
    story.say(
        "Whoever changes a card and all that follows from it makes a card that agrees with itself;"
        " the ledger catches it, which knows each draw and its promise. Here, with the card of the"
        " forged copy:"
    )
    forged = json.loads((story.folder / "forged" / "card.json").read_text())
    entries = paid_for(story.run("beam-dp ledger budgets.sqlite --json"), forged)
    assert forged["draw_id"] == card["draw_id"] and entries == []
    story.say("No entry paid for this draw with this promise.")


def main() -> None:
    """Tells the story."""
    story = Story.from_command_line("officer", __doc__)
    made_by_somebody_else(story.folder)
    read_promise(story)
    verify(story)
    card = audit_ledger(story)
    compare(story)
    catch(story, card)
    story.end("Exactly what is protected, and known limits: docs/privacy.md.")


if __name__ == "__main__":
    main()
