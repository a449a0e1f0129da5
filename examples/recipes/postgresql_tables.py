"""A release of a query in PostgreSQL, paid for in a ledger there, written back as a table.

    pip install 'beam_dp[postgresql]'
    python postgresql_tables.py postgresql://USER@HOST/DATABASE

The table `visits` is loaded by `load`, which stands for whatever fills yours.
"""

from __future__ import annotations

import io
import sys

import psycopg
import pyarrow.csv
import pyarrow.parquet as pq

import beam_dp as dp

# One row for each person.
QUERY = """
    SELECT person_id, min(age) AS age, min(sex) AS sex, bool_or(smoker) AS smoker
    FROM visits GROUP BY person_id
"""
AS_CSV = "(FORMAT csv, HEADER)"
# PostgreSQL writes t and f, which no domain knows: as texts, all rows would be left out. NULL is an
# empty field, and an empty text has quotes.
AS_WRITTEN = pyarrow.csv.ConvertOptions(
    true_values=["t"],
    false_values=["f"],
    strings_can_be_null=True,
    quoted_strings_can_be_null=False,
)
DOMAIN = """{"attributes": [
    {"name": "age", "type": "numeric", "edges": [17, 25, 35, 45, 55, 65, 91]},
    {"name": "sex", "type": "categorical", "values": ["Female", "Male"]},
    {"name": "smoker", "type": "boolean"}]}"""


def load(database: psycopg.Connection) -> None:
    """Fills the table of visits."""
    visits = pq.read_table("visits.parquet", columns=["person_id", "age", "sex", "smoker"])
    database.execute("CREATE TABLE visits (person_id int, age int, sex text, smoker boolean)")
    write(database, "visits", visits)


def write(database: psycopg.Connection, name: str, table: pyarrow.Table) -> None:
    """Adds rows to a table that exists."""
    text = io.BytesIO()
    pyarrow.csv.write_csv(table, text)
    with database.cursor().copy(f"COPY {name} FROM STDIN {AS_CSV}") as copy:
        copy.write(text.getvalue())


def read(database: psycopg.Connection, query: str) -> pyarrow.Table:
    """Returns the rows of a query; one statement sees one state of the database."""
    with database.cursor().copy(f"COPY ({query}) TO STDOUT {AS_CSV}") as copy:
        text = b"".join(copy)
    return pyarrow.csv.read_csv(io.BytesIO(text), convert_options=AS_WRITTEN)


def main(url: str) -> None:
    """Releases the people of the table, and adds a table with the copy."""
    domain = dp.parse_domain(DOMAIN)
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", max_records_per_unit=1)
    ledger = dp.Ledger(url)
    ledger.declare("visits-2026", 3, 1e-9, "person_id", "add_or_remove_one")
    with psycopg.connect(url) as database:
        load(database)
        release = dp.release(
            read(database, QUERY),
            domain,
            dp.marginals(domain, ways=2),
            guarantee,
            output="out/postgresql",
            ledger=ledger,
            dataset_id="visits-2026",
        )
        database.execute("CREATE TABLE people_copy (age float, sex text, smoker boolean)")
        write(database, "people_copy", release.to_arrow())
        print(database.execute("SELECT sex, count(*) FROM people_copy GROUP BY 1").fetchall())
    print(f"paid: {ledger.total('visits-2026'):g}")


if __name__ == "__main__":
    main(sys.argv[1])
