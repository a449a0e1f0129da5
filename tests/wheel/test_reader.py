"""An environment that only reads releases: README's line without Beam, and what that costs."""

import json
import re
import zipfile

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from newcomers import GOLDEN, GOLDEN_RELEASES
from source_imports import ROOT

pytestmark = [pytest.mark.wheel, pytest.mark.part]
MOST_BYTES = 150 * 2**20
NO_PART = r"[\w-]+ is not installed, and what makes releases needs it: pip install beam_dp"


def test_wheel_contains_every_source_file_and_the_kernel(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "beam_dp").rglob("*")
        if path.suffix in (".py", ".json", ".css", ".yaml") or path.name == "py.typed"
    }
    programs = {f"beam_dp/pipelines/{path.name}" for path in (ROOT / "pipelines").glob("*.py")}
    kernel = {name for name in names if name.startswith("beam_dp/hashing/_kernel.")}
    assert len(kernel) == 1
    assert names == sources | programs | kernel


def test_wheel_lists_what_it_requires_for_others_to_read(wheel):
    """Where PEP 770 has it; the library of the format's makers accepts it."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if ".dist-info/sboms/" in name)
        text = opened.read(name).decode()
    assert JsonStrictValidator(SchemaVersion.V1_7).validate_str(text) is None
    listed = {part["name"]: part["versionRange"] for part in json.loads(text)["components"]}
    assert len(listed) > 15 and listed["apache-beam"] == "vers:pypi/>=2.72|<3"


def test_reading_loads_no_heavy_packages(reading):
    files = (reading.folder / "environment").rglob("*")
    assert sum(each.stat().st_size for each in files if each.is_file()) < MOST_BYTES


@pytest.mark.parametrize("release", GOLDEN_RELEASES)
def test_reader_describes_verifies_and_reports_every_kind(reading, release):
    reading.check_reading(release)


def test_reader_answers_on_the_command_line_and_in_python(reading):
    place = str(GOLDEN / "synthetic_database")
    assert "age" in reading.run("beam-dp", "answer", place, "--marginal", "age")
    program = f"import beam_dp; print(beam_dp.read_release({place!r}).query('age < 25').count())"
    assert reading.run("python", "-c", program)


@pytest.mark.parametrize(
    "command",
    [
        "check-domain --domain domain.json --sample domain.json",
        "ledger budgets.sqlite",
        "plan --domain domain.json --workload marginals:1 --epsilon 1 --delta 0"
        " --neighboring replace_one --privacy_unit record --num_records 9",
        "run-yaml --yaml_pipeline_file domain.json",
    ],
)
def test_commands_that_need_missing_packages_fail_with_a_one_line_message(reading, command):
    domain = reading.folder / "elsewhere" / "domain.json"
    domain.write_text('{"attributes":[{"name":"a","type":"integer","min":0,"max":1}]}', "utf-8")
    words = command.split(" ")
    assert re.fullmatch(f"error: {words[0]}: {NO_PART}\n", reading.refused("beam-dp", *words))


def test_error_for_a_missing_package_says_how_to_install_it(reading):
    program = "import beam_dp\ntry: beam_dp.MWEM\nexcept ImportError as error: print(error)"
    assert re.fullmatch(rf"beam_dp\.MWEM: {NO_PART}\n", reading.run("python", "-c", program))


def test_doctor_reports_that_releases_can_be_read(reading):
    program = "from beam_dp.cli.main import main; assert main(['doctor']) == 1"
    assert "\nYou can read releases here.\n" in reading.run("python", "-c", program)
