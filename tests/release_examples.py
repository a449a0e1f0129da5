"""Small releases for tests, built from plain numbers."""

import numpy as np

import beam_dp as dp
from beam_dp.releases.synthetic_database.files import shard_bytes
from beam_dp.releases.synthetic_database.records import distinct_records

DOMAIN = dp.Domain(
    (
        dp.CategoricalAttribute(
            "getting in/out of bed", ("yes", "né", 7), other=True, nullable=True
        ),
        dp.IntegerAttribute("hours", -3, 300, other=True),
        dp.NumericAttribute("age", (17, 25, 35.5), nullable=True),
        dp.BooleanAttribute("member"),
    )
)
GUARANTEE = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", 2)
DRAW = "0123456789abcdef" * 2


def release_of(domain=DOMAIN, *, num_records=50, seed=0, draw_id=DRAW, **fields):
    """A release of random records, with a random hypothesis over all pairs."""
    rng = np.random.default_rng(seed)
    codes, counts = distinct_records(
        domain, [rng.integers(0, size, num_records) for size in domain.shape]
    )
    ways = min(2, domain.num_attributes)
    workload = dp.marginals(domain, ways=ways)
    if "potentials" not in fields:
        tables = [rng.normal(size=domain.restrict(names).shape) for names in workload]
        fields["potentials"] = list(zip(workload, tables, strict=True))
    error = {"standard_error": 2.5, "bound": 11.0, "failure_probability": 0.05}
    given = {
        "domain": domain,
        "workload": workload,
        "guarantee": GUARANTEE,
        "mechanism": "gaussian",
        "num_records": num_records,
        "num_records_is_public": False,
        "codes": codes,
        "counts": counts,
        "draw_id": draw_id,
        "noise": [{"tables": "all", "distribution": "discrete_gaussian", "scale": 2.5}],
        "errors": dict.fromkeys(workload, error),
        "plan": {"calibration": "tight", "num_rounds": np.int64(3)},
        "fit": {"residual": 0.1},
    }
    return dp.SyntheticDatabase(**{**given, **fields})


def same_release(one, other):
    """Whether all compared fields of two releases are equal."""
    plain = ("domain", "workload", "guarantee", "mechanism", "num_records", "draw_id", "noise",
             "num_records_is_public", "errors", "plan", "fit", "versions")  # fmt: skip
    return (
        all(getattr(one, name) == getattr(other, name) for name in plain)
        and all(map(np.array_equal, one.codes, other.codes))
        and np.array_equal(one.counts, other.counts)
        and [names for names, _ in one.potentials] == [names for names, _ in other.potentials]
        and all(
            np.array_equal(a, b)
            for (_, a), (_, b) in zip(one.potentials, other.potentials, strict=True)
        )
    )


def records_bytes(release: dp.SyntheticDatabase) -> bytes:
    """Returns the only file of records of a small release."""
    (shard,) = release.shards()
    return shard_bytes(shard)
