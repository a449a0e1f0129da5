"""Reads columns from a `CREATE TABLE`, including enumerations and CHECK constraints."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import sqlglot
from sqlglot import exp

from beam_dp.domain.attributes import nearest_known
from beam_dp.domain.schemas.draft import NESTED, NO_LEVELS, Column, Kind
from beam_dp.errors import InputError, shown

# sqlglot's names of types.
_KINDS: dict[Kind, tuple[str, ...]] = {
    "boolean": ("BIT", "BOOLEAN"),
    "categorical": (
        "BINARY", "BLOB", "BPCHAR", "CHAR", "FIXEDSTRING", "IPADDRESS", "LONGTEXT", "MEDIUMTEXT",
        "NAME", "NCHAR", "NVARCHAR", "TEXT", "TINYTEXT", "UUID", "VARBINARY", "VARCHAR",
    ),
    "date": ("DATE", "DATE32"),
    "datetime": (
        "DATETIME", "DATETIME2", "DATETIME64", "SMALLDATETIME", "TIMESTAMP", "TIMESTAMPLTZ",
        "TIMESTAMPNTZ", "TIMESTAMPTZ", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP_S",
    ),
    "integer": (
        "BIGINT", "BIGSERIAL", "INT", "INT128", "INT256", "MEDIUMINT", "SERIAL", "SMALLINT",
        "SMALLSERIAL", "TINYINT", "UBIGINT", "UINT", "UINT128", "UINT256", "UMEDIUMINT",
        "USMALLINT", "UTINYINT", "YEAR",
    ),
    "numeric": (
        "BIGDECIMAL", "DECIMAL", "DECIMAL128", "DECIMAL256", "DECIMAL32", "DECIMAL64", "DECFLOAT",
        "DOUBLE", "FLOAT", "MONEY", "SMALLMONEY", "UDECIMAL", "UDOUBLE",
    ),
}  # fmt: skip
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
_WITH_ZONE = ("TIMESTAMPLTZ", "TIMESTAMPTZ")
_NESTED = ("ARRAY", "LIST", "MAP", "NESTED", "OBJECT", "STRUCT")
_NO_LEVELS = ("INTERVAL", "TIME", "TIMETZ", "TIME_NS")
_ENUMS = ("ENUM", "ENUM8", "ENUM16")


def sql_columns(text: str, source: str, table: str | None, dialect: str | None) -> list[Column]:
    """Returns the columns of a table that SQL creates; ``table`` chooses one of several tables."""
    statements = _parsed(text, source, dialect)
    tables = {name: statement for statement in statements for name in _names_of_table(statement)}
    if not tables:
        raise InputError("schema", source, "must contain a CREATE TABLE that lists its columns")
    if table is None and len({id(statement) for statement in tables.values()}) > 1:
        condition = f"must name one of the tables of {source}: {', '.join(map(shown, tables))}"
        raise InputError("table", None, condition)
    if table is not None and table not in tables:
        near = nearest_known(table, tables)
        raise InputError("table", table, f"must be a table that {source} creates; {near}")
    chosen = next(iter(tables.values())) if table is None else tables[table]
    enums = dict(entry for statement in statements for entry in _enum_type(statement))
    return _table_columns(chosen, enums)


def _parsed(text: str, source: str, dialect: str | None) -> list[Any]:
    if dialect is not None and dialect not in (names := [kind.value for kind in sqlglot.Dialects]):
        condition = f"must be known to sqlglot; {nearest_known(dialect, names)}"
        raise InputError("dialect", dialect, condition)
    log = logging.getLogger("sqlglot")
    level, place = log.level, ""
    log.setLevel(logging.CRITICAL)  # sqlglot warns about statements that are not used here
    try:
        return [tree for tree in sqlglot.parse(text, read=dialect) if tree is not None]
    except sqlglot.errors.ParseError as error:
        where = error.errors[0] if error.errors else {}
        place = f" at line {where['line']}, column {where['col']}" if "line" in where else ""
    except (sqlglot.errors.SqlglotError, RecursionError):
        pass
    finally:
        log.setLevel(level)
    condition = f"must be SQL that can be parsed{place}; --dialect names its dialect"
    raise InputError("schema", source, condition)


def _names_of_table(statement: Any) -> Iterator[str]:
    """Yields the name of the table that a statement creates, without and with its schema."""
    if isinstance(statement, exp.Create) and isinstance(statement.this, exp.Schema):
        if statement.kind != "TABLE" or not list(statement.this.find_all(exp.ColumnDef)):
            return
        parts = [part.name for part in statement.this.this.parts]
        yield parts[-1]
        if len(parts) > 1:
            yield ".".join(parts)


def _enum_type(statement: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the name and values of a `CREATE TYPE ... AS ENUM`, which sqlglot keeps as text."""
    if not isinstance(statement, exp.Command) or str(statement.this).upper() != "CREATE":
        return
    tokens = sqlglot.tokenize(f"{statement.args.get('expression')}")
    words = [token.text.upper() for token in tokens]
    if words[:1] == ["TYPE"] and "ENUM" in words and "AS" in words:
        name = tokens[words.index("AS") - 1].text
        kind = sqlglot.TokenType.STRING
        yield name.casefold(), tuple(token.text for token in tokens if token.token_type == kind)


