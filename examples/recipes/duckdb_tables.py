"""A release of a query in DuckDB, written back as a table.

    pip install duckdb
    python made_up.py && python duckdb_tables.py

A query may filter and change single rows, or group them by person. LIMIT, samples, ranks and
comparisons with other people's rows choose by what others did, and the guarantee is lost.
"""

from __future__ import annotations

import duckdb

import beam_dp as dp

QUERY = """
    SELECT person_id, min(age) AS age, min(sex) AS sex, max(charge) AS charge
    FROM visits WHERE day < 180 GROUP BY person_id
"""

domain = dp.parse_domain(
    """{"attributes": [
      {"name": "age", "type": "numeric", "edges": [17, 25, 35, 45, 55, 65, 91]},
      {"name": "sex", "type": "categorical", "values": ["Female", "Male"]},
      {"name": "charge", "type": "numeric", "edges": [0, 25, 50, 75, 100, 150, 200, 300]}]}"""
)
guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", max_records_per_unit=1)
with duckdb.connect("clinic.duckdb") as database:
    database.execute("CREATE TABLE visits AS FROM 'visits.parquet'")
    people = database.sql(QUERY)  # rows stream as Arrow batches
    release = dp.release(people, domain, dp.marginals(domain, ways=2), guarantee, output="out/half")
    copy = release.to_arrow()
    database.execute("CREATE TABLE half_copy AS FROM copy")
    # Counts with error bars, for queries in SQL. They are public, like the copy.
    counts = release.query().group_by("sex", "age").count().to_arrow()
    database.execute("CREATE TABLE half_counts AS FROM counts")
    print(database.sql("SELECT sex, sum(count) AS people FROM half_counts GROUP BY sex ORDER BY 1"))
