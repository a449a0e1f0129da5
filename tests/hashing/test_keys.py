import pickle

import hash_oracle
import numpy as np
import pytest

from beam_dp.hashing.evaluation import GF64, PolynomialFamily
from beam_dp.hashing.keys import HashKey


def test_key_round_trips_through_bytes():
    key = HashKey.draw(48)
    data = key.to_bytes()
    again = HashKey.from_bytes(data)
    assert again == key
    assert hash(again) == hash(key)
    assert np.array_equal(again.words, key.words)
    assert again.fingerprint_key == key.fingerprint_key
    assert 9400 < len(data) < 9500


def test_every_draw_gives_a_new_key():
    first, second = HashKey.draw(48), HashKey.draw(48)
    assert first != second
    assert first.fingerprint_key != second.fingerprint_key
    # Each bit is set in some of 1,176 uniform words, and not in others.
    assert int(np.bitwise_or.reduce(first.words)) == 2**64 - 1
    assert int(np.bitwise_and.reduce(first.words)) == 0


def test_key_cannot_be_changed():
    words = np.arange(3, dtype=np.uint64)
    key = HashKey(2, words, bytes(16))
    words[0] = 9
    assert key.words.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        key.words[0] = 1


def test_pickled_key_cannot_be_changed_either():
    key = HashKey.draw(3)
    again = pickle.loads(pickle.dumps(key))
    assert again == key
    assert not again.words.flags.writeable


@pytest.mark.parametrize("independence", [1, 2, 3, 6])
def test_values_match_the_definition(independence):
    key = hash_oracle.fixed_key(independence)
    family = PolynomialFamily(GF64, independence, key.words, 5)
    points = [0, 1, 2, 2**63, 2**64 - 1, 123456789]
    expected = [[hash_oracle.value(key, b, x) for b in range(5)] for x in points]
    assert family.values(np.array(points, dtype=np.uint64)).tolist() == expected
