from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from release_examples import DOMAIN, release_of, same_release

from beam_dp.domain.files import domain_from_json
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.kinds import read_release, write_release
from beam_dp.releases.synthetic_database import shards as shards_module
from beam_dp.releases.synthetic_database.records import distinct_records


def test_answers_come_from_the_hypothesis_with_the_stated_errors():
    domain = domain_from_json({"a": 2, "b": 3, "c": 2})
    table = np.log([[1.0, 2, 3], [4, 5, 5]])
    release = release_of(domain, num_records=40, potentials=[(("a", "b"), table)])
    (answer,) = release.answer(marginals(domain, attributes=["b", "a"]))
    assert answer.attributes == ("a", "b")
    np.testing.assert_allclose(answer.values, 2 * np.exp(table))
    assert (answer.standard_error, answer.bound, answer.failure_probability) == (2.5, 11.0, 0.05)
    single, everything = release.answer(Workload(domain, (("c",), ("a", "b", "c"))))
    np.testing.assert_allclose(single.values, [20, 20])
    assert single.standard_error is None and single.bound is None
    np.testing.assert_allclose(everything.values, np.exp(table)[:, :, None] * [1, 1])
    assert everything.values.sum() == pytest.approx(40)


def test_batches_of_any_size_give_the_same_records(monkeypatch):
    monkeypatch.setattr(shards_module, "_BLOCK_ROWS", 30)
    release = release_of(num_records=200)
    places = np.concatenate([block.records for block in release.rows()])
    assert np.bincount(places).tolist() == release.counts.tolist()
    codes = [column[places] for column in release.codes]
    for batch_size in (1, 7, 1000):
        batches = list(release.records(batch_size))
        sizes = [len(values) for batch in batches for values in batch.values()]
        assert sizes[: 4 * (200 // batch_size)] == [batch_size] * 4 * (200 // batch_size)
        assert sum(sizes) == 4 * 200
        for attribute, column in zip(DOMAIN, codes, strict=True):
            values = [value for batch in batches for value in batch[attribute.name]]
            assert values == attribute.decode(column)
    table = release.record_marginal(("member", "hours"))
    assert table.shape == (2, 305) and table.sum() == 200
    assert table[1, 4] == np.sum((codes[3] == 1) & (codes[1] == 4))
    assert release.record_marginal(()).tolist() == 200


WIDE = Domain(tuple(IntegerAttribute(f"a{i}", 0, (i * 7) % 17 + 1) for i in range(35)))
WIDEST = Domain(tuple(IntegerAttribute(f"a{i}", 0, 2**62 - 1) for i in range(300)))


@pytest.mark.parametrize("domain", [WIDE, WIDEST], ids=["10^29 cells", "5,600 digits"])
def test_release_of_a_huge_domain_round_trips(domain, tmp_path):
    assert not domain.has_index
    first, second = domain.names[:2]
    tables = [((first,), np.zeros(2))] if domain is WIDE else []
    workload = Workload(WIDE, ((first,), (first, second)))
    release = release_of(domain, potentials=tables, workload=workload) if tables else release_of(
        domain, potentials=[], workload=Workload(domain, ((first,),)), errors={}
    )  # fmt: skip
    write_release(release, tmp_path / "out")
    assert same_release(read_release(tmp_path / "out"), release)
    assert len(next(release.records())[domain.names[-1]]) == 50
    with pytest.raises(InputError, match=r"must have at most 2\^28"):
        release.record_marginal(domain.names[:20])
    if tables:
        expected = np.zeros((2, 9), int)
        for a, b, count in zip(*release.codes[:2], release.counts, strict=True):
            expected[a, b] += count
        assert np.array_equal(release.record_marginal((first, second)), expected)
        with pytest.raises(InputError, match=r"must have at most 2\^28 cells"):
            release.answer(Workload(domain, (domain.names[:20],)))


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(0, 40),
    st.integers(0, 99),
    st.booleans(),
)
@settings(max_examples=100)
def test_distinct_records_match_the_sorted_rows(sizes, num_records, seed, wide):
    """Each size of 2^40 needs a whole word."""
    sizes = [size * 2**40 for size in sizes] if wide else sizes
    domain = Domain(tuple(IntegerAttribute(f"a{i}", 0, n - 1) for i, n in enumerate(sizes)))
    rng = np.random.default_rng(seed)
    columns = [rng.choice([0, n // 2, n - 1], num_records) for n in sizes]
    codes, counts = distinct_records(domain, columns)
    rows = Counter(zip(*(column.tolist() for column in columns), strict=True))
    assert list(zip(*(column.tolist() for column in codes), strict=True)) == sorted(rows)
    assert counts.tolist() == [rows[row] for row in sorted(rows)]
    if num_records:
        release_of(domain, codes=codes, counts=counts, num_records=num_records, potentials=[])


def test_impossible_cells_have_no_weight():
    domain = domain_from_json({"a": 2, "b": 3, "c": 2})
    domain = domain.with_impossible([{"a": [1], "b": [[1, 2]]}, {"b": [0], "c": [1]}])
    release = release_of(domain, num_records=60, potentials=[(("a",), np.log([1.0, 2.0]))])
    (table,) = release.answer(Workload(domain, (("a", "b", "c"),)))
    weights = np.array([[[1.0, 0], [1, 1], [1, 1]], [[2, 0], [0, 0], [0, 0]]])
    np.testing.assert_allclose(table.values, 60 * weights / weights.sum())
