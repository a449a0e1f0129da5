"""Reading draws the first rows again, and refuses a card that would give other rows."""

import numpy as np
import pytest
from damaged_files import edited_card, refusal_line
from forgeries import forge
from release_examples import DRAW, release_of, same_release

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.files import domain_from_json
from beam_dp.releases.synthetic_database import release as release_module, shards
from beam_dp.releases.synthetic_database.records import distinct_records
from beam_dp.releases.synthetic_database.shards import bin_positions, values_within

DOMAIN = domain_from_json(
    {
        "attributes": [
            {"name": "sex", "type": "categorical", "values": ["f", "m"]},
            {"name": "member", "type": "boolean"},
            {"name": "age", "type": "numeric", "edges": [0, 20, 30, 40, 90], "whole": True},
            {"name": "income", "type": "numeric", "edges": [0, 1, 2, 4, 8], "nullable": True},
            {"name": "day", "type": "date", "edges": ["2000-01-01", "2001-01-01", "2010-01-01"]},
        ]
    }
)
FORMATS = pytest.mark.parametrize("records_format", ["avro", "parquet", "csv"])


def made(records_format, within_bins="density"):
    """1,000 records, with more of them in the first bins."""
    rng = np.random.default_rng(7)
    codes = [(rng.random(1000) ** 2 * size).astype(int) for size in DOMAIN.shape]
    codes, counts = distinct_records(DOMAIN, codes)
    return release_of(
        DOMAIN,
        codes=codes,
        counts=counts,
        num_records=1000,
        potentials=[],
        records_format=records_format,
        within_bins=within_bins,
    )


OTHER_DRAW = "f" * 32
# The rule of the rows, and changes of the card that would give other rows.
FORGED = [
    ("density", 'within_bins = "uniform"'),
    ("uniform", 'within_bins = "density"'),
    ("midpoint", f'draw_id = "{OTHER_DRAW}"'),
    ("midpoint", 'domain.attributes.0.values = ["m", "f"]'),
    ("density", "domain.attributes.2.edges.3 = 41"),
    ("density", "domain.attributes.3.edges.1 = 1.0001"),
    ("uniform", 'domain.attributes.4.edges.0 = "1999-12-31"'),
]


@pytest.mark.parametrize(
    ("records_format", "shard_bytes"),
    [
        *(("avro", 2**25), ("csv", 2500)),
        *(
            pytest.param(*each, marks=pytest.mark.part)
            for each in (("parquet", 2**25), ("csv", 2**25), ("avro", 2500), ("parquet", 2500))
        ),
    ],
)
@pytest.mark.parametrize(("within_bins", "changes"), FORGED)
def test_refuses_a_card_that_would_give_other_rows(
    tmp_path, capfd, monkeypatch, records_format, shard_bytes, within_bins, changes
):
    monkeypatch.setattr(shards, "SHARD_BYTES", shard_bytes)
    release = made(records_format, within_bins)
    assert (release.num_shards > 1) == (shard_bytes == 2500)
    folder = tmp_path / "out"
    dp.write_release(release, folder)
    assert same_release(dp.read_release(folder, check_rows=True), release)
    with edited_card(folder) as card:
        forge(card, changes)
        if "draw_id" in changes:
            files = card["files"].items()
            card["files"] = {name.replace(DRAW, OTHER_DRAW): each for name, each in files}
            for path in folder.glob(f"*{DRAW}*"):
                path.rename(folder / path.name.replace(DRAW, OTHER_DRAW))
    with pytest.raises(dp.ReleaseError, match=r"rows|domain"):
        dp.read_release(folder, check_rows=True)
    assert main(["verify", str(folder)]) == 2
    assert capfd.readouterr().err.count("\n") == 1


@FORMATS
def test_reads_rows_of_a_machine_that_rounds_one_end_otherwise(
    tmp_path, monkeypatch, records_format
):
    def rounded_otherwise(attribute, *arguments):
        positions = bin_positions(attribute, *arguments)
        if attribute.name == "income":
            positions[0, 40] += 2.0**-20
        return positions

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(release_module, "bin_positions", rounded_otherwise)
        release = made(records_format)
        dp.write_release(release, tmp_path / "out")
    again = dp.read_release(tmp_path / "out", check_rows=True)
    assert same_release(again, release) and not again.to_arrow().equals(release.to_arrow())


def rows_by_code(part, draw_id, drawn):
    """The rows of version 0.1.0, which drew values within bins from other random bits."""
    which = np.repeat(np.arange(len(part.counts)), part.counts)
    words = np.random.default_rng(3).integers(0, 2**64, len(which), np.uint64)
    values = {
        name: values_within(attribute, codes[part.distinct[which]], words, positions)
        for name, (attribute, codes, positions) in drawn.items()
    }
    yield shards.RowBlock(part.distinct, which, values)


@FORMATS
@pytest.mark.parametrize("within_bins", ["uniform", "density"])
def test_reads_rows_of_the_first_version_which_knew_no_density(
    tmp_path, monkeypatch, records_format, within_bins
):
    release = made(records_format, within_bins)
    with monkeypatch.context() as earlier:
        earlier.setattr(shards, "row_blocks", rows_by_code)
        dp.write_release(release, tmp_path)
    if within_bins == "uniform":
        assert same_release(dp.read_release(tmp_path), release)
    else:
        assert "has rows in another order, or with other values" in refusal_line(tmp_path)
