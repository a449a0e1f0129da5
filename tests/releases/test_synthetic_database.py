import pickle

import numpy as np
import pytest
from release_examples import DOMAIN, GUARANTEE, release_of, same_release

from beam_dp.domain import Domain, IntegerAttribute
from beam_dp.domain_json import domain_from_json
from beam_dp.errors import InputError
from beam_dp.queries import Workload, marginals
from beam_dp.releases import SyntheticDatabase
from beam_dp.releases.synthetic_database import library_versions


def test_answers_come_from_the_hypothesis_with_the_errors_of_the_card():
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


def test_a_workload_of_another_domain_is_refused():
    with pytest.raises(InputError, match="must be of the release's domain"):
        release_of().answer(marginals(domain_from_json({"hours": 3}), ways=1))


def test_records_are_the_cells_repeated_in_order():
    release = release_of(num_records=200)
    expected = np.repeat(release.cells, release.counts)
    codes = DOMAIN.codes(expected)
    for batch_size in (1, 7, 1000):
        batches = list(release.records(batch_size))
        assert all(len(values) <= batch_size for batch in batches for values in batch.values())
        for attribute, column in zip(DOMAIN, codes, strict=True):
            values = [value for batch in batches for value in batch[attribute.name]]
            assert values == attribute.decode(column)
    table = release.record_marginal(("member", "hours"))
    assert table.shape == (2, 305) and table.sum() == 200
    assert table[1, 4] == np.sum((codes[3] == 1) & (codes[1] == 4))
    assert release.record_marginal(()).tolist() == 200


def test_bytes_hold_everything():
    release = release_of()
    assert same_release(SyntheticDatabase.from_bytes(release.to_bytes()), release)
    assert same_release(pickle.loads(pickle.dumps(release)), release)
    empty = release_of(num_records=0, potentials=[])
    assert same_release(SyntheticDatabase.from_bytes(empty.to_bytes()), empty)
    assert not release.to_bytes().count(b"numpy.core")


def test_versions_name_what_computed():
    assert {"python", "numpy", "opendp", "beam_dp"} <= set(library_versions())


def test_the_text_of_a_release_is_short():
    assert "0123456789abcdef" in repr(release_of()) and len(repr(release_of())) < 300


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({"draw_id": "../../x"}, "must be 32 hexadecimal digits"),
        ({"draw_id": "A" * 32}, "must be 32 hexadecimal digits"),
        ({"draw_id": "a" * 32 + "\n"}, "must be 32 hexadecimal digits"),
        ({"cells": [1], "counts": [49]}, "sum to num_records, 50"),
        ({"cells": [3, 1], "counts": [25, 25]}, "distinct and ascending"),
        ({"cells": [1, 1], "counts": [25, 25]}, "distinct and ascending"),
        ({"cells": [1, 2], "counts": [50, 0]}, ">= 1 each"),
        ({"cells": [1], "counts": [25, 25]}, "must be as many as 1 cells"),
        ({"cells": [-1], "counts": [50]}, "must be in the domain"),
        ({"cells": [10**6], "counts": [50]}, "must be in the domain"),
        ({"cells": [[1]], "counts": [50]}, "must be a vector of integers"),
        ({"cells": [0.5], "counts": [50]}, "must be a vector of integers"),
        ({"potentials": [(("hours",), np.zeros(3))]}, "must have the shape (305,)"),
        ({"potentials": [(("member",), [0, np.nan])]}, "must be finite"),
        ({"potentials": [(("member",), [0, np.inf])]}, "must be finite"),
        ({"potentials": [(("member", "age"), np.zeros((2, 3)))]}, "in domain order"),
        ({"potentials": [(("members",), np.zeros(2))]}, "the nearest known is 'member'"),
        ({"errors": {("member",): {"mean": 1}}}, "must be among standard_error"),
        ({"errors": {("member",): {"bound": np.inf}}}, "finite numbers only"),
        ({"parameters": {"x": object()}}, "JSON values only"),
        ({"fit": {"x": [np.nan]}}, "finite numbers only"),
        ({"workload": marginals(domain_from_json({"a": 2}), ways=1)}, "the release's domain"),
    ],
)
def test_fields_that_make_no_release_are_refused(fields, condition):
    with pytest.raises(InputError) as caught:
        release_of(**fields)
    assert condition in str(caught.value) and "\n" not in str(caught.value)


def test_a_domain_without_cells_of_its_own_is_refused():
    for domain in (Domain(()), Domain(tuple(IntegerAttribute(f"a{i}", 0, 1) for i in range(63)))):
        with pytest.raises(InputError, match="domain"):
            SyntheticDatabase(
                domain=domain, workload=marginals(DOMAIN, ways=1), guarantee=GUARANTEE,
                mechanism="gaussian", num_records=0, num_records_is_public=True,
                cells=np.zeros(0, int), counts=np.zeros(0, int), potentials=[], draw_id="0" * 32,
            )  # fmt: skip