def _table_columns(create: Any, enums: dict[str, tuple[str, ...]]) -> list[Column]:
    columns, parts = [], create.this.expressions
    checks = [check for part in parts for check in part.find_all(exp.CheckColumnConstraint)]
    keys = {
        name.name
        for part in parts
        for key in part.find_all(exp.PrimaryKey)
        for name in key.find_all(exp.Identifier)
    }
    required = (exp.NotNullColumnConstraint, exp.PrimaryKeyColumnConstraint)
    for part in parts:
        if not isinstance(part, exp.ColumnDef):
            continue
        column = _typed(part, enums)
        is_required = part.name in keys or any(
            isinstance(constraint.kind, required) and not constraint.kind.args.get("allow_null")
            for constraint in part.constraints
        )
        if column.kind is not None:
            column = replace(column, nullable=not is_required)
            for check in checks:
                column = _checked(column, check.this)
        columns.append(column)
    return columns


def _typed(part: Any, enums: dict[str, tuple[str, ...]]) -> Column:
    name, kind = part.name, part.args.get("kind")
    if kind is None:
        return Column.unusable(name, "it has no type")
    type_name = getattr(kind.this, "name", str(kind.this))
    if type_name in _ENUMS:
        return Column(name, "categorical").listing([value.name for value in kind.expressions])
    if type_name == "USERDEFINED":
        values = enums.get(str(kind.args.get("kind")).rpartition(".")[2].strip('"').casefold(), ())
        if values:
            return Column(name, "categorical").listing(values)
    if type_name in _NESTED:
        return Column.unusable(name, NESTED)
    if type_name in _NO_LEVELS:
        return Column.unusable(name, NO_LEVELS)
    if type_name not in _KIND_OF:
        return Column.unusable(name, f"values of the type {shown(kind.sql())} have no levels")
    return Column(name, _KIND_OF[type_name], has_zone=type_name in _WITH_ZONE)


def _checked(column: Column, check: Any) -> Column:
    """Returns the column narrowed by the parts of a constraint that concern only this column."""
    check = _bare(check)
    if isinstance(check, exp.And):
        return _checked(_checked(column, check.left), check.right)
    if isinstance(check, exp.Between) and _is_column(check.this, column):
        return column.within(_literal(check.args["low"]), _literal(check.args["high"]))
    if isinstance(check, exp.In | exp.EQ) and _is_column(check.this, column):
        listed = [_literal(part) for part in _listed(check)]
        return column.listing(listed) if column.kind in ("categorical", "integer") else column
    if isinstance(check, exp.GT | exp.GTE | exp.LT | exp.LTE):
        left, right = check.this, check.expression
        is_low, is_open = isinstance(check, exp.GT | exp.GTE), isinstance(check, exp.GT | exp.LT)
        if _is_column(right, column):
            left, right, is_low = right, left, not is_low
        if _is_column(left, column):
            bound = _literal(right)
            low, high = (bound, None) if is_low else (None, bound)
            return column.within(low, high, is_open=(is_open, is_open))
    return column


def _listed(check: Any) -> list[Any]:
    """Returns the values of `IN (...)`, or of `= ANY (ARRAY[...])`, as PostgreSQL writes it."""
    if isinstance(check, exp.In):
        return list(check.expressions)
    array = _bare(check.expression)
    array = _bare(array.this) if isinstance(array, exp.Any) else None
    return list(array.expressions) if isinstance(array, exp.Array) else []


def _bare(expression: Any) -> Any:
    """Returns the expression without parentheses and casts."""
    while isinstance(expression, exp.Paren | exp.Cast):
        expression = expression.this
    return expression


def _is_column(expression: Any, column: Column) -> bool:
    expression = _bare(expression)
    return isinstance(expression, exp.Column) and expression.name == column.name


def _literal(expression: Any) -> str | int | float | None:
    """Returns the value of a literal; None for anything else."""
    expression = _bare(expression)
    sign = 1
    if isinstance(expression, exp.Neg):
        sign, expression = -1, _bare(expression.this)
    if not isinstance(expression, exp.Literal):
        return None
    if expression.is_string:
        return str(expression.this) if sign == 1 else None
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return sign * number(expression.this)
    return None
