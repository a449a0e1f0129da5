"""A tutorial for privacy officers: check two releases that others made.

    make journeys                            # or: python examples/officer.py

It reads a guarantee, checks the noise and the ledger, compares the releases, and detects a forged
card. It needs only `pip install beam_dp`.
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


def make_releases(folder: pathlib.Path) -> None:
    """Makes releases of two years from one budget; in the second year more people smoke."""
    ledger = dp.Ledger(str(folder / "budgets.sqlite"))
    ledger.declare("visits-2025-26", 2.5, 1e-9, "person_id", "add_or_remove_one")
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
            dataset_id="visits-2025-26",
            purpose=f"the report of the {name} year",
        )


def change_card(folder: pathlib.Path, copy: pathlib.Path, epsilon: float) -> None:
    """Copies a release, and writes another epsilon on the card."""
    shutil.copytree(folder, copy)
    card = json.loads((copy / "card.json").read_text())
    card["guarantee"]["epsilon"] = epsilon
    (copy / "card.json").write_text(json.dumps(card, indent=2))


def change_rows(folder: pathlib.Path, copy: pathlib.Path) -> None:
    """Copies a release, and flips one bit of its rows."""
    shutil.copytree(folder, copy)
    (path,) = copy.glob("records-*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def paid_for(printed: str, card: dict[str, Any]) -> list[str]:
    """Returns the ledger entries that paid for the draw of a card, with its guarantee."""
    (dataset,) = json.loads(printed)["datasets"]
    return [
        entry["release_id"]
        for entry in dataset["entries"]
        if entry["draw_id"] == card["draw_id"] and entry["guarantee"] == card["guarantee"]
    ]


def read_guarantee(story: Story) -> None:
    """Shows the guarantee of a release."""
    story.step(
        "Read the guarantee",
        "You have only the folder `first`: no table, and no Beam. `describe` reads its card.",
    )
    described = story.run("beam-dp describe first")
    assert f"epsilon {EPSILON:g}, delta 1e-09, add or remove one" in described
    story.say(
        f"""Each value of person_id is protected as a whole, with up to {MAX_VISITS} visits.
        Whatever anyone sees in this release is at most exp({EPSILON:g}) = 2.7 times as likely with
        a person in the data as without; a probability may exceed this bound by 1e-9. The guarantee
        does not protect facts about a whole group, or a person under two values of person_id."""
    )


def verify(story: Story) -> None:
    """Checks the noise."""
    story.step(
        "Check the noise",
        "`verify` recomputes epsilon from the noise scales on the card. Exit code 0 means that the"
        " guarantee holds if the noise was drawn as the card says.",
    )
    assert "holds: epsilon 1 at delta 1e-09" in story.run("beam-dp verify first")
    verdict = json.loads(story.run("beam-dp verify second --json"))
    assert verdict["holds"] and verdict["epsilon"] <= EPSILON


def audit_ledger(story: Story) -> dict[str, Any]:
    """Checks the ledger; returns the card of the first release."""
    story.step(
        "Check the budget",
        "Privacy losses add up over releases about the same people. The ledger has an entry for"
        " each release, with its draw of noise; the card names the entry. Compare both.",
    )
    told = story.run("beam-dp ledger budgets.sqlite")
    assert "left             epsilon 0.5" in told and "for the report of the first year" in told
    card: dict[str, Any] = json.loads((story.folder / "first" / "card.json").read_text())
    entries = paid_for(story.run("beam-dp ledger budgets.sqlite --json"), card)
    assert entries == [card["parameters"]["ledger_release"]] == ["visits-2025-26/1"]
    story.say(f"Entry {entries[0]} paid for the draw of `first`, {card['draw_id']}.")
    story.say("For your files: one page with the guarantee, the noise, the answers and this entry.")
    story.run("beam-dp report first --ledger budgets.sqlite")
    assert card["draw_id"] in (story.folder / "first.html").read_text(encoding="utf-8")
    return card


def compare(story: Story) -> None:
    """Compares two releases."""
    story.step(
        "Compare two releases",
        "A difference is real if it clearly exceeds the noise, such as 3 standard errors.",
    )
    story.run("beam-dp diff first second --marginal smoker,sex --marginal age,education --limit 6")
    asked = "beam-dp diff first second --marginal smoker,sex --json"
    cells = json.loads(story.run(asked))
    # About 1,100 more men: 35 standard errors, which noise cannot hide.
    assert {cell["cell"]["sex"] for cell in cells[:2]} == {"Male"}
    assert all(abs(cell["z_score"]) > 5 for cell in cells[:2])
    story.say("More men smoke in the second year.")


def catch(story: Story, card: dict[str, Any]) -> None:
    """Detects changed cards and rows."""
    story.step(
        "Detect changed cards and rows",
        "Someone wants to look more private, and writes a tenth of epsilon on the card. `verify`"
        " ends with exit code 1.",
    )
    story.python(change_card, story.folder / "first", story.folder / "forged", EPSILON / 10)
    assert "does not hold" in story.run("beam-dp verify forged", code=1)
    story.say("One bit of the rows was flipped on the way. Every program rejects the release:")
    story.python(change_rows, story.folder / "first", story.folder / "damaged")
    assert "error: " in story.run("beam-dp verify damaged", code=2)
    story.say(
        "A careful forger changes the whole card so that it agrees with itself. The ledger still"
        " detects it, because it records each draw with its guarantee. For the forged card above:"
    )
    forged = json.loads((story.folder / "forged" / "card.json").read_text())
    entries = paid_for(story.run("beam-dp ledger budgets.sqlite --json"), forged)
    assert forged["draw_id"] == card["draw_id"] and entries == []
    story.say("No entry paid for this draw with this guarantee.")


def main() -> None:
    """Runs the tutorial."""
    story = Story.from_command_line("officer", __doc__)
    make_releases(story.folder)
    read_guarantee(story)
    verify(story)
    card = audit_ledger(story)
    compare(story)
    catch(story, card)
    story.end("Next: docs/privacy.md states exactly what is protected.")


if __name__ == "__main__":
    main()
