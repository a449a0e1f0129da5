"""Values of a categorical column from a finished release of keys."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest
from jobs import job_flags, people, write_table

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.releases.sketches.release import NoisyCounts, SparseRelease
from beam_dp.schemas.edges import listed_attribute
from pipelines import release_projection, release_synthetic_database

KEY = HashKey.draw(8)


def released(keys: list[Any], key_type: str = "text", paid: Any = "visits/1") -> SparseRelease:
    elements = universe_elements(keys, KEY)
    order = np.argsort(elements)
    held = None
    if key_type != "integer":
        held = np.empty(len(keys), object)
        held[:] = [keys[place] for place in order]
    stated = {"key": "city", "key_type": key_type, "weight": None, "rule": 2, "list_keys": True}
    plan = {"key": stated, "histogram": {"scale": 1.0, "threshold": 20}}
    return SparseRelease(
        draw_id="0f" * 16,
        mechanism="stability_histogram",
        guarantee=dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1),
        hash_key=KEY,
        max_sparsity=10,
        max_weight=1,
        plan=plan if paid is None else {**plan, "ledger_release": paid},
        histogram=NoisyCounts(elements[order], np.full(len(keys), 30), 1.0, 20, held),
    )


def test_listed_keys_become_values_and_all_else_goes_to_other():
    attribute = listed_attribute(released(["Thun", "Bern", "other", "Basel"]))
    assert attribute.labels() == ("Basel", "Bern", "Thun", "other")
    assert attribute.values_from is not None and attribute.values_from.dataset_id == "visits"
    again = dp.parse_domain({"attributes": [attribute.to_json()]})
    assert again.attributes == (attribute,)


def test_integer_keys_become_values():
    attribute = listed_attribute(released([2**63, 7, 0], "integer"))
    assert attribute.values == (0, 7)


@pytest.mark.parametrize(
    ("release", "condition"),
    [
        (released(["Bern"], paid=None), "must be paid for by a ledger"),
        (released([]), "must list keys as text or integers"),
        (released([b"Bern"], "bytes"), "must list keys as text or integers"),
    ],
)
def test_rejects_releases_without_values_or_payment(release, condition):
    with pytest.raises(dp.InputError, match=f"^values_from: .*{condition}"):
        listed_attribute(release)


def test_refused_init_writes_nothing(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dp.write_release(released(["Bern"]), "cities")
    pathlib.Path("s.json").write_text('{"town": 5}', encoding="utf-8")
    for source, condition in (
        ("cities", "--values_from: 'city' is not valid: must be a column of"),
        ("absent", "--values_from: 'absent' is not valid"),
    ):
        assert main(["init", "s.json", "--output=d.json", f"--values_from={source}"]) == 2
        out, err = capfd.readouterr()
        assert out == "" and re.fullmatch(r"error: [^\n]+\n", err) and condition in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cities", "s.json"]


@pytest.mark.slow
def test_values_found_in_one_release_are_used_in_the_next(tmp_path, capfd):
    """Two commands, one budget: no value of the column is declared."""
    cities = [f"city {place}" for place in (0,) * 200 + (1,) * 150 + (2,) * 149 + (3,)]
    table = people().set_column(2, "sex", [cities])
    paid = {"ledger": str(tmp_path / "budgets.sqlite"), "dataset_id": "visits"}
    ledger = dp.Ledger(paid["ledger"])
    for name in ("visits", "others"):
        ledger.declare(name, 4000.0, 1e-6, "record", "add_or_remove_one")
    source = write_table(tmp_path, table)
    first = {"input": source, "key": "sex", "max_sparsity": "1", **paid, "epsilon": "5"}
    first |= {"delta": "1e-9", "neighboring": "add_or_remove_one", "privacy_unit": "record"}
    first |= {"mechanism": "stability_histogram", "output": str(tmp_path / "cities")}
    argv = [f"--{name}={value}" for name, value in first.items()]
    assert release_projection.main([*argv, "--list_keys"]) == 0
    drafted = str(tmp_path / "drafted.json")
    assert main(["init", source, "--output", drafted, "--values_from", first["output"]]) == 0
    draft = dp.domain_draft(drafted)
    found = next(each for each in draft.attributes if each["name"] == "sex")
    # The city of one record is below every threshold.
    assert found["values"] == ["city 0", "city 1", "city 2"] and found["other"] is True
    domain = {"attributes": [found]}
    given: dict[str, Any] = {"privacy_unit": "record", "max_records_per_unit": None}
    given |= {"workload": "marginals:1", "epsilon": "1000"}
    capfd.readouterr()
    argv = job_flags(tmp_path, table, domain=domain, **given, **{**paid, "dataset_id": "others"})
    assert release_synthetic_database.main(argv) == 2
    assert "--dataset_id: 'others' is not valid: must be 'visits'" in capfd.readouterr().err
    argv = job_flags(tmp_path, table, domain=domain, **given, **paid)
    assert release_synthetic_database.main(argv) == 0
    release = dp.read_release(str(tmp_path / "out"), kind=dp.SyntheticDatabase)
    counts = release.record_marginal(("sex",))
    np.testing.assert_allclose(counts, [200, 150, 149, 1, 0][: len(counts)], atol=2)
    assert [each.state for each in ledger.entries("visits")] == ["released", "released"]
    assert ledger.entries("others") == []
    card = json.loads((tmp_path / "out" / "card.json").read_text("utf-8"))
    assert card["domain"]["attributes"][0]["values_from"]["ledger_release"] == "visits/1"
