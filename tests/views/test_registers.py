"""Forms for others to read: JSON schemas, the registry of deployments, data catalogues."""

import copy
import json
import re
import runpy
from functools import partial

import jsonschema
import pytest
from kind_examples import EXAMPLES, IMPOSSIBLE
from kinds_of_releases import RELEASES as MADE, released
from pages import GOLDEN
from written_draws import draw_of

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.files import parse_open_domain
from beam_dp.mechanisms.registry import plan_release
from beam_dp.privacy.ledger.entries import Origin
from beam_dp.releases.parts import KINDS
from beam_dp.views.registers import TO_FILL_IN

ROOT = GOLDEN.parents[1]
CARDS = {
    str(path.parent.relative_to(GOLDEN)): json.loads(path.read_text("utf-8"))
    for name in ("card.json", "horizon.json")
    for path in sorted(GOLDEN.rglob(name))
}
RELEASES = sorted(name for name in CARDS if "/" not in name)


def schema(name: str) -> jsonschema.Draft202012Validator:
    text = (ROOT / "beam_dp" / "views" / f"{name}.schema.json").read_text("utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_schemas_are_generated_from_the_code_and_printed(capsys):
    tool = runpy.run_path(str(ROOT / "tools" / "write_schemas.py"))
    for name, made in tool["schemas"]().items():
        text = printed(capsys, "describe", "--schema", name)
        assert text == tool["text_of"](made), "run `make generated`"
        jsonschema.Draft202012Validator.check_schema(made)


@pytest.mark.parametrize("name", CARDS)
def test_a_golden_card_has_its_form_and_no_card_with_a_field_more_or_less(name):
    valid, card = schema("card"), CARDS[name]
    valid.validate(card)
    is_open = card["kind"] == "answers"  # depends on the mechanism
    needed = valid.schema["$defs"][f"kind_{card['kind']}"]["required"]
    assert len(needed) >= 6
    for field in needed:
        assert not valid.is_valid({**card, field: None})
        assert not valid.is_valid({key: card[key] for key in card if key != field})
    assert not valid.is_valid({**card, "guarantee": {**card["guarantee"], "unknown": 1}})
    assert valid.is_valid({**card, "unknown": 1}) == is_open


@pytest.mark.part
def test_cards_of_today_have_their_form():
    valid = schema("card")
    assert {card["kind"] for card in CARDS.values()} == {*KINDS, "horizon"}
    for make in (*EXAMPLES.values(), *(partial(released, name) for name in MADE)):
        valid.validate(json.loads(draw_of(make()).text))


DOMAINS = [
    '{"age": 85, "sex": 2}',
    '{"attributes": [{"name": "a", "type": "numeric", "min": 0, "max": 512, "bins": 32}]}',
    '{"attributes": [{"name": "a", "type": "numeric", "edges": [0, 1], "whole": true}]}',
    '{"attributes": [{"name": "a", "type": "boolean", "nullable": true}], "types_from": "data"}',
    '{"attributes": [{"name": "a", "type": "date", "edges": ["1900-01-01", "1950-01-01"]}]}',
    '{"attributes": [{"name": "a", "type": "categorical", "discover": {"max_values": 9}}]}',
    '{"attributes": [{"name": "a", "type": "numeric", "discover": {"bins": 9}, "other": true}]}',
    '{"attributes": [{"name": "a", "type": "discover", "trim": true}]}',
    json.dumps(IMPOSSIBLE.to_json()),
]
NO_DOMAINS = [
    "[]",
    '{"age": 0}',
    '{"attributes": []}',
    '{"attributes": [{"name": "a", "type": "numeric", "min": 0, "max": 512}]}',
    '{"attributes": [{"name": "a", "type": "numbers", "edges": [0, 1]}]}',
    '{"attributes": [{"name": "a", "type": "boolean", "values": [true]}]}',
    '{"attributes": [{"name": "a", "type": "integer", "min": 0, "max": 9, "discover": {}}]}',
    '{"attributes": [{"name": "a", "type": "categorical", "discover": {"bins": 9}}]}',
    '{"attributes": [{"name": "a", "type": "discover", "edges": [0, 1]}]}',
    '{"attributes": [{"name": "a", "type": "categorical", "values": {"open": "which?"}}]}',
    '{"attributes": [{"name": "a", "type": "boolean"}], "rules": []}',
]


def test_the_form_of_a_domain_is_that_of_its_reader():
    valid = schema("domain")
    for text in DOMAINS:
        parse_open_domain(text)
        valid.validate(json.loads(text))
    for text in NO_DOMAINS:
        assert not valid.is_valid(json.loads(text)), text
        with pytest.raises(dp.InputError):
            parse_open_domain(text)


def test_an_exported_ledger_has_its_form(tmp_path, capsys):
    url = str(tmp_path / "budgets.sqlite")
    book, promise = dp.Ledger(url), dp.Guarantee(0.5, 1e-9, "add_or_remove_one", "person", 2)
    book.declare("visits", 3, 1e-9, "person", "add_or_remove_one")
    domain = dp.read_domain('{"a": 2}')
    plan = plan_release(dp.MWEM(), domain, dp.marginals(domain, ways=1), promise)
    for origin in (None, Origin("alice", "the report")):
        book.spend("visits", promise, plan.loss, plan.mechanism, plan.public, origin)
    exported = json.loads(printed(capsys, "ledger", url, "--json"))
    valid = schema("ledger")
    valid.validate(exported)
    for change in ("state", "loss", "spent_at"):
        other = copy.deepcopy(exported)
        del other["datasets"][0]["entries"][1][change]
        assert not valid.is_valid(other)


def paths(value: object, place: str = "") -> dict[str, object]:
    """The values of a record by their names, without places in lists."""
    if isinstance(value, list):
        return {name: each for item in value for name, each in paths(item, place).items()}
    if isinstance(value, dict):
        parts = [paths(each, f"{place}.{name}".lstrip(".")) for name, each in value.items()]
        return {name: each for part in parts for name, each in part.items()}
    return {place: value}


OWNERS = ("name", "data_curators.data_curator_name", "data_curators.data_curator_type")
OWNERS += ("intended_use", "data_product_region", "publication_date")


@pytest.mark.parametrize("name", RELEASES)
def test_a_draft_for_the_registry_has_its_fields(name, capsys):
    text = printed(capsys, "describe", str(GOLDEN / name), "--registry")
    record, guarantee = json.loads(text), CARDS[name]["guarantee"]
    values = paths(record["deployment"])
    for key in ("epsilon", "delta"):
        assert values[f"privacy_loss.privacy_parameters.{key}"] == guarantee[key]
    assert values["privacy_loss.privacy_unit"] == guarantee["privacy_unit"]
    owned = {f"basic.{each}" for each in OWNERS} | {"administrative.registry_authors"}
    assert {place for place, value in values.items() if value == TO_FILL_IN} == owned
    assert "Recomputed from the noise: holds" in values["implementation.composition"]
    page = (ROOT / "docs" / "standards.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[a-z_]+\.[a-z_]+`.*?) \|", page, re.M)
    listed = {each for row in rows for each in re.findall(r"`(\w+\.\w+)`", row)}
    fields = {".".join(place.split(".")[:2]) for place in values}
    assert fields == listed if name == "horizon" else fields < listed


@pytest.mark.parametrize("name", RELEASES)
def test_a_record_for_catalogues_names_each_file_with_its_checksum(name, capsys):
    record = json.loads(printed(capsys, "describe", str(GOLDEN / name), "--dcat"))
    files, card = record["dcat:distribution"], CARDS[name]
    used = {word.partition(":")[0] for word in re.findall(r'"(\w+:\w+)":', json.dumps(record))}
    assert used - {"http"} <= record["@context"].keys()
    found = {
        each["dcat:downloadURL"]["@id"]: {
            "sha256": each["spdx:checksum"]["spdx:checksumValue"]["@value"],
            "bytes": int(each["dcat:byteSize"]["@value"]),
        }
        for each in files
    }
    assert found == card.get("files", {})
    assert record["@id"].replace("-", "") == f"urn:uuid:{record['dcterms:identifier']}"
    assert f"e^{card['guarantee']['epsilon']:g}" in record["dcterms:provenance"]["rdfs:label"]
