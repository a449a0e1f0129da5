import dataclasses
import json
from typing import Any

import pytest

from beam_dp.privacy.guarantee import MAX_DELTA, Guarantee, Neighboring

VALID: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-9,
    "neighboring": "add_or_remove_one",
    "privacy_unit": "person",
    "max_records_per_unit": 3,
}


def test_guarantee_has_no_defaults():
    for field in dataclasses.fields(Guarantee):
        without = {name: value for name, value in VALID.items() if name != field.name}
        with pytest.raises(TypeError, match=field.name):
            Guarantee(**without)


def test_accepts_smallest_and_largest_allowed_values():
    assert Guarantee(1e-300, 0, "replace_one", "record", 1).epsilon == 1e-300
    assert Guarantee(1e6, MAX_DELTA, "replace_one", "person", 2**40).delta == MAX_DELTA
    assert Guarantee(**{**VALID, "delta": 1e-300}).delta == 1e-300
    allowed = Guarantee(**{**VALID, "delta": 1e-3}, allow_large_delta=True)
    assert Guarantee.from_json(allowed.to_json()) == allowed


@pytest.mark.parametrize("neighboring", [*Neighboring, *(each.value for each in Neighboring)])
def test_json_round_trips(neighboring):
    guarantee = Guarantee(**{**VALID, "neighboring": neighboring})
    value = json.loads(json.dumps(guarantee.to_json()))
    assert Guarantee.from_json(value) == guarantee
    assert isinstance(Guarantee.from_json(value).neighboring, Neighboring)


def test_guarantee_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Guarantee(**VALID).epsilon = 2.0  # type: ignore[misc]
