"""Examples of small functions, one line each."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pandas
import pyarrow as pa
import pytest
import sqlalchemy as sa

from beam_dp import checks, errors
from beam_dp.domain import files, ordered, texts
from beam_dp.flags import command_line, flag
from beam_dp.mechanisms.marginals.measurements import closure_of
from beam_dp.mechanisms.sketches.mechanisms import textbook_noise
from beam_dp.mechanisms.windows.choices import Question, block_sizes
from beam_dp.models import elimination
from beam_dp.models.maximum_entropy import _announced
from beam_dp.privacy.guarantee import Guarantee, large_epsilon
from beam_dp.privacy.ledger.entries import holds_secrets, shown_url
from beam_dp.privacy.rounding import down_to_digits
from beam_dp.queries.vc_dimension import is_shattered
from beam_dp.releases.files import avro
from beam_dp.releases.windows.describe import runs, shown_runs
from beam_dp.schemas.arrow import arrow_columns, frame_columns
from beam_dp.transforms.reading.read import plain_pattern
from beam_dp.transforms.reading.read_kafka import decode_json
from beam_dp.verification.steps import more_than
from beam_dp.windows.horizon import span_text
from pipelines.flags import typed
from pipelines.program import difference
from pipelines.yaml_transforms import texts_of, without_dashes

URL = "postgresql://bob:a@localhost/db?password=b&port=1"
LARGE = "epsilon 20 protects little: one privacy unit may change the odds of a result e^20-fold"
OPEN_ATTRIBUTE = {"name": "age", "min": files.to_fill_in("the least")}
EDGES_FROM = {"ledger_release": "visits/3", "draw_id": "0f" * 16}
FRAME = pandas.DataFrame({"age": [3], "child": [True]})
SCHEMA = pa.schema([pa.field("age", pa.int8(), nullable=False)])
PROMISE = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
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
        (lambda: ordered.read_edges_from(EDGES_FROM).dataset_id, "visits"),
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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: checks.check_choice("noise", "uniform", ("laplace", "gaussian")),
            "noise: 'uniform' is not valid: must be 'laplace' or 'gaussian'",
        ),
        (
            lambda: flag.check_together(
                {"bins": "9"}, ("edges_from", "bins"), ("bins", "edges_from")
            ),
            "--edges_from is required with --bins",
        ),
    ],
)
def test_refuses_the_argument_of_the_example(call: Callable[[], object], message: str):
    with pytest.raises((errors.InputError, flag.FlagError)) as refusal:
        call()
    assert str(refusal.value) == message
