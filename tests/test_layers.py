"""The floors of the package, circles of files, and wings: who may import whom.

The floors are those of the package as it should become; ``ROOMS`` says where today's files belong.
An import counts wherever it stands: at the top of a file, in a function, or for types.
``test_architecture.py`` tests the rules.
"""

import fnmatch
import pathlib

from source_imports import cycles, file_imports, imports, module_name

# From the bottom up. A file imports files of its own room, and of the floors below.
FLOORS = (
    ("ground",),
    ("storage",),
    ("privacy",),
    ("domain", "hashing"),
    ("queries", "flags"),
    ("models",),
    ("secret", "releases"),
    ("views",),
    ("mechanisms",),
    ("planning",),
    ("in_memory", "testing", "transforms"),
    ("cli", "yaml"),
    ("beam_dp", "pipelines"),
)
# The room of a file: that of the longest pattern here, otherwise its folder or itself.
ROOMS = {
    "beam_dp/__init__.py": "beam_dp",
    "beam_dp/checks.py": "ground",
    "beam_dp/errors.py": "ground",
    "beam_dp/installed.py": "ground",
    "beam_dp/imputation.py": "in_memory",
    "beam_dp/threads.py": "ground",
    "pipelines/*": "pipelines",
}
# A wing is a family of files that can be deleted with its lines in the tables. No file outside a
# wing, also none of another wing, imports it.
WINGS = {
    "sketches": (
        "beam_dp/hashing/evaluation.py",
        "beam_dp/hashing/projections.py",
        "beam_dp/mechanisms/sketches/*",
        "beam_dp/planning/sketches.py",
        "beam_dp/releases/sketches/*",
        "beam_dp/views/sketches.py",
        "beam_dp/secret/summaries/projection.py",
        "beam_dp/transforms/sketches.py",
        "pipelines/release_projection.py",
    ),
    "answers": (
        "beam_dp/mechanisms/linear_answers.py",
        "beam_dp/mechanisms/top_queries.py",
        "beam_dp/mechanisms/online/*",
        "beam_dp/planning/answers.py",
        "beam_dp/releases/answers/*",
        "beam_dp/views/answers.py",
        "beam_dp/transforms/drawing/answer_queries.py",
        "beam_dp/transforms/answers.py",
        "pipelines/answer_*.py",
    ),
    "streams": (
        "beam_dp/domain/horizon.py",
        "beam_dp/flags/windows.py",
        "beam_dp/mechanisms/windows/*",
        "beam_dp/planning/windows.py",
        "beam_dp/releases/windows/*",
        "beam_dp/secret/encoding/windows.py",
        "beam_dp/views/window*.py",
        "beam_dp/transforms/counting/count_windows.py",
        "beam_dp/transforms/windows.py",
        "beam_dp/transforms/reading/read_arrivals.py",
        "beam_dp/transforms/reading/read_kafka.py",
        "pipelines/release_windows.py",
        "pipelines/yaml_windows.py",
    ),
    "intervals": (
        "beam_dp/models/intervals/*",
        "beam_dp/mechanisms/intervals.py",
        "beam_dp/planning/intervals.py",
        "beam_dp/releases/intervals/*",
        "beam_dp/views/intervals.py",
        "beam_dp/transforms/intervals.py",
        "pipelines/release_intervals.py",
    ),
    "theory": (
        "beam_dp/mechanisms/marginals/textbook_mwem.py",
        "beam_dp/mechanisms/small_db/*",
        "beam_dp/planning/textbook.py",
        "beam_dp/queries/vc_dimension.py",
        "beam_dp/planning/theorems/synthesis.py",
    ),
}
# The lines of tables: this file lists the public names, ...
PUBLIC_NAMES = ("beam_dp/__init__.py",)
# ... and these the mechanisms, the options for a job, and the transforms of Beam YAML.
TABLE_LINES = {
    ("beam_dp/cli/plan.py", "beam_dp/flags/windows.py"),
    ("beam_dp/cli/plan.py", "beam_dp/planning/windows.py"),
    ("beam_dp/mechanisms/registry.py", "beam_dp/mechanisms/sketches/plan.py"),
    ("beam_dp/planning/tables.py", "beam_dp/planning/answers.py"),
    ("beam_dp/planning/tables.py", "beam_dp/planning/textbook.py"),
    ("beam_dp/planning/ranking.py", "beam_dp/planning/answers.py"),
    ("beam_dp/planning/ranking.py", "beam_dp/planning/intervals.py"),
    ("beam_dp/planning/ranking.py", "beam_dp/planning/sketches.py"),
    ("beam_dp/planning/ranking.py", "beam_dp/planning/textbook.py"),
    ("pipelines/yaml_transforms.py", "beam_dp/transforms/answers.py"),
    ("pipelines/yaml_transforms.py", "beam_dp/transforms/intervals.py"),
    ("pipelines/yaml_transforms.py", "beam_dp/transforms/windows.py"),
    ("pipelines/yaml_transforms.py", "pipelines/answer_queries.py"),
    ("pipelines/yaml_transforms.py", "pipelines/release_intervals.py"),
    ("pipelines/yaml_transforms.py", "pipelines/release_projection.py"),
}
# Only these files import by a name that is put together, where no rule sees what they import; and
# no file imports a list of public names as a whole.
BY_NAME = (
    "beam_dp/cli/doctor.py",
    "beam_dp/cli/main.py",
    "beam_dp/flags/command_line.py",
    "beam_dp/hashing/evaluation.py",
    "beam_dp/installed.py",
    "beam_dp/mechanisms/registry.py",
    "beam_dp/releases/parts.py",
    "beam_dp/domain/schemas/json_forms.py",
    "pipelines/runners.py",
)
# Each with its reason. A step that opens one lowers the number.
EXCEPTIONS = pathlib.Path(__file__).with_name("wing_exceptions.txt")
NUM_EXCEPTIONS = 8


