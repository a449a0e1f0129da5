"""Every block of code of the documents: run from the top of its page, or listed with a reason."""

import ast

import numpy as np
import pytest
import yaml
from documents.belongings import BELONGINGS, FIGURES
from documents.blocks import PAGES, Block, blocks_of
from documents.not_run import reason
from documents.outputs import missing
from documents.reader import Reader, check_flags
from noise_sources import Seeded

from beam_dp.privacy.noise.source import NoiseSource

BLOCKS = {page: blocks_of(page) for page in PAGES}


def is_run(block: Block) -> bool:
    return reason(block.page, block.text) == ""


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page]])
def test_every_block_can_be_read(page):
    """Python, JSON and YAML are such; command lines have flags and values that exist."""
    for block in BLOCKS[page]:
        if block.kind == "shell":
            for command, _ in block.commands():
                check_flags(command)
        elif block.kind == "python":
            ast.parse(block.text)
        elif block.kind == "yaml":
            yaml.safe_load(block.text)


def seed_draws(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Gives a seed to nearly all that a page draws in this process: its noise, and its tables."""
    drawn, generator = Seeded(seed), np.random.default_rng
    for name in ("laplace", "gaussian", "select", "bits"):
        draw = getattr(drawn, name)
        patch.setattr(
            NoiseSource, name, lambda self, *given, draw=draw, **named: draw(*given, **named)
        )
    own = np.random.default_rng(seed)
    patch.setattr(
        np.random, "default_rng", lambda seed=None: own if seed is None else generator(seed)
    )


# The pages that take more than two seconds of processor time.
DEAR = {
    f"docs/{name}.md"
    for name in ("epsilon", "mechanisms", "planning", "queries", "releases", "sparse_queries")
} | {"docs/streams.md", "docs/yaml.md"}


@pytest.mark.job
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.part] if page in DEAR else [])
        for page, blocks in BLOCKS.items()
        if any(map(is_run, blocks))
    ],
)
def test_code_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch, capfd, fresh_seed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    seed_draws(monkeypatch, fresh_seed)
    reader = Reader(lambda: "".join(capfd.readouterr()))
    belongings = BELONGINGS.get(page, {})
    for make in belongings.get("", ()):
        make(reader.names)
    for block in BLOCKS[page]:
        for start, makes in belongings.items():
            if start and block.text.startswith(start):
                for make in makes:
                    make(reader.names)
        if is_run(block):
            reader.follow(block)
    if page in FIGURES:
        FIGURES[page](reader.names)


TABLE = """\
sex       count  ± (95 %)  ± (proved)  error
Female  3,392.0     10.47       24.87  from the noise alone
"""
RECORDS = "protects  persons\nrecords   11,992 (a noisy count, standard error 9.4)\n"
DIFFERENCES = """\
cell         A     B  difference  standard error      z
a 0, c 1  30.1  41.9       +11.8             6.9  +1.72
0 of 26 cells differ by more than 3 standard errors (z).
"""


def test_output_may_differ_from_a_page_in_noisy_numbers_only():
    for printed, old, new, is_alike in (
        (TABLE, "3,392.0", "3,401.5", True),
        (TABLE, "3,392.0", "3,592.0", False),
        (TABLE, "10.47", "10.48", False),
        (TABLE, "Female", "Woman", False),
        (RECORDS, "11,992", "12,050", True),
        (RECORDS, "11,992", "12,992", False),
        (RECORDS, "error 9.4", "error 9.5", False),
        (DIFFERENCES, "a 0, c 1  30.1", "b 2, c 3  -0.5", True),
        (DIFFERENCES, "0 of 26", "0 of 27", False),
    ):
        assert (missing(printed, printed.replace(old, new)) == "") == is_alike, (old, new)
    assert missing("a\n...\nd\n", "a\nb\nc\nd\n") == ""
    assert missing("d\n...\na\n", "a\nb\nc\nd\n") == "a\n"
