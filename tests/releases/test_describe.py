"""What is shown of releases, in terminals and in notebooks; left-out counts and domains."""

import builtins
import dataclasses
import html
import io
import re
from pathlib import Path

import numpy as np
import pytest
import rich.console
from kind_examples import IMPOSSIBLE, left_out_of
from noise_sources import Seeded
from open_domains import domain_release as found_domain
from refusals import refusal
from release_examples import DOMAIN, GUARANTEE, release_of
from rich.console import Console

import beam_dp as dp
from beam_dp.cli.main import main as beam_dp_main
from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.files import domain_from_json
from beam_dp.mechanisms.sketches.plan import SparseSummary
from beam_dp.releases.answers.describe import describe_answers
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.files.commit import probe_output
from beam_dp.releases.kinds import of_kind
from beam_dp.releases.sketches.describe import describe_sparse_release
from beam_dp.releases.synthetic_database.describe import describe_synthetic_database as describe
from beam_dp.releases.synthetic_database.questions import AnswerTable
from beam_dp.summaries.projection import Projection


def text_of(release, width=200, told=describe):
    console = rich.console.Console(file=io.StringIO(), width=width)
    console.print(told(release))
    return console.file.getvalue()


def test_description_states_errors_and_notes_of_marginals():
    error = {"standard_error": 4.25, "bound": 19.0, "failure_probability": 0.05}
    told = "50 (a noisy count, standard error 4.2)"
    assert told in text_of(release_of(errors={(): error}))
    assert "not stated" in text_of(release_of(errors={}, noise=[], fit={}))
    domain = domain_from_json({"a": 9, "b": 2})
    assert "impossible" not in text_of(release_of(domain))
    domain = domain.with_impossible([{"a": [[3, 5]], "b": [1]}])
    assert "a 3 5, b 1" in text_of(release_of(domain)).replace("[", "").replace("]", "")
    text = text_of(release_of(domain_from_json({"[red]a": 2, "b\x1b[2Jc\n": 2})))
    assert "[red]a" in text and "\x1b" not in text
    domain = domain_from_json({f"a{i}": 60 for i in range(10)})
    release = release_of(domain)
    text = text_of(release)
    assert "and 25 more, with no larger errors" in text and "no stated error" not in text
    stated = dict(list(release.errors.items())[:30])
    text = text_of(release_of(domain, errors=stated))
    assert "and 10 more, with no larger errors" in text
    assert "and 15 more, which were not measured as a whole and have no stated error" in text


def test_tables_of_a_release_fit_80_columns():
    """Each row is one line: a terminal of 80 columns shows the same as a wide one."""
    domain = domain_from_json(
        {
            "attributes": [
                {"name": "age", "type": "numeric", "edges": [17, 25, 35, 45, 55, 65, 91]},
                {"name": "education", "type": "categorical", "values": ["school", "a" * 30, "b"]},
                {"name": "hours", "type": "integer", "min": 0, "max": 99},
                {"name": "sex", "type": "categorical", "values": ["Female", "Male"]},
            ]
        }
    )
    release = release_of(domain)
    wide, narrow = (text_of(release, width).splitlines() for width in (200, 80))
    starts = ("attribute ", "marginal ", "age", "education", "hours", "sex", "Errors are in")
    for start in starts:
        rows, same = (
            [" ".join(line.split()) for line in lines if line.startswith(start)]
            for lines in (wide, narrow)
        )
        assert rows and rows == same
    assert "[17, 25) [25, 35) [35, 45) ... [65, 91]" in " ".join("\n".join(narrow).split())
    assert "school  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa  b" in "\n".join(narrow)


