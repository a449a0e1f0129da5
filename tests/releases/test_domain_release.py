"""Released domains: their files, what readers refuse, and what is printed of hostile texts."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from open_domains import domain_release as release_of, guarantee
from release_examples import release_of as database_of
from rich.console import Console

import beam_dp as dp
from beam_dp.cli.main import main as beam_dp_main
from beam_dp.domain.attributes import PaidRelease
from beam_dp.errors import InputError
from beam_dp.releases.domain.release import DomainRelease
from beam_dp.releases.files.commit import probe_output
from beam_dp.releases.kinds import of_kind

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def test_found_values_name_the_draw_and_the_entry_that_paid() -> None:
    paid = release_of(ledger_release="visits/3")
    assert paid.domain["city"].values_from == PaidRelease("visits/3", paid.draw_id)
    free = release_of()
    assert free.domain["income"].edges_from == PaidRelease(None, free.draw_id)
    assert dp.read_domain(free.domain.to_json()) == free.domain
    assert dp.verify_release(paid).holds


def changed(release: DomainRelease, place: int, **fields: Any) -> DomainRelease:
    noise = [dict(entry) for entry in release.noise]
    noise[place] |= fields
    return dataclasses.replace(release, noise=noise)


def test_verify_finds_smaller_noise_lower_thresholds_and_other_guarantees() -> None:
    release = release_of()
    assert dp.verify_release(release).holds
    for place in range(2):
        scale = release.noise[place]["scale"]
        assert not dp.verify_release(changed(release, place, scale=scale * 0.9)).holds
    low = changed(release, 0, threshold=release.noise[0]["threshold"] * 9 // 10)
    assert any("slack of city" in fault for fault in dp.verify_release(low).faults)
    wider = changed(release, 1, levels=release.noise[1]["levels"][:-1])
    assert not dp.verify_release(wider).holds
    other = dataclasses.replace(release, guarantee=guarantee(50.0, 1e-9, max_records_per_unit=2))
    assert not dp.verify_release(other).holds


def test_found_texts_are_escaped_on_terminals_and_on_pages(tmp_path: Path, capsys) -> None:
    release = release_of((HOSTILE, "Oslo"))
    printed = io.StringIO()
    Console(file=printed, width=200).print(of_kind("describe", release))
    assert "Oslo" in printed.getvalue()
    assert "\x1b[31m" not in printed.getvalue()
    assert "\u202e" not in printed.getvalue()
    dp.write_release(release, tmp_path / "out")
    page = tmp_path / "page.html"
    assert beam_dp_main(["report", str(tmp_path / "out"), f"--output={page}"]) == 0
    html = page.read_text()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "2 values of city" in html


def test_a_domain_answers_no_queries(tmp_path: Path, capsys) -> None:
    dp.write_release(release_of(), tmp_path / "out")
    assert beam_dp_main(["answer", str(tmp_path / "out"), "--marginal", "city"]) == 2
    assert "is a domain, which answers no queries" in capsys.readouterr().err


def test_results_must_fit_the_domain() -> None:
    release = release_of()
    with pytest.raises(InputError, match="one per attribute"):
        dataclasses.replace(release, found=release.found[:1])
    with pytest.raises(InputError, match="one finite number per level"):
        bad = [release.found[0]._replace(counts=np.zeros(1)), release.found[1]]
        dataclasses.replace(release, found=bad)


def test_a_release_stands_beside_its_domain(place) -> None:
    """In a folder and in a bucket; without saying so, another folder is in the way."""
    domain, release = release_of(), database_of()
    dp.write_release(domain, f"{place.url()}/domain")
    with pytest.raises(InputError, match="an empty one"):
        dp.write_release(release, place.url())
    with pytest.raises(InputError, match="an empty one"):
        probe_output(place.url(), "other")
    probe_output(place.url(), "domain")
    dp.write_release(release, place.url(), beside="domain")
    assert dp.read_release(place.url()).draw_id == release.draw_id
    found = dp.read_release(f"{place.url()}/domain", kind=DomainRelease)
    assert found.card == domain.card and found.domain == domain.domain
