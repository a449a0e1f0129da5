"""Every text that a domain admits is written, and read back, in releases of many rows."""

from __future__ import annotations

import pytest
from release_examples import records_bytes, release_of

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.releases.kinds import write_release
from beam_dp.releases.synthetic_database.records import RECORDS_FORMATS, check_records_format
from beam_dp.releases.synthetic_database.records_avro import read_records
from beam_dp.releases.synthetic_database.records_columns import read_columns
from beam_dp.transforms import ReadRecords

CONTROLS = [chr(code) for code in range(1, 32) if chr(code) not in "\n\r"]
TEXTS = (
    *CONTROLS, *(f"a{each}b" for each in CONTROLS), "", " ", "a ", '"', '""', 'a"b', "a,b", ";",
    "NA", "null", "nan", "true", "0", "007", "1e5", "=1+1", "'", "\\", "\\N", "#", "\x7f", "\x85",
    "\xa0", "\u2028", "\ufeffa", "\u200b", "e\u0301", "\xe9", "\U0001f600", "x" * 5000,
)  # fmt: skip
DOMAIN = Domain(
    (
        CategoricalAttribute("x", TEXTS, nullable=True),
        CategoricalAttribute('in/out, "of" bed', ("a", "b"), other=True),
    )
)
ROWS = 60_000  # more than one block of every reader


@pytest.mark.part
@pytest.mark.parametrize("records_format", RECORDS_FORMATS)
def test_release_of_many_rows_is_read_back(records_format):
    release = release_of(DOMAIN, potentials=[], records_format=records_format, num_records=ROWS)
    data = records_bytes(release)
    if records_format == "avro":
        found = read_records(data, DOMAIN, ROWS)
    else:
        found = read_columns(data, DOMAIN, ROWS, records_format)
    assert all(map(lambda one, other: (one == other).all(), found.codes, release.codes))
    assert (found.counts == release.counts).all()


@pytest.mark.parametrize("text", ["a\0", "\0", "a\nb", "\r"])
def test_csv_is_refused_for_texts_with_line_breaks_or_nul(text):
    for domain in (
        Domain((CategoricalAttribute("x", ("a", text)),)),
        Domain((CategoricalAttribute("x", ("a",), nullable=True, null_values=(text,)),)),
    ):
        check_records_format(domain, "parquet")
        with pytest.raises(InputError, match="line break or NUL"):
            check_records_format(domain, "csv")


@pytest.mark.parametrize("records_format", RECORDS_FORMATS)
def test_released_records_are_input_of_the_same_domain(tmp_path, records_format):
    """Names that Avro does not allow are mapped there, and mapped back by the reader."""
    release = release_of(DOMAIN, potentials=[], records_format=records_format, num_records=200)
    write_release(release, tmp_path / "out")
    source = ReadRecords(str(tmp_path / "out" / f"records-*.{records_format}"))
    for attribute in DOMAIN:
        source.check_column("domain", attribute.name, attribute)
    assert sum(batch.num_rows for batch in source.batches(list(DOMAIN.names), DOMAIN)) == 200
