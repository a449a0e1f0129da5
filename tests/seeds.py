"""A plugin: every random test inside the process of the tests has a seed, which the run prints.

At a landing it is a constant, so that unchanged code never fails by chance; ``--seed fresh`` takes
another one, as runs before a release do, and ``--seed N`` repeats such a run. These try five times
as many examples of each property. Nor does a test fail by the order of others: one that leaves
logging switched off fails itself.
"""

import hashlib
import logging
import secrets
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck

LANDING = 20261129
MORE_EXAMPLES = 5
_SETTINGS = "_hypothesis_internal_use_settings"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        default=str(LANDING),
        metavar="N|fresh",
        help="the seed of all random tests",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draws a fresh seed, which other processes of the run are told."""
    if hasattr(config, "workerinput"):
        config.option.seed = config.workerinput["seed"]
    elif config.option.seed == "fresh":
        config.option.seed = str(secrets.randbelow(2**32))
    is_landing = int(config.option.seed) == LANDING
    # No example is too slow: other work on the machine is no fault of the code.
    hypothesis.settings.register_profile(
        "beam_dp",
        deadline=None,
        derandomize=is_landing,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("beam_dp")
    if not is_landing:
        config.option.hypothesis_seed = config.option.seed


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tries more examples in runs before a release, for which ``max_examples`` was not lowered."""
    if int(config.option.seed) == LANDING:
        return
    tests = [getattr(item, "obj", None) for item in items]
    for test in {getattr(test, "__func__", test) for test in tests}:
        if (own := getattr(test, _SETTINGS, None)) is not None:
            more = hypothesis.settings(own, max_examples=MORE_EXAMPLES * own.max_examples)
            setattr(test, _SETTINGS, more)


def pytest_runtest_teardown() -> None:
    left = logging.root.manager.disable
    logging.disable(logging.NOTSET)
    assert left == logging.NOTSET, "logging is still switched off"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker process the seed."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed}"


@pytest.fixture
def fresh_seed(request: pytest.FixtureRequest) -> int:
    """A seed for this case: the same at each landing, another one in each run for a release."""
    text = f"{request.config.option.seed} {request.node.nodeid}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
