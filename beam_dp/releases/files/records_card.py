"""The card of a synthetic database."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import is_integer, is_number
from beam_dp.domain import Domain
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.strict_json import (
    RepeatedKeyError,
    parse_json,
)
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.workload import Workload, workload_from_json
from beam_dp.releases.left_out import LeftOut
from beam_dp.releases.synthetic_database import Names, SyntheticDatabase

SCHEMA_VERSION = 1
_MAX_DEPTH = 64

_FIELDS = {
    "schema_version": int,
    "kind": str,
    "draw_id": str,
    "mechanism": str,
    "guarantee": dict,
    "num_records": dict,
    "domain": dict,
    "workload": dict,
    "parameters": dict,
    "noise": list,
    "errors": list,
    "fit": dict,
    "versions": dict,
    "files": dict,
}


class ReleaseError(InputError):
    """A release on disk is damaged or is none: one line with its path and what is wrong.

    Example:
        >>> str(ReleaseError("out", "card.json is missing"))
        "release: 'out' is refused; card.json is missing"
    """

    def __init__(self, directory: str, condition: str) -> None:
        InputError.__init__(self, "release", directory, condition)
        self.args = (directory, condition)  # what pickle calls the class with


@dataclass(frozen=True)
class PayloadFile:
    """What a card says of one of its files.

    Args:
        sha256: checksum, 64 hexadecimal digits.
        num_bytes: size.
    """

    sha256: str
    num_bytes: int


@dataclass(frozen=True, eq=False)
class Card:
    """The public description of a synthetic database, as ``card.json`` holds it.

    Args: as of ``SyntheticDatabase``, and
        files: the payload, by file name.
    """

    draw_id: str
    record_tables: Sequence[Names]
    num_represented: int | None
    queries: Sequence[LinearQuery]
    query_error: Mapping[str, float | None]
    mechanism: str
    guarantee: Guarantee
    num_records: int
    num_records_is_public: bool
    domain: Domain
    workload: Workload
    parameters: Mapping[str, Any]
    noise: Sequence[Mapping[str, Any]]
    errors: Mapping[Names, Mapping[str, float | None]]
    fit: Mapping[str, Any]
    versions: Mapping[str, str]
    left_out: LeftOut | None
    files: Mapping[str, PayloadFile]

    @classmethod
    def of(cls, release: SyntheticDatabase, files: Mapping[str, PayloadFile]) -> Card:
        """Returns the card of a release whose payload is in these files."""
        shared = {name: getattr(release, name) for name in cls.__annotations__ if name != "files"}
        return cls(**shared, files=files)

    def release(
        self,
        codes: Sequence[NDArray[Any]],
        counts: NDArray[np.int64],
        potentials: Sequence[tuple[Names, NDArray[np.float64]]],
    ) -> SyntheticDatabase:
        """Returns the release that has this card and this payload."""
        shared = {name: getattr(self, name) for name in self.__annotations__ if name != "files"}
        return SyntheticDatabase(**shared, codes=codes, counts=counts, potentials=potentials)

    def to_json(self) -> dict[str, Any]:
        """Returns the card as JSON holds it."""
        number = "public" if self.num_records_is_public else "noisy"
        small: dict[str, Any] = {}
        if self.num_represented is not None:
            small["num_represented"] = self.num_represented
        if self.queries:
            small["queries"] = [query.to_json() for query in self.queries]
            small["query_error"] = dict(self.query_error)
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "synthetic_database",
            "draw_id": self.draw_id,
            "mechanism": self.mechanism,
            "guarantee": self.guarantee.to_json(),
            "num_records": {number: self.num_records},
            "domain": self.domain.to_json(),
            "workload": self.workload.to_json(),
            "parameters": dict(self.parameters),
            "noise": list(self.noise),
            "errors": [{"marginal": list(names), **e} for names, e in self.errors.items()],
            "fit": dict(self.fit),
            "record_tables": [list(names) for names in self.record_tables],
            **small,
            **({} if self.left_out is None else {"left_out": self.left_out.to_json()}),
            "versions": dict(self.versions),
            "files": {
                name: {"sha256": file.sha256, "bytes": file.num_bytes}
                for name, file in self.files.items()
            },
        }

    def to_text(self) -> str:
        """Returns the text of ``card.json``."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, parsed: Any) -> Card:
        """Returns the card that parsed JSON describes.

        Raises:
            InputError: if it describes none, or one of a schema that this version can't read.
        """
        if not isinstance(parsed, dict):
            raise InputError("card", type(parsed).__name__, "must be a JSON object")
        check_depth_and_texts(parsed)
        version = parsed.get("schema_version")
        if version != SCHEMA_VERSION or isinstance(version, bool):
            raise InputError("schema_version", version, f"must be {SCHEMA_VERSION}")
        for name, kind in _FIELDS.items():
            if not isinstance(parsed.get(name), kind):
                raise InputError("card", name, f"must be there and be of type {kind.__name__}")
        if not re.fullmatch("[0-9a-f]{32}", parsed["draw_id"]):
            raise InputError("draw_id", parsed["draw_id"], "must be 32 hexadecimal digits")
        # The first cards had none.
        record_tables = parsed.get("record_tables", [])
        if not isinstance(record_tables, list) or not all(map(_are_texts, record_tables)):
            raise InputError("record_tables", record_tables, "must be lists of attribute names")
        if parsed["kind"] != "synthetic_database":
            raise InputError("kind", parsed["kind"], "must be 'synthetic_database'")
        number = next(iter(parsed["num_records"]), None)
        num_records = parsed["num_records"].get(number)
        is_one = len(parsed["num_records"]) == 1 and number in ("public", "noisy")
        if not is_one or not _is_count(num_records):
            condition = 'must be {"public": N} or {"noisy": N} with N >= 0'
            raise InputError("num_records", number, condition)
        if not all(isinstance(entry, dict) for entry in parsed["noise"]):
            raise InputError("noise", len(parsed["noise"]), "must be a list of JSON objects")
        if not all(isinstance(version, str) for version in parsed["versions"].values()):
            raise InputError("versions", len(parsed["versions"]), "must be texts")
        domain = domain_from_json(parsed["domain"], "card")
        represented = parsed.get("num_represented")
        if represented is not None and not (_is_count(represented) and represented):
            raise InputError("num_represented", represented, "must be an integer >= 1")
        queries = parsed.get("queries", [])
        if not isinstance(queries, list):
            raise InputError("queries", type(queries).__name__, "must be a list")
        make = LinearQueries(domain) if queries else None
        return cls(
            draw_id=parsed["draw_id"],
            record_tables=[tuple(names) for names in record_tables],
            num_represented=represented,
            queries=[make.from_json(query) for query in queries] if make else [],
            query_error=_error_values(parsed.get("query_error", {})),
            mechanism=parsed["mechanism"],
            guarantee=Guarantee.from_json(parsed["guarantee"]),
            num_records=num_records,
            num_records_is_public=number == "public",
            domain=domain,
            workload=workload_from_json(parsed["workload"], domain),
            parameters=parsed["parameters"],
            noise=parsed["noise"],
            errors=dict(_error_of(entry, domain) for entry in parsed["errors"]),
            fit=parsed["fit"],
            versions=parsed["versions"],
            left_out=read_left_out(parsed, domain),
            files={name: payload_file(name, entry) for name, entry in parsed["files"].items()},
        )

    @classmethod
    def from_text(cls, text: str) -> Card:
        """Returns the card that a ``card.json`` holds.

        Raises:
            InputError: if it holds none.
        """
        return cls.from_json(parse_card_text(text))


