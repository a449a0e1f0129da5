"""Examples of small functions, one line each."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
import pandas
import pyarrow as pa
import pytest
import sqlalchemy as sa

from beam_dp import errors
from beam_dp.cli import plan_tables
from beam_dp.cli.ledger import _left_lines
from beam_dp.domain import attributes, files, ordered, texts
from beam_dp.domain.attributes import nearest_known
from beam_dp.encoding.canonical import canonical_bytes
from beam_dp.encoding.records import encode_column
from beam_dp.flags import command_line, flag
from beam_dp.mechanisms.marginals.measurements import closure_of
from beam_dp.mechanisms.sketches.mechanisms import textbook_noise
from beam_dp.mechanisms.small_db.size import small_db_error_fraction, small_db_size_for_intervals
from beam_dp.mechanisms.windows.choices import Question, block_sizes
from beam_dp.models import elimination
from beam_dp.models.basis import contrast_matrix
from beam_dp.models.maximum_entropy import _announced
from beam_dp.models.potentials import marginal_weights
from beam_dp.models.rounding import round_systematically
from beam_dp.models.weights import DenseWeights, SparseWeights
from beam_dp.privacy.guarantee import Guarantee, large_epsilon
from beam_dp.privacy.ledger.entries import holds_secrets, shown_url
from beam_dp.privacy.rounding import down_to_digits
from beam_dp.queries.disjunction import negation
from beam_dp.queries.linear import Product
from beam_dp.queries.lines import read_line
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sparse import SparseQuery
from beam_dp.queries.vc_dimension import is_shattered, sauer_bound
from beam_dp.queries.where import read_condition
from beam_dp.releases.files import avro
from beam_dp.releases.windows.answer import windows_of
from beam_dp.releases.windows.describe import runs, shown_runs
from beam_dp.reports import terminal
from beam_dp.schemas.arrow import arrow_columns, frame_columns
from beam_dp.schemas.json_forms import sizes_columns
from beam_dp.storage.store import store_for
from beam_dp.transforms.reading.read import plain_pattern
from beam_dp.transforms.reading.read_kafka import decode_json
from beam_dp.transforms.reading.released_rows import field_names
from beam_dp.verification.steps import more_than
from beam_dp.windows.horizon import span_text
from pipelines.flags import typed
from pipelines.program import difference
from pipelines.runners import runner_name
from pipelines.yaml_transforms import texts_of, without_dashes

URL = "postgresql://bob:a@localhost/db?password=b&port=1"
LARGE = "epsilon 20 protects little: one privacy unit may change the odds of a result e^20-fold"
OPEN_ATTRIBUTE = {"name": "age", "min": files.to_fill_in("the least")}
EDGES_FROM = {"ledger_release": "visits/3", "draw_id": "0f" * 16}
FRAME = pandas.DataFrame({"age": [3], "child": [True]})
SCHEMA = pa.schema([pa.field("age", pa.int8(), nullable=False)])
PROMISE = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
MISSING = ModuleNotFoundError("a message", name="boto3")
AGES = ordered.IntegerAttribute("age", 17, 90)
DOMAIN = files.read_domain('{"age": 4, "sex": 2}')
BOTH = Product((2, 2), (0, 1), (((1, 2),), ((1, 2),)))
DISCRETE = {"age": {"type": "discrete", "domain": 85}}
ODD_NAMES = ["age", "class", "in/out", "2nd", "in_out"]
ALL_PATTERNS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])


@pytest.mark.parametrize(
    ("text", "plain", "key"),
    [
        (b"7", b"7", 7),
        (b"7.0", b"7", 7),
        (b"-0.0", b"0", 0),
        (b"7.00", b"7.00", None),
        (b"007", b"007", None),
        (b"007.0", b"007.0", None),
        (b"7e3", b"7e3", None),
    ],
)
def test_reads_an_integer_only_in_its_plain_forms(text: bytes, plain: bytes, key: int | None):
    assert texts.plain_integer(text) == plain
    assert texts.integer_key(text) == key


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            lambda: [*map(str, files.open_points([OPEN_ATTRIBUTE]))],
            ["attribute 'age', min is open: 'the least'"],
        ),
        (lambda: attributes.read_paid_release(EDGES_FROM).dataset_id, "visits"),
        (lambda: [errors.shown(0.5), errors.shown([1, "a"])], ["0.5", "[1, 'a']"]),
        (lambda: len(errors.shown("a" * 10**6)), 400),
        (lambda: errors.shown(10**5000), "int"),
        (lambda: errors.magnitude(113_400), "113,400"),
        (lambda: errors.magnitude(2**200), "10^60.2"),
        (
            lambda: str(command_line.no_flag("b", ["--group_by", "a", "b"], columns=["group_by"])),
            "Unexpected argument 'b'. Separate columns by commas: --group_by a,b",
        ),
        (lambda: command_line._may_match(__file__), True),
        (lambda: command_line._may_match(__file__ + ".no*.such?"), False),
        (lambda: command_line._may_match("no/such/[a-z]"), True),
        (lambda: command_line.command_of("release_intervals"), "beam-dp release-intervals"),
        (
            lambda: [terminal.counted(number, "cell") for number in (1, 2000)],
            ["1 cell", "2,000 cells"],
        ),
        (lambda: terminal.counted(2, "query", "queries"), "2 queries"),
        (
            lambda: [*map(plan_tables.counted_queries, (0, 7396, 10**123))],
            ["none", "7,396", "about 10^123"],
        ),
        (
            lambda: _left_lines({"pure": 0.0, "gaussian": 0.4, "zcdp": 0.0}, 0.0),
            ["epsilon 0.4 for a release with Gaussian noise", "nothing for others"],
        ),
        (lambda: _left_lines({"pure": 0.0, "gaussian": 0.0, "zcdp": 0.0}, 1e-9), ["nothing"]),
        (
            lambda: [*map(terminal.short, (1094.06, -3.261, 2_345_678, -0.0, math.inf))],
            ["1,094", "-3.26", "2.35 M", "0", "none"],
        ),
        (lambda: terminal.noise_text("discrete_laplace"), "discrete Laplace"),
        (lambda: terminal.surely(0.05), "with probability 95 %"),
        (lambda: terminal.surely(1e-9), "except with probability 1e-09"),
        (
            lambda: str(flag.refused("epsilon", "x", "must be a number")),
            "--epsilon: 'x' is not valid: must be a number",
        ),
        (lambda: flag.number("epsilon", "1e-9"), 1e-9),
        (lambda: flag.integer("num_records", "1e6"), 1_000_000),
        (
            lambda: flag._without_secrets("postgresql://bob:a@b@localhost/db?password=c"),
            "postgresql://***@localhost/db?***",
        ),
        (lambda: flag.listed(["a"]), "a"),
        (lambda: flag.listed(["a", "b", "c"]), "a, b and c"),
        (lambda: flag.listed(["a", "b"], "or"), "a or b"),
        (lambda: flag.nearest("--epsilom", ["--delta", "--epsilon"]), "--epsilon"),
        (lambda: closure_of([(0, 2), (1,)]), [(), (0,), (1,), (2,), (0, 2)]),
        (lambda: round(textbook_noise(PROMISE)[0], 4), 12.8758),
        (lambda: Question.parse("trailing:24", 168), Question(length=24)),
        (lambda: block_sizes(168, 24)[:9], [2, 3, 4, 6, 7, 8, 12, 14, 21]),
        (lambda: block_sizes(5, 24), [5]),
        (lambda: elimination.axes_of(0b1101), (0, 2, 3)),
        (lambda: elimination.num_clique_cells((2, 3, 4), [(0, 1), (1, 2)]), 18),
        (lambda: [_announced(1e-4), _announced(0.056)], ["fit", "fit: about 17 to 56 s"]),
        (lambda: [large_epsilon(20), large_epsilon(10)], [LARGE, None]),
        (
            lambda: shown_url(sa.make_url(URL)),
            "postgresql://bob:***@localhost/db?password=***&port=1",
        ),
        (lambda: [holds_secrets(URL), holds_secrets("budgets.sqlite")], [True, False]),
        (lambda: [down_to_digits(0.33335, 4), down_to_digits(0.3, 4)], [0.3333, 0.3]),
        (lambda: down_to_digits(1.99999e-9, 4), 1.999e-09),
        (lambda: nearest_known("agee", ["sex", "age"]), "the nearest known is 'age'"),
        (lambda: nearest_known("zzz", ["sex", "age"]), "known are 'sex', 'age'"),
        (lambda: texts.time_of(b"1970-01-02"), (86_400_000_000_000, False)),
        (lambda: texts.time_of(b"1970-01-01T01:00:00.5+01:00"), (500_000_000, True)),
        (lambda: texts.time_of(b"1970-13-01"), None),
        (lambda: {canonical_bytes(value) for value in (7, 7.0, "7", "7.0")}, {b"7"}),
        (
            lambda: [canonical_bytes(value) for value in ("007", None, object())],
            [b"007", None, None],
        ),
        (lambda: encode_column(AGES, pa.array(["17", "90", "x", None])).tolist(), [0, 73, -1, -1]),
        (lambda: encode_column(AGES, pa.array(["17"])).dtype, np.int8),
        (lambda: errors.public_fault(MISSING), "the module 'boto3' is not installed"),
        (lambda: errors.public_fault(ValueError("a message")), None),
        (lambda: round(small_db_error_fraction(16, small_db_size_for_intervals), 6), 0.0625),
        (lambda: contrast_matrix(2).round(4).tolist(), [[0.7071, -0.7071]]),
        (lambda: round_systematically(np.array([0.5, 0.2, 0.3]), 4).tolist(), [2, 1, 1]),
        (lambda: negation(BOTH).values().tolist(), [1.0, 1.0, 1.0, 0.0]),
        (
            lambda: read_line(LinearQueries(DOMAIN), '{"conjunction": {"agee": 3}}').error,
            "query: 'agee' is not an attribute; the nearest known is 'age'",
        ),
        (
            lambda: read_condition(DOMAIN, "1 <= age < 3")[0].tolist(),
            [False, True, True, False],
        ),
        (lambda: [*read_condition(DOMAIN, "1 <= age < 3")], [0]),
        (lambda: [windows_of("-24:", 168), windows_of("7", 168)], [slice(144, 168), slice(7, 8)]),
        (lambda: sizes_columns(DISCRETE, "d.json")[0].high, 84),
        (lambda: type(store_for("gs://releases/visits", "output")).__name__, "BucketStore"),
        (
            lambda: field_names(ODD_NAMES),
            ["age", "class_", "in_out_2", "column_2nd", "in_out"],
        ),
        (lambda: runner_name("flink"), "FlinkRunner"),
        (lambda: runner_name("a.module.OwnRunner"), "OwnRunner"),
        (lambda: [sauer_bound(10, 2), sauer_bound(3, 5)], [56, 8]),
        (lambda: is_shattered(ALL_PATTERNS, [0, 1]), True),
        (lambda: is_shattered(ALL_PATTERNS[:3], [0, 1]), False),
        (lambda: avro.encode_longs(np.array([-1, 64])), b"\x01\x80\x01"),
        (lambda: avro.long_lengths(np.array([-1, 64])).tolist(), [1, 2]),
        (lambda: avro.decode_longs(io.BytesIO(b"\x01\x80\x01"), 2).tolist(), [-1, 64]),
        (lambda: runs([0, 1, 2, 7]), [range(3), range(7, 8)]),
        (lambda: shown_runs([0, 1, 2, 7]), "0 to 2, 7"),
        (lambda: arrow_columns(SCHEMA)[0].kind, "integer"),
        (lambda: [each.kind for each in frame_columns(FRAME)], ["integer", "boolean"]),
        (lambda: plain_pattern("file:///landing/*.csv"), "/landing/*.csv"),
        (lambda: plain_pattern("gs://bucket/*.csv"), "gs://bucket/*.csv"),
        (lambda: [decode_json(b'{"age": 7}'), decode_json(b"{age")], [{"age": 7}, None]),
        (lambda: more_than(13.819077, 1.0), "13.8191"),
        (lambda: more_than(1.00000000002, 1.0), "1.00000000002"),
        (lambda: [span_text(1800), span_text(86_400), span_text(0)], ["30m", "1d", "0s"]),
        (
            lambda: typed(["--input=a.csv", "--output", "out", "--validate_only"]),
            {"input": "a.csv", "output": "out"},
        ),
        (lambda: difference({"mechanism": "mwem"}, {"mechanism": "mwem"}), None),
        (
            lambda: difference({"guarantee": {"epsilon": 1}}, {"guarantee": {"epsilon": 0.5}}),
            "guarantee.epsilon is 1 there, and 0.5 in this job",
        ),
        (
            lambda: texts_of([flag.Flag("epsilon", "privacy parameter, > 0")], {"epsilon": 0.5}),
            {"epsilon": "0.5"},
        ),
        (
            lambda: without_dashes("--delta: missing; --runner", [flag.Flag("delta", "")]),
            "delta: missing; --runner",
        ),
    ],
)
def test_returns_the_result_of_the_example(call: Callable[[], object], expected: object):
    assert call() == expected


def test_marginals_follow_from_potentials():
    potentials = [((0,), np.log([1.0, 3.0]))]
    first, both = marginal_weights((2, 2), potentials, [(0,), (0, 1)])
    np.testing.assert_allclose(first, [0.25, 0.75])
    np.testing.assert_allclose(both, [[0.125, 0.125], [0.375, 0.375]])


def test_an_update_lowers_the_weights_that_a_query_covers():
    dense, sparse = DenseWeights(np.zeros(4)), SparseWeights(4)
    dense.update(Product((4,), (0,), (((0, 2),),)), -0.25)
    query = SparseQuery({"a": 1, "b": 1})
    sparse.update(query, -0.25)
    np.testing.assert_allclose(dense.weights, [0.218912, 0.218912, 0.281088, 0.281088], atol=1e-6)
    np.testing.assert_allclose(sparse.mean(query), 0.437823, atol=1e-6)
    np.testing.assert_allclose(sparse.common_weight, 0.281088, atol=1e-6)


def test_flags_that_belong_together_are_refused_alone():
    given, together = {"bins": "9"}, ("edges_from", "bins")
    with pytest.raises(flag.FlagError, match=r"^--edges_from is required with --bins$"):
        flag.check_together(given, together, ("bins", "edges_from"))
