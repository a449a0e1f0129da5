import math
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.dates import DatetimeAttribute
from beam_dp.domain.files import read_domain
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain

ENTRIES = [
    {"name": "degree", "type": "categorical", "values": ["BA", "MA", 7], "other": True}
    | {"nullable": True},
    {"name": "hours", "type": "integer", "min": -3, "max": 3, "other": True},
    {"name": "age", "type": "numeric", "edges": [17, 25, 35], "nullable": True},
    {"name": "member", "type": "boolean", "nullable": True},
]


@pytest.fixture
def domain():
    return read_domain({"attributes": ENTRIES})


def test_codes_are_levels_then_other_then_null(domain):
    degree = domain["degree"]
    assert degree.labels() == ("BA", "MA", "7", "other", "null")
    assert (degree.size, degree.other_code, degree.null_code) == (5, 3, 4)
    assert degree.decode(range(5)) == ["BA", "MA", 7, "other", None]
    assert domain["age"].labels() == ("[17, 25)", "[25, 35]", "null")
    assert domain["age"].null_code == 2 and domain["age"].other_code is None
    assert domain["member"].decode([2, 1, 0]) == [None, True, False]
    assert domain["hours"].decode([0, 6, 7]) == [-3, 3, "other"]


@pytest.mark.parametrize("code", [-1, 5])
def test_rejects_codes_outside_the_attribute(domain, code):
    with pytest.raises(IndexError):
        domain["degree"].decode([code])
    with pytest.raises(IndexError):
        domain["degree"].label(code)


def test_avro_types_are_unions_only_if_needed(domain):
    assert domain["degree"].avro_type() == ["null", "long", "string"]
    assert domain["hours"].avro_type() == ["long", "string"]
    assert domain["age"].avro_type() == ["null", {"type": "double", "edges": [17.0, 25.0, 35.0]}]
    assert CategoricalAttribute("a", ("x",), other=True).avro_type() == "string"
    assert IntegerAttribute("a", 0, 1).avro_type() == "long"


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.data())
def test_cell_index_equals_ravel_multi_index_and_has_an_inverse(shape, data):
    domain = Domain(tuple(IntegerAttribute(f"a{i}", 0, s - 1) for i, s in enumerate(shape)))
    cells = np.array(data.draw(st.lists(st.integers(0, domain.num_cells - 1), max_size=20)), int)
    expected = np.unravel_index(cells, shape)
    actual = domain.codes(cells)
    assert all(np.array_equal(a, b) for a, b in zip(expected, actual, strict=True))
    assert np.array_equal(domain.cell_index(actual), cells)
    assert domain.strides == tuple(s // 8 for s in np.empty(shape).strides)


def test_domain_has_an_index_up_to_2_to_the_62_cells():
    at_limit = Domain((IntegerAttribute("a", 0, 2**61 - 1), BooleanAttribute("b")))
    assert at_limit.has_index
    last = at_limit.cell_index([[2**61 - 1], [1]])
    assert last.tolist() == [2**62 - 1]
    assert [code.tolist() for code in at_limit.codes(last)] == [[2**61 - 1], [1]]
    beyond = Domain((*at_limit.attributes, BooleanAttribute("c")))
    assert beyond.num_cells == 2**63 and not beyond.has_index


def test_invalid_codes_raise_instead_of_returning_another_cell():
    domain = Domain((IntegerAttribute("a", 0, 2), IntegerAttribute("b", 0, 2)))
    with pytest.raises(IndexError):
        domain.cell_index([[0], [3]])
    with pytest.raises(IndexError):
        domain.cell_index([[-1], [0]])
    with pytest.raises(IndexError):
        domain.codes([9])
    with pytest.raises(ValueError, match="1 columns for 2 attributes"):
        domain.cell_index([[0]])


def test_restrict_keeps_the_order_given(domain):
    part = domain.restrict(("member", "degree"))
    assert part.names == ("member", "degree") and part.shape == (3, 5)
    assert domain.axes(("member", "degree")) == (3, 0)
    assert domain.restrict(()).num_cells == 1
    assert "age" in domain and "agee" not in domain


def test_equal_domains_compare_and_hash_equal(domain):
    copy = pickle.loads(pickle.dumps(domain))
    assert copy == domain and hash(copy) == hash(domain)
    with pytest.raises(AttributeError):
        domain.attributes = ()


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=9, unique=True
    ).map(sorted)
)
def test_midpoint_of_a_bin_lies_in_the_bin(edges):
    attribute = NumericAttribute("x", tuple(edges))
    for low, high, middle in zip(edges[:-1], edges[1:], attribute.midpoints, strict=True):
        assert low <= middle < high


def test_midpoint_between_neighbouring_floats_lies_in_the_bin():
    low = math.nextafter(1.0, 0)
    assert NumericAttribute("x", (low, 1.0)).midpoints == (low,)


@pytest.mark.parametrize(
    ("edges", "label"),
    [
        (("2020-01-01T00:00", "2020-04-01"), "[2020-01-01, 2020-04-01]"),
        (("2020-01-01", "2020-01-01T12:00"), "[2020-01-01T00:00:00, 2020-01-01T12:00:00]"),
        (
            ("2020-01-01T00:00Z", "2020-04-01T00:00Z"),
            "[2020-01-01T00:00:00+00:00, 2020-04-01T00:00:00+00:00]",
        ),
    ],
)
def test_bins_that_begin_at_midnight_are_labelled_by_day(edges, label):
    attribute = DatetimeAttribute("at", edges)
    assert attribute.labels() == (label,)
    assert "T00:00:00" in attribute.to_json()["edges"][0]
