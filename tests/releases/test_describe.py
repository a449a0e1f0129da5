import io

import numpy as np
import rich.console
from noise_sources import Seeded
from release_examples import release_of

from beam_dp.domain.files import domain_from_json
from beam_dp.mechanisms.sketches.mechanisms import SparseProject
from beam_dp.mechanisms.sketches.plan import SparseSummary, release_sparse
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.answers.describe import describe_answers
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.sketches.describe import describe_sparse_release
from beam_dp.releases.synthetic_database.describe import describe_synthetic_database as describe
from beam_dp.summaries.projection import Projection


def text_of(release, width=200, told=describe):
    console = rich.console.Console(file=io.StringIO(), width=width)
    console.print(told(release))
    return console.file.getvalue()


def test_shows_the_promise():
    text = text_of(release_of())
    for part in (
        "epsilon 1, delta 1e-09, add or remove one", "one person_id, of which at most 2 records",
        "50 (a noisy count)", "getting in/out of bed", "[17, 25)",
        "A count in a marginal has a standard error of 2.5 records.",
        "11", "discrete Gaussian", "calibration", "num_rounds", "residual", "numpy",
    ):  # fmt: skip
        assert part in text, part


def test_shows_the_error_of_a_noisy_number_of_records():
    error = {"standard_error": 4.25, "bound": 19.0, "failure_probability": 0.05}
    told = "50 (a noisy count, standard error 4.2)"
    assert told in text_of(release_of(errors={(): error}))


def test_cuts_long_workloads_and_domains():
    text = text_of(release_of(domain_from_json({f"a{i}": 60 for i in range(10)} | {"b": 2})))
    assert "and 35 more" in text and "59" in text
    assert len(text.splitlines()) < 80


def test_description_counts_marginals_without_a_stated_error():
    domain = domain_from_json({f"a{i}": 60 for i in range(10)})
    release = release_of(domain)
    text = text_of(release)
    assert "and 25 more, with no larger errors" in text and "no stated error" not in text
    stated = dict(list(release.errors.items())[:30])
    text = text_of(release_of(domain, errors=stated))
    assert "and 10 more, with no larger errors" in text
    assert "and 15 more, which were not measured as a whole and have no stated error" in text


def test_shows_impossible_combinations():
    domain = domain_from_json({"a": 9, "b": 2})
    assert "impossible" not in text_of(release_of(domain))
    domain = domain.with_impossible([{"a": [[3, 5]], "b": [1]}])
    assert "a 3 5, b 1" in text_of(release_of(domain)).replace("[", "").replace("]", "")


def test_escapes_markup_and_control_characters_in_names():
    text = text_of(release_of(domain_from_json({"[red]a": 2, "b\x1b[2Jc\n": 2})))
    assert "[red]a" in text and "\x1b" not in text


def test_missing_errors_are_described_as_not_stated():
    assert "not stated" in text_of(release_of(errors={}, noise=[], fit={}))


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


def test_description_uses_the_singular_for_one_marginal():
    text = text_of(release_of(domain_from_json({"a": 4, "b": 2})))
    assert "1 marginal, 8 cells" in text and "1 marginals" not in text


def test_description_of_answers_shows_the_promise_once():
    promise = Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", 2)
    card = {"mechanism": "laplace", "num_records": None, "settings": None}
    card |= {"guarantee": promise.to_json(), "plan": {"scale": 11.0, "guarantee": {"epsilon": 1}}}
    rows = [{"error": None, "route": "measured"}, {"error": "no", "route": None}]
    release = AnswersRelease(draw_id="a" * 32, guarantee=promise, rows=rows, stated=card)
    told = " ".join(text_of(release, 80, describe_answers).split())
    assert "promise epsilon 1, delta 1e-09, add or remove one protects one person_id" in told
    assert "scale 11" in told and "measured 1 refused 1" in told
    assert told.count("epsilon") == 1 and "not stated" not in told


def test_shows_the_proved_bounds_of_a_projection():
    promise = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    plan = SparseProject(64).plan(promise, max_sparsity=3)
    empty = SparseSummary(Projection(np.zeros(64, np.int64)))
    release = release_sparse(plan, empty, Seeded(1))
    text, bounds = text_of(release, told=describe_sparse_release), release.bounds()
    for part in (
        "one query, with probability 95 %",
        f"at most {bounds.noise:,.1f}",
        f"at most {bounds.distortion_of_norm:.3g} times the square root of the sum of the squared"
        " counts",
    ):
        assert part in text, part
    assert "num_queries" not in text
