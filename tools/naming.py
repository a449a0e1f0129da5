"""Counts names and calls that hide what a program does; see CONTRIBUTING.md.

    python tools/naming.py [--list] [FOLDER ...]

Stored names that say what happened to a value instead of what it is, alone or inside a longer name;
positional arguments packed into a tuple earlier in the same function; literal tuples unpacked in
place; and attributes looked up by a composed name. ``--list`` prints each place.
"""

from __future__ import annotations

import argparse
import ast
import pathlib
from collections import Counter
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = frozenset(["found", "held", "known", "stated", "told", "each", "own", "most"])
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def stored_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that is bound: assigned, looped over, or an argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def packed_calls(tree: ast.AST) -> Iterator[int]:
    """Lines of calls that unpack, by position, a tuple made earlier in the same function."""
    lines = set()
    for scope in (node for node in ast.walk(tree) if isinstance(node, (*_SCOPES, ast.Module))):
        nodes = list(_of_scope(scope))
        packed = {name for node in nodes for name in _tuples(node)}
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            unpacked = (a.value for a in call.args if isinstance(a, ast.Starred))
            if any(isinstance(value, ast.Name) and value.id in packed for value in unpacked):
                lines.add(call.lineno)
    yield from sorted(lines)


def _of_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """Every node of a function or module, without those of functions inside it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, _SCOPES):
            yield from _of_scope(node)


def _tuples(statement: ast.AST) -> Iterator[str]:
    """The names to which a statement assigns a literal tuple."""
    if not isinstance(statement, ast.Assign):
        return
    for target in statement.targets:
        pairs = [(target, statement.value)]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            pairs = list(zip(target.elts, statement.value.elts, strict=False))
        for name, value in pairs:
            if isinstance(name, ast.Name) and isinstance(value, ast.Tuple):
                yield name.id


def unpacked_literals(tree: ast.AST) -> Iterator[int]:
    """Lines of literal tuples and lists that are unpacked where they stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple | ast.List):
            yield node.lineno


def composed_names(tree: ast.AST) -> Iterator[int]:
    """Lines that look up an attribute by a name put together from parts."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or len(node.args) < 2:
            continue
        is_lookup = isinstance(node.func, ast.Name) and node.func.id == "getattr"
        if is_lookup and isinstance(node.args[1], ast.JoinedStr | ast.BinOp | ast.Call):
            yield node.lineno


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", default=["beam_dp", "pipelines"])
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    names: list[str] = []
    places: dict[str, list[str]] = {}
    for path in sorted(p for folder in options.folders for p in (ROOT / folder).rglob("*.py")):
        tree, file = ast.parse(path.read_text("utf-8")), path.relative_to(ROOT)
        stored = list(stored_names(tree))
        names += [name for _, name in stored]
        kinds = {
            "packed positional calls": packed_calls(tree),
            "unpacked literals": unpacked_literals(tree),
            "composed names": composed_names(tree),
        }
        for kind, lines in kinds.items():
            places.setdefault(kind, []).extend(f"{file}:{line}" for line in lines)
        places.setdefault("names", []).extend(
            f"{file}:{line} {name}" for line, name in stored if WORDS & {*name.split("_")}
        )
    whole = Counter(name for name in names if name in WORDS)
    parts = Counter(word for name in names for word in {*name.split("_")} & WORDS)
    for text, counts in (("alone", whole), ("also inside longer names", parts)):
        share = 100 * counts.total() / len(names)
        words = ", ".join(f"{word} {count}" for word, count in sorted(counts.items()))
        print(f"stored names: {len(names):,}, of which {share:.1f} % ({text}): {words}")
    for kind, lines in places.items():
        if kind != "names":
            print(f"{kind}: {len(lines)}")
        if options.list:
            print(*(f"  {line}" for line in lines), sep="\n")


if __name__ == "__main__":
    main()
