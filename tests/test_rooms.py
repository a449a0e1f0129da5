"""Which part of the house may import which: downward only, and in no circle.

A room is a folder, or a file at the top; a folder's ``__init__`` is its door, which may import all
that it shows. The rule is a function of source texts, so that it can be shown what breaks it.
"""

from __future__ import annotations

import ast

import pytest
from source_imports import imports, module_name

# From the ground up. A room imports those on the floors below its own. The families of mechanisms
# share a floor, and may import each other there.
FLOORS = (
    ("errors", "installed"),
    ("checks",),
    ("domain", "noise", "storage"),
    ("hashing",),
    ("privacy",),
    ("queries", "windows"),
    ("flags",),
    ("interval_strategies", "models"),
    ("encoding",),
    ("privacy.ledger",),
    ("releases.release", "releases.error_bars", "releases.plain", "releases.left_out"),
    ("releases.files",),
    ("releases.kinds",),
    ("verification",),
    ("reports.terminal", "reports.markup"),
    ("releases.*",),
    ("releases.verify", "releases.leftovers", "releases.differences"),
    ("schemas",),
    ("reports.*",),
    ("summaries",),
    ("mechanisms.*",),
    ("mechanisms",),
    ("theorems",),
    ("planning",),
    ("testing",),
    ("in_memory",),
    ("transforms.errors", "transforms.elements"),
    ("transforms.reading",),
    ("transforms.counting",),
    ("transforms.drawing", "transforms.writing"),
    ("transforms",),
    ("cli",),
    ("beam_dp",),
    ("yaml",),
    ("pipelines",),
)
SHARED_FLOORS = ("mechanisms", "releases", "reports")
# Folders whose folders and files are rooms of their own: all, or these.
ROOMS_WITHIN = {
    "mechanisms": None,
    "transforms": None,
    "privacy": {"ledger"},
    "releases": None,
    "reports": None,
}


def room_of(path: str) -> str:
    """The room of a file; for a door, that whose door it is."""
    top, *parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    if top == "pipelines" or not parts:
        return top
    inner = ROOMS_WITHIN.get(parts[0], set())
    if len(parts) > 1 and (inner is None or parts[1] in inner):
        return f"{parts[0]}.{parts[1]}"
    return parts[0]


def floor_of(room: str) -> int | None:
    family = room.partition(".")[0]
    names = (room, f"{family}.*") if "." in room and family in SHARED_FLOORS else (room,)
    found = (number for name in names for number, rooms in enumerate(FLOORS) if name in rooms)
    return next(found, None)


Arrows = dict[tuple[str, str], str]


def arrows(files: dict[str, str]) -> Arrows:
    """Each pair of rooms of which one imports the other, with a file that does."""
    paths = {module_name(path): path for path in files}
    found = {}
    for path, source in files.items():
        if path.endswith("__init__.py"):
            continue
        for name, _ in imports(path, source):
            # `from a.b import c` names the module a.b.c, or the name c of the module a.b.
            target = paths.get(name) or paths.get(name.rpartition(".")[0])
            if target is not None and room_of(target) != room_of(path):
                found.setdefault((room_of(path), room_of(target)), f"{path} imports {name}")
    return found


def upward(found: Arrows) -> list[str]:
    """Imports, for types too, of a room that is not on a floor below."""
    wrong = []
    for (room, other), example in found.items():
        here, there = floor_of(room), floor_of(other)
        if here is None or there is None:
            wrong.append(f"{room if here is None else other} has no floor")
            continue
        is_shared = here == there and "." in room and room.partition(".")[0] in SHARED_FLOORS
        if there >= here and not is_shared:
            wrong.append(example)
    return wrong


def without_types(source: str) -> str:
    """The source without what only a type checker reads."""
    if "TYPE_CHECKING" not in source:
        return source

    class Running(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
            is_for_types = getattr(node.test, "id", "") == "TYPE_CHECKING"
            return node.orelse if is_for_types else self.generic_visit(node)

    return ast.unparse(Running().visit(ast.parse(source)))


def circles(files: dict[str, str]) -> list[str]:
    """Rooms that import each other while they run, also inside functions."""
    graph: dict[str, set[str]] = {}
    for room, other in arrows({path: without_types(text) for path, text in files.items()}):
        graph.setdefault(room, set()).add(other)
    done: set[str] = set()
    found: list[str] = []

    def visit(room: str, trail: tuple[str, ...]) -> None:
        if room in trail:
            found.append(" -> ".join([*trail[trail.index(room) :], room]))
        elif room not in done:
            for other in sorted(graph.get(room, ())):
                visit(other, (*trail, room))
            done.add(room)

    for room in sorted(graph):
        visit(room, ())
    return found


def test_no_room_imports_one_above_it(sources: dict[str, str]) -> None:
    assert upward(arrows(sources)) == []


def test_no_rooms_import_each_other_in_a_circle(sources: dict[str, str]) -> None:
    assert circles(sources) == []


TARGETS = dict.fromkeys(
    (
        "beam_dp/domain/universe.py",
        "beam_dp/mechanisms/__init__.py",
        "beam_dp/mechanisms/sketches/plan.py",
        "beam_dp/mechanisms/left_out.py",
        "beam_dp/releases/files/card.py",
        "beam_dp/releases/kinds.py",
        "beam_dp/transforms/errors.py",
        "beam_dp/transforms/counting/limited_records.py",
        "beam_dp/transforms/drawing/release.py",
        "beam_dp/transforms/writing/write.py",
        "pipelines/flags.py",
    ),
    "",
)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("beam_dp/errors.py", "from beam_dp.domain.universe import Domain\n"),
        ("beam_dp/noise/source.py", "import beam_dp.domain.universe\n"),
        ("beam_dp/releases/files/card.py", "def f():\n    import beam_dp.releases.kinds\n"),
        ("beam_dp/summaries/a.py", "import beam_dp.mechanisms\n"),
        ("beam_dp/mechanisms/sketches/plan.py", "from beam_dp.mechanisms import MWEM\n"),
        ("beam_dp/transforms/counting/a.py", "from beam_dp.transforms.drawing import release\n"),
        ("beam_dp/transforms/drawing/a.py", "from beam_dp.transforms.writing.write import f\n"),
        ("beam_dp/transforms/writing/a.py", "from beam_dp.transforms.drawing import release\n"),
        ("beam_dp/flags/flag.py", "from pipelines.flags import Flag\n"),
        ("beam_dp/attic/a.py", "import beam_dp.domain.universe\n"),
        (
            "beam_dp/releases/files/card.py",
            "if TYPE_CHECKING:\n    from beam_dp.mechanisms.left_out import LeftOutPlan\n",
        ),
    ],
)
def test_an_arrow_upward_is_seen(path: str, source: str) -> None:
    assert len(upward(arrows({**TARGETS, path: source}))) == 1


def test_families_may_import_each_other_but_in_no_circle() -> None:
    one = {"beam_dp/mechanisms/sketches/plan.py": "import beam_dp.mechanisms.left_out\n"}
    back = "from beam_dp.mechanisms.sketches.plan import SparsePlan\n"
    for_types = f"if TYPE_CHECKING:\n    {back}"
    later = f"def f():\n    {back}"
    for text, is_circle in (("", False), (for_types, False), (back, True), (later, True)):
        files = {**TARGETS, **one, "beam_dp/mechanisms/left_out.py": text}
        assert upward(arrows(files)) == []
        assert bool(circles(files)) == is_circle
