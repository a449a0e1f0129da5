"""What notebooks show of releases, plans and answers."""

from __future__ import annotations

import builtins
import html
import re

import pytest
from refusals import refusal
from release_examples import DOMAIN, GUARANTEE, release_of

import beam_dp as dp
from beam_dp.releases.synthetic_database.questions import AnswerTable

HOSTILE = "<script>alert(1)</script>"


def words(markup):
    """The text of markup, in one line."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", markup)).split())


def test_release_shows_what_its_card_states():
    release = release_of()
    assert "epsilon 1, delta 1e-09" in release.summary()
    assert "member" in release.summary()
    assert words(release._repr_html_()) == " ".join(release.summary().split())


def test_summary_is_text_in_jupyter_too(monkeypatch):
    release = release_of()
    wanted = release.summary()
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert release.summary() == wanted != ""


def test_plan_shows_its_promise_and_parameters():
    plan = dp.MWEM().plan(DOMAIN, dp.marginals(DOMAIN, ways=1), GUARANTEE, 50)
    shown = words(plan._repr_html_())
    assert "epsilon 1, delta 1e-09" in shown
    assert "strategy measure_all" in shown


def test_answers_are_a_table_of_the_same_numbers_as_printed():
    answers = release_of().query().group_by("member").count()
    shown = words(answers._repr_html_())
    for text in repr(answers).split():
        assert text in shown


def test_long_table_says_how_much_it_shows():
    answers = AnswerTable({"hours": list(range(70)), "count": [1.5] * 70}, 1)
    assert "50 of 70 answers" in words(answers._repr_html_())


def test_markup_of_values_is_escaped():
    answers = AnswerTable({"name": [HOSTILE], "count": [1.5], "reason": [""]}, 1)
    assert HOSTILE not in answers._repr_html_()
    assert HOSTILE in words(answers._repr_html_()) or "alert(1)" in words(answers._repr_html_())


def test_plot_draws_a_bar_and_a_margin_for_each_group():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    answers = release_of().query().group_by("member").count()
    axes = answers.plot()
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx(answers.columns["count"])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["False", "True"]
    assert answers.plot(axes) is axes


def test_plot_refuses_too_many_bars():
    pytest.importorskip("matplotlib")
    answers = AnswerTable({"hours": list(range(70)), "count": [1.5] * 70}, 1)
    assert "at most 60 bars" in refusal(answers.plot)


def test_plot_names_matplotlib_if_it_is_missing(monkeypatch):
    usual = builtins.__import__

    def lacking(name, *given):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return usual(name, *given)

    monkeypatch.setattr(builtins, "__import__", lacking)
    answers = AnswerTable({"count": [1.5]})
    assert "'matplotlib' is not valid: must be installed" in refusal(answers.plot)