def room_of(path: str) -> str:
    patterns = [pattern for pattern in ROOMS if fnmatch.fnmatch(path, pattern)]
    if patterns:
        return ROOMS[max(patterns, key=len)]
    return path.split("/")[1].removesuffix(".py")


def wing_of(path: str) -> str | None:
    patterns = ((wing, pattern) for wing, each in WINGS.items() for pattern in each)
    return next((wing for wing, pattern in patterns if fnmatch.fnmatch(path, pattern)), None)


def pairs_of(files: dict[str, str]) -> list[tuple[str, str]]:
    return [(path, other) for path, others in file_imports(files).items() for other in others]


def floor_violations(files: dict[str, str]) -> list[str]:
    """Files without a floor, and imports from the same floor or from one above."""
    floors = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    lost = [f"{path} has no floor" for path in files if room_of(path) not in floors]
    return lost or [
        f"{path} imports {other}"
        for path, other in pairs_of(files)
        if room_of(path) != room_of(other) and floors[room_of(path)] <= floors[room_of(other)]
    ]


def circle_violations(files: dict[str, str]) -> list[str]:
    return cycles(file_imports(files))


def public_pairs(files: dict[str, str]) -> list[tuple[str, str]]:
    """Each file with the home of a name that it imports from a list of public names."""
    paths = {module_name(path): path for path in files}
    homes: dict[str, str] = {}
    for door in PUBLIC_NAMES:
        for name, _ in imports(door, files.get(door, "")):
            home, _, leaf = name.rpartition(".")
            homes[f"{module_name(door)}.{leaf}"] = paths.get(home, door)
    return [
        (path, homes[name])
        for path, source in files.items()
        for name, _ in imports(path, source)
        if name in homes
    ]


def wing_pairs(files: dict[str, str]) -> set[tuple[str, str]]:
    """Each file outside a wing with a file of the wing that it imports."""
    return {
        (path, other)
        for path, other in (*pairs_of(files), *public_pairs(files))
        if wing_of(other) not in (None, wing_of(path)) and path not in PUBLIC_NAMES
    } - TABLE_LINES


def exceptions() -> list[tuple[str, ...]]:
    lines = EXCEPTIONS.read_text("utf-8").splitlines()
    return [tuple(line.split()) for line in lines if line and not line.startswith("#")]


