"""What is shipped, as text and as trees, and what each file of it imports."""

import ast
import functools
import json
import pathlib
import subprocess
import sys
from collections.abc import Collection, Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent


def package_sources() -> dict[str, str]:
    """Every Python file that is shipped, by its path from the root."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("beam_dp", "pipelines")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_under(name: str, parent: str) -> bool:
    return name == parent or name.startswith(parent + ".")


@functools.cache
def imports(path: str, source: str) -> list[tuple[str, str]]:
    """Absolute names of everything imported, and when: at "import", in a "call", for "types"."""
    package = module_name(path).split(".")
    if not path.endswith("__init__.py"):
        package = package[:-1]
    found: list[tuple[str, str]] = []

    def visit(node: ast.AST, when: str) -> None:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for child in node.body:
                visit(child, "types")
            for child in node.orelse:
                visit(child, when)
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and when == "import":
            when = "call"
        if isinstance(node, ast.Import):
            found.extend((alias.name, when) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            found.extend((f"{stem}.{alias.name}", when) for alias in node.names)
        if not isinstance(node, ast.expr):  # no expression imports
            for child in ast.iter_child_nodes(node):
                visit(child, when)

    visit(ast.parse(source, path), "import")
    return found


def file_imports(files: dict[str, str]) -> dict[str, set[str]]:
    """Returns, for each file, the other files that it imports, whenever it does."""
    paths = {module_name(path): path for path in files}
    graph: dict[str, set[str]] = {path: set() for path in files}
    for path, source in files.items():
        for name, _ in imports(path, source):
            # `from a.b import c` names the module a.b.c, or the name c of the module a.b.
            target = paths.get(name) or paths.get(name.rpartition(".")[0])
            if target not in (None, path):
                graph[path].add(target)
    return graph


def importing(files: dict[str, str], *modules: str) -> list[str]:
    """Returns the imports of some modules, or of what is in them."""
    return [
        f"{path} imports {name}"
        for path, source in files.items()
        for name, _ in imports(path, source)
        if any(is_under(name, module) for module in modules)
    ]


def cycles(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Returns the circles of a graph, each as its nodes in order."""
    done: set[str] = set()
    found: list[str] = []

    def visit(node: str, trail: tuple[str, ...]) -> None:
        if node in trail:
            found.append(" -> ".join([*trail[trail.index(node) :], node]))
        elif node not in done:
            for other in sorted(graph.get(node, ())):
                visit(other, (*trail, node))
            done.add(node)

    for node in sorted(graph):
        visit(node, ())
    return found


def banned_lines(path: str, source: str) -> set[int]:
    """Returns the lines of a source that ruff refuses, because they use what is banned there."""
    command = ["check", "--no-cache", "--select", "TID251", "--output-format", "json"]
    run = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--stdin-filename", path, "-"],
        input=source, capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    return {each["location"]["row"] for each in json.loads(run.stdout)}
