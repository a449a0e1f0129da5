"""Every block of code of the documents: run from the top of its page, or listed with a reason."""

from __future__ import annotations

import ast

import pytest
import yaml
from documents.belongings import BELONGINGS, FIGURES
from documents.blocks import PAGES, Block, blocks_of
from documents.not_run import reason
from documents.reader import Reader, check_flags

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


@pytest.mark.parametrize(
    "page", [page for page, blocks in BLOCKS.items() if any(map(is_run, blocks))]
)
def test_code_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
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
