#!/bin/bash
# Makes the database that POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB describe, and serves it.
set -eu
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
export PGDATA=/var/lib/postgresql/data
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --encoding=UTF8 --username="$POSTGRES_USER" --pwfile=<(echo "$POSTGRES_PASSWORD") --auth=scram-sha-256
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -j postgres > /dev/null
fi
exec postgres -c listen_addresses='*'
