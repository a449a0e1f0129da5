"""Jobs that discover a domain, and what kills programs in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jobs import job_flags, paid_by
from open_domains import DOMAIN, residents

import beam_dp as dp
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.releases.domain.release import DomainRelease
from beam_dp.releases.synthetic_database.release import SyntheticDatabase


class Killed(BaseException):
    """What a killed program dies of: nothing catches it."""


def dies(*_: object, **__: object) -> None:
    raise Killed


def dies_after(patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        original(*arguments, **options)
        raise Killed

    patch.setattr(owner, name, call)


def flags_of(folder: Path, table: pa.Table | None = None, **changes: str | None) -> list[str]:
    given = {"privacy_unit": "person", "max_records_per_unit": "1", "epsilon": "1"}
    return job_flags(
        folder, residents() if table is None else table, domain=DOMAIN, **(given | changes)
    )


def paid(folder: Path, epsilon: float = 1.0) -> tuple[Ledger, list[str]]:
    return paid_by(flags_of(folder), folder, epsilon, epsilon * 1e-9)


def domain_of(folder: Path) -> DomainRelease:
    return dp.read_release(folder / "out" / "domain", kind=DomainRelease)


def release_of(folder: Path) -> SyntheticDatabase:
    return dp.read_release(folder / "out", kind=SyntheticDatabase)
