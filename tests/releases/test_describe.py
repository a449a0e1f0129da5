"""What is shown of releases, in terminals and in notebooks; left-out counts and domains."""

import dataclasses
import html
import re

import numpy as np
import pytest
from open_domains import domain_release as found_domain
from refusals import refusal
from release_examples import DOMAIN, GUARANTEE, release_of

import beam_dp as dp
from beam_dp.domain.attributes import PaidRelease
from beam_dp.releases.files.commit import probe_output
from beam_dp.releases.synthetic_database.questions import AnswerTable

HOSTILE = "<script>alert(1)</script>"


def words(markup):
    """The text of markup, in one line."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", markup)).split())


def test_notebooks_show_what_a_card_and_a_plan_state():
    release = release_of()
    assert "epsilon 1, delta 1e-09" in release.summary()
    assert "member" in release.summary()
    assert words(release._repr_html_()) == " ".join(release.summary().split())
    plan = dp.MWEM().plan(DOMAIN, dp.marginals(DOMAIN, ways=1), GUARANTEE, 50)
    shown = words(plan._repr_html_())
    assert "epsilon 1, delta 1e-09" in shown
    assert "strategy measure_all" in shown


def test_summary_is_text_in_jupyter_too(monkeypatch):
    release = release_of()
    wanted = release.summary()
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert release.summary() == wanted != ""


def test_notebooks_show_tables_of_answers_as_text():
    answers = release_of().query().group_by("member").count()
    shown = words(answers._repr_html_())
    for text in repr(answers).split():
        assert text in shown
    answers = AnswerTable({"hours": list(range(70)), "count": [1.5] * 70}, 1)
    assert "50 of 70 answers" in words(answers._repr_html_())
    answers = AnswerTable({"name": [HOSTILE], "count": [1.5], "reason": [""]}, 1)
    assert HOSTILE not in answers._repr_html_()
    assert HOSTILE in words(answers._repr_html_()) or "alert(1)" in words(answers._repr_html_())


def test_plots_have_a_bar_for_each_of_a_few_groups():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    answers = release_of().query().group_by("member").count()
    axes = answers.plot()
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx(answers.columns["count"])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["False", "True"]
    assert answers.plot(axes) is axes
    pytest.importorskip("matplotlib")
    answers = AnswerTable({"hours": list(range(70)), "count": [1.5] * 70}, 1)
    assert "at most 60 bars" in refusal(answers.plot)


def test_found_values_fit_their_domain_and_name_who_paid():
    paid = found_domain(ledger_release="visits/3")
    assert paid.domain["city"].values_from == PaidRelease("visits/3", paid.draw_id)
    free = found_domain()
    assert free.domain["income"].edges_from == PaidRelease(None, free.draw_id)
    assert dp.read_domain(free.domain.to_json()) == free.domain
    assert dp.verify_release(paid).holds
    release = found_domain()
    with pytest.raises(dp.InputError, match="one per attribute"):
        dataclasses.replace(release, found=release.found[:1])
    with pytest.raises(dp.InputError, match="one finite number per level"):
        bad = [release.found[0]._replace(counts=np.zeros(1)), release.found[1]]
        dataclasses.replace(release, found=bad)


def test_a_release_stands_beside_its_domain(place) -> None:
    """In a folder and in a bucket; without saying so, another folder is in the way."""
    domain, release = found_domain(), release_of()
    dp.write_release(domain, f"{place.url()}/domain")
    with pytest.raises(dp.InputError, match="an empty one"):
        dp.write_release(release, place.url())
    with pytest.raises(dp.InputError, match="an empty one"):
        probe_output(place.url(), "other")
    probe_output(place.url(), "domain")
    dp.write_release(release, place.url(), beside="domain")
    assert dp.read_release(place.url()).draw_id == release.draw_id
    found = dp.read_release(f"{place.url()}/domain", kind=dp.DomainRelease)
    assert found.card == domain.card and found.domain == domain.domain