def read_left_out(parsed: Mapping[str, Any], domain: Domain) -> LeftOut | None:
    """Returns the counts of records outside the domain that a card holds; None if it holds none.

    Raises:
        InputError: if they are not of this domain, or damaged.
    """
    if "left_out" not in parsed:
        return None
    left_out = LeftOut.from_json(parsed["left_out"])
    left_out.check(domain)
    return left_out


def parse_card_text(text: str) -> Any:
    """Returns the JSON that a ``card.json`` of any kind holds.

    Raises:
        InputError: if it is no JSON, or JSON that no card may hold.
    """
    try:
        return parse_json(text, _refuse_constant)
    except json.JSONDecodeError as error:
        condition = f"is not JSON at line {error.lineno}, column {error.colno}"
        raise InputError("card", error.msg, condition) from None
    except RecursionError:
        raise InputError("card", len(text), "is nested too deeply") from None
    except RepeatedKeyError as error:
        raise InputError("card", error.key, "must not repeat a key in an object") from None
    except InputError:
        raise
    except ValueError:  # an integer of thousands of digits
        raise InputError("card", len(text), "holds a number that is too long") from None


def check_depth_and_texts(parsed: Any) -> None:
    """Refuses what later steps cannot walk through, or write again as UTF-8.

    Raises:
        InputError: if it is nested too deeply, or holds half a character.

    Without recursion: the parser reads deeper than Python functions may call each other.
    """
    level, depth = [parsed], 0
    while level:
        if depth > _MAX_DEPTH:
            raise InputError("card", depth, f"must be nested at most {_MAX_DEPTH} deep")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += [*value, *value.values()]
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str) and not value.isascii():
                _check_unicode(value)
        level, depth = below, depth + 1


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # a JSON escape may hold half a character
        raise InputError("card", text, "must hold Unicode texts only") from None


def _refuse_constant(constant: str) -> NoReturn:
    raise InputError("card", constant, "must hold finite numbers only")


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_count(value: object) -> bool:
    return is_integer(value) and 0 <= value < 2**63


def _error_of(entry: Any, domain: Domain) -> tuple[Names, dict[str, float | None]]:
    if not isinstance(entry, dict) or not isinstance(entry.get("marginal"), list):
        raise InputError("errors", type(entry).__name__, "must each name a marginal")
    names = tuple(entry["marginal"])
    if not all(isinstance(name, str) for name in names):
        raise InputError("errors", len(names), "must each name a marginal")
    domain.axes(names)
    values = {name: value for name, value in entry.items() if name != "marginal"}
    return names, _error_values(values)


def _error_values(values: Any) -> dict[str, float | None]:
    if not isinstance(values, dict):
        raise InputError("query_error", type(values).__name__, "must be a JSON object")
    for name, value in values.items():
        if value is not None and not (is_number(value) and 0 <= value <= sys.float_info.max):
            raise InputError("errors", name, "must be finite numbers >= 0, or null")
    return values


def payload_file(name: str, entry: Any) -> PayloadFile:
    """Returns what a card says of a file.

    Raises:
        InputError: if it says no checksum and size.
    """
    fits = (
        isinstance(entry, dict)
        and set(entry) == {"sha256", "bytes"}
        and isinstance(entry["sha256"], str)
        and re.fullmatch("[0-9a-f]{64}", entry["sha256"])
        and _is_count(entry["bytes"])
    )
    if not fits:
        raise InputError("files", name, "must have a checksum and a size")
    return PayloadFile(entry["sha256"], entry["bytes"])