def wing_violations(files: dict[str, str]) -> list[str]:
    pairs = wing_pairs(files) - {*exceptions()}
    return [f"{path} imports {other}, of {wing_of(other)}" for path, other in sorted(pairs)]


def name_violations(files: dict[str, str]) -> list[str]:
    calls = ("import_module", "__import__")
    return [
        path
        for path, source in files.items()
        if (path not in BY_NAME and any(call in source for call in calls))
        or "beam_dp" in {name for name, _ in imports(path, source)}
    ]


RULES = {
    "floor": floor_violations,
    "circle": circle_violations,
    "wing": wing_violations,
    "name": name_violations,
}


def test_tables_and_exceptions_are_still_needed_and_do_not_grow(sources):
    assert {*exceptions()} <= wing_pairs(sources)
    assert {*pairs_of(sources)} >= TABLE_LINES
    assert len({*exceptions()}) == len(exceptions()) == NUM_EXCEPTIONS


def test_each_pattern_names_a_file(sources):
    patterns = [*ROOMS, *(each for wing in WINGS.values() for each in wing)]
    assert [each for each in patterns if not fnmatch.filter(sources, each)] == []
    assert {room_of(path) for path in sources} == {room for rooms in FLOORS for room in rooms}


TARGETS = dict.fromkeys(
    (
        "beam_dp/errors.py",
        "beam_dp/secret/encoding/records.py",
        "beam_dp/mechanisms/sketches/plan.py",
        "beam_dp/planning/job.py",
        "beam_dp/releases/kinds.py",
        "beam_dp/views/windows.py",
        "beam_dp/domain/horizon.py",
        "pipelines/release_windows.py",
        "pipelines/yaml_windows.py",
    ),
    "",
)
HORIZON = "beam_dp.domain.horizon import Horizon\n"
TARGETS["beam_dp/__init__.py"] = f"from {HORIZON}"
BROKEN = [
    ("floor", "beam_dp/errors.py", "import beam_dp.releases.kinds\n"),
    ("floor", "beam_dp/domain/a.py", "def f():\n    from beam_dp.secret.encoding import records\n"),
    ("floor", "beam_dp/storage/a.py", f"if TYPE_CHECKING:\n    from {HORIZON}"),
    ("floor", "beam_dp/releases/a.py", "from beam_dp.secret.encoding.records import encode\n"),
    ("floor", "beam_dp/releases/a.py", "from beam_dp.views.windows import describe\n"),
    ("floor", "beam_dp/attic/a.py", ""),
    ("circle", "beam_dp/errors.py", "from beam_dp.a import b\n"),
    ("circle", "beam_dp/errors.py", "def f():\n    from beam_dp import a\n"),
    ("circle", "beam_dp/errors.py", "if TYPE_CHECKING:\n    import beam_dp.a\n"),
    ("wing", "beam_dp/cli/a.py", f"from {HORIZON}"),
    ("wing", "beam_dp/cli/a.py", f"def f():\n    from {HORIZON}"),
    ("wing", "beam_dp/cli/a.py", f"if TYPE_CHECKING:\n    from {HORIZON}"),
    ("wing", "pipelines/a.py", "from beam_dp import Horizon\n"),
    ("wing", "beam_dp/releases/intervals/release.py", f"from {HORIZON}"),
    ("wing", "beam_dp/mechanisms/registry.py", f"from {HORIZON}"),
    ("name", "pipelines/a.py", "import beam_dp as dp\n"),
    ("name", "beam_dp/releases/a.py", "importlib.import_module('beam_dp.views.terminal')\n"),
]


def test_wings_are_open_to_themselves_to_tables_and_to_exceptions():
    files = {
        **TARGETS,
        "beam_dp/planning/job.py": "import beam_dp.mechanisms.sketches.plan\n",
        "beam_dp/releases/windows/verify.py": f"from {HORIZON}",
        "pipelines/yaml_transforms.py": "from . import release_intervals\n",
    }
    assert wing_violations(files) == floor_violations(files) == []