def test_shows_noise_in_words_and_records():
    table = {"measured": "table", "distribution": "discrete_laplace", "scale": 3.0, "grid": 1}
    residual = {"measured": "residual", "distribution": "discrete_gaussian", "scale": 90.0}
    noise = [
        {"attributes": ["age", "sex"], **table, "standard_deviation": 4.223},
        {"attributes": ["age"], **residual, "grid": 60, "standard_deviation": 1.5},
        {"attributes": [], **residual, "grid": 60, "standard_deviation": 1.5},
        {"what": "choice of the records", "distribution": "exponential", "scale": 7.0},
    ]
    told = [" ".join(each.split()) for each in text_of(release_of(noise=noise)).splitlines()]
    for row in (
        "measured noise of a cell scale standard deviation",
        "age, sex discrete Laplace 3 4.223",
        "age (beyond) discrete Gaussian 1.5 1.5",
        "number of records discrete Gaussian 1.5 1.5",
        "choice of the records exponential 7",
        "Scale and standard deviation are measured in records.",
        "(beyond): what a table adds to the tables of fewer of its attributes.",
    ):
        assert row in told, row
    many = text_of(release_of(noise=noise * 3))
    assert "and 2 more: see card.json" in many


def test_description_of_answers_shows_the_promise_once():
    promise = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", 2)
    card = {"mechanism": "laplace", "num_records": None, "settings": None}
    card |= {"guarantee": promise.to_json(), "plan": {"scale": 11.0, "guarantee": {"epsilon": 1}}}
    rows = [{"error": None, "route": "measured"}, {"error": "no", "route": None}]
    release = AnswersRelease(draw_id="a" * 32, guarantee=promise, rows=rows, stated=card)
    told = " ".join(text_of(release, 80, describe_answers).split())
    assert "promise epsilon 1, delta 1e-09, add or remove one protects one person_id" in told
    assert "scale 11" in told and "measured 1 refused 1" in told
    assert told.count("epsilon") == 1 and "not stated" not in told


def test_shows_the_proved_bounds_of_a_projection():
    promise = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    plan = dp.SparseProject(64).plan(promise, max_sparsity=3)
    empty = SparseSummary(Projection(np.zeros(64, np.int64)))
    release = dp.release_sparse(plan, empty, Seeded(1))
    text, bounds = text_of(release, told=describe_sparse_release), release.bounds()
    for part in (
        "one query, with probability 95 %",
        f"at most {bounds.noise:,.1f}",
        f"at most {bounds.distortion_of_norm:.3g} times the square root of the sum of the squared"
        " counts",
    ):
        assert part in text, part
    assert "num_queries" not in text


def test_description_shows_counts_of_left_out_records():
    text = " ".join(text_of(release_of(left_out=left_out_of(DOMAIN))).split())
    assert "7,788 records outside the domain (a noisy count with standard error 40.0" in text
    assert "attribute member 3,897 28.25 74" in text
    assert text.index("attribute member") < text.index("attribute age") < text.index("attribute h")
    assert "epsilon 0.95, delta 1e-09 for the release; epsilon 0.05, delta 0 for" in text
    text = text_of(release_of(IMPOSSIBLE, left_out=left_out_of(IMPOSSIBLE)))
    assert "an impossible combination 7" in " ".join(text.split())
    domain = domain_from_json({f"a{i}": 2 for i in range(30)})
    text = text_of(release_of(domain, left_out=left_out_of(domain)))
    assert "attribute a29" in text and "attribute a19" not in text
    assert "and 20 more: see card.json" in text


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


def test_plot_names_matplotlib_if_it_is_missing(monkeypatch):
    usual = builtins.__import__

    def lacking(name, *given):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return usual(name, *given)

    monkeypatch.setattr(builtins, "__import__", lacking)
    answers = AnswerTable({"count": [1.5]})
    assert "'matplotlib' is not valid: must be installed" in refusal(answers.plot)


HOSTILE_TEXT = "<script>alert(1)</script>\x1b[31m\u202e"


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


def test_found_texts_are_escaped_on_terminals_and_on_pages(tmp_path: Path, capsys) -> None:
    release = found_domain((HOSTILE_TEXT, "Oslo"))
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
