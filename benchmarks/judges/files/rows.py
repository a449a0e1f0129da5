"""Released files and a report page, read and checked by programs of other projects."""

from __future__ import annotations

import dataclasses
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import beam_dp as dp
from beam_dp.domain.files import read_domain
from benchmarks.judges.environment import ENVIRONMENTS, Environment
from benchmarks.recorded import Figure, Row

_FOLDER = pathlib.Path(__file__).resolve().parent
_TOOLS = ENVIRONMENTS / "files-tools"  # what npm and Maven install
_ROWS, _QUICK_ROWS = 20_000, 2_000
_FORMATS = ("avro", "parquet", "csv")
_REFERENCE = "fastavro"
# What the sync marker at the end of an Avro file takes, and the end of a Parquet file.
_END = 8
_PROMISE = [
    *("--epsilon=1", "--delta=1e-9", "--neighboring=add_or_remove_one"),
    "--privacy_unit=record",
]
_DOMAIN = {
    "attributes": [
        {
            "name": "city",
            "type": "categorical",
            "values": ["Zürich", 'a, "b"', "北京", " "],
            "nullable": True,
        },
        {"name": "size in m", "type": "integer", "min": -3, "max": 9, "nullable": True},
        {"name": "income", "type": "numeric", "edges": [0, 10.5, 100, 1e6]},
        {"name": "alive", "type": "boolean", "nullable": True},
        {"name": "born", "type": "date", "edges": ["1900-01-01", "1950-01-01", "2000-01-01"]},
        {
            "name": "seen",
            "type": "datetime",
            "edges": ["1969-01-01T00:00:00", "2026-02-01T00:00:00", "2026-03-01T00:00:00"],
        },
    ]
}
# Leaves how often which rules are broken.
_AXE = """<script>
axe.run().then((result) => {
  const found = document.createElement("pre");
  found.id = "found";
  found.textContent = JSON.stringify(
    Object.fromEntries(result.violations.map((each) => [each.id, each.nodes.length])));
  document.body.append(found);
});
</script>"""
Read = dict[str, Any]  # by paths: rows, or the words of a refusal


def rows(environment: Environment, quick: bool) -> list[Row]:
    """Returns a row for every reader of a format, and for every checker of the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        places = _released(folder, _QUICK_ROWS if quick else _ROWS)
        paths: dict[str, Any] = {
            form: sorted(str(path) for place in places for path in place.glob(f"*.{form}"))
            for form in _FORMATS
        }
        damaged = {form: [_damaged(path) for path in paths[form]] for form in _FORMATS}
        asked: dict[str, Any] = {form: paths[form] + damaged[form] for form in _FORMATS}
        asked["types"] = _types(places[0])
        (folder / "files.json").write_text(json.dumps(asked), encoding="utf-8")
        found = environment.ask(folder)
        reference = found["avro"][_REFERENCE]
        expected = {path: reference[path] for path in paths["avro"]}
        records = next(path for path in paths["avro"] if "records-" in path)
        readers: dict[str, dict[str, Read | None]] = {**found}
        readers["avro"]["Avro for Java"] = _java(asked["avro"])
        readers["avro"]["avsc"] = _node("read_avro.js", asked["avro"])
        readers["avro"][_REFERENCE] = readers["avro"].pop(_REFERENCE)  # the last row
        table = []
        for form in _FORMATS:
            for reader, read in readers[form].items():
                wanted = expected if form == "avro" else {paths[form][0]: expected[records]}
                table.append(_row(f"{reader}: {form}", read, wanted, damaged[form]))
        table.append(_ours(places))
        return [*table, *_pages(folder, places[0])]


def _row(what: str, read: Read | None, wanted: Read, damaged: list[str]) -> Row:
    """Returns the row of a reader: values that differ, and damaged files that it reads."""
    if read is None:
        return _missing(f"{what}: its program is missing")
    refused = [each for path in wanted if isinstance(each := read[path], str)]
    if len(refused) == len(wanted):
        return _missing(f"{what}: {_first_words(refused[0])}")
    number = differences = 0
    for path, values in wanted.items():
        number += len(values)
        differences += _differences(read[path], values)
    seen = sum(isinstance(read[path], str) for path in damaged)
    figures = {"rows": Figure(number, "number")}
    figures["damaged files refused"] = Figure(seen / len(damaged), "parts of all")
    if what.startswith(_REFERENCE):  # what others are compared with
        return Row(what, figures, runs=len(wanted))
    figures = {"values that differ": Figure(differences, "number"), **figures}
    return Row(what, figures, runs=len(wanted), wanted="0")


def _first_words(text: str) -> str:
    return re.split(r"[\n\"]", text)[0].strip()[:80].replace("|", " ")


def _missing(what: str) -> Row:
    return Row(f"not run: {what}", {}, runs=0)


def _differences(read: Any, wanted: list[Any]) -> int:
    """Returns how many values differ; all of a file that is refused or has other rows."""
    if isinstance(read, str) or len(read) != len(wanted):
        return sum(map(len, wanted))
    return sum(
        json.dumps(_number(one)) != json.dumps(_number(other))
        for pair in zip(read, wanted, strict=True)
        for one, other in zip(*pair, strict=True)
    )


def _number(value: Any) -> Any:
    """Returns a value without what JSON of several languages writes differently."""
    if isinstance(value, list):
        return [_number(each) for each in value]
    if isinstance(value, dict) and "long" in value:
        return int(value["long"])
    if isinstance(value, dict) and "time" in value:
        whole, _, rest = value["time"].partition(".")
        whole += ":00" * (whole.count(":") == 1)
        return {"time": f"{whole}.{rest:0<6}"}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _released(folder: pathlib.Path, number: int) -> list[pathlib.Path]:
    """Returns the folders of releases of each kind; the first three differ in format only."""
    rng = np.random.default_rng(1)
    domain = read_domain(_DOMAIN)
    times = rng.integers(-30_000_000, 1_774_000_000, number) * 1_000_000
    cities = np.array([*_DOMAIN["attributes"][0]["values"], None], object)  # type: ignore[arg-type]
    table = pa.table(
        {
            "city": pa.array(rng.choice(cities, number), pa.string()),
            "size in m": rng.integers(-3, 10, number),
            "income": rng.uniform(0, 200, number),
            "alive": pa.array(rng.choice(np.array([True, False, None]), number), pa.bool_()),
            "born": pa.array(rng.integers(-25_000, 10_000, number), pa.int32()).cast(pa.date32()),
            "seen": pa.array(times).cast(pa.timestamp("us")),
        }
    )
    workload = dp.marginals(domain, ways=2)
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)  # type: ignore[arg-type]
    one = dp.release(table, domain, workload, guarantee)
    places = []
    for form in _FORMATS:
        places.append(folder / form)
        dp.write_release(dataclasses.replace(one, records_format=form), places[-1])
    source = folder / "rows.parquet"
    pa.parquet.write_table(table, source)
    (folder / "domain.json").write_text(json.dumps(_DOMAIN), encoding="utf-8")
    read = ["--domain", folder / "domain.json", "--input", source]
    key = ["--input", source, "--key=city", "--max_sparsity=4"]
    for name, flags in (
        ("release-intervals", [*read, "--attribute=income"]),
        ("release-projection", key),
        ("release-projection", [*key, "--mechanism=stability_histogram", "--list_keys"]),
    ):
        places.append(folder / f"{name}-{len(places)}")
        _run([_ours_program(), name, *flags, *_PROMISE, "--output", places[-1]])
    return places


def _types(place: pathlib.Path) -> dict[str, str]:
    """Returns the types of the columns, by their names in CSV."""
    kinds = {"categorical": "string", "integer": "long", "numeric": "double"}
    kinds["datetime"] = "local-timestamp-micros"
    entries = json.loads((place / "card.json").read_text("utf-8"))["domain"]["attributes"]
    return {each["name"]: kinds.get(each["type"], each["type"]) for each in entries}


def _damaged(path: str) -> str:
    """Writes a file with other bytes near its end, where both formats keep a marker."""
    data = bytearray(pathlib.Path(path).read_bytes())
    data[-_END] ^= 0xFF
    where = pathlib.Path(path).with_suffix(".damaged")
    where.write_bytes(bytes(data))
    return str(where)


def _ours(places: list[pathlib.Path]) -> Row:
    """Returns the row of this project's own reader, which knows the digests of all files."""
    refused = number = 0
    for place in places:
        for path in sorted(place.glob("*.damaged")):
            number += 1
            copy = place.with_name(f"{place.name}-copy")
            shutil.copytree(place, copy)
            (whole,) = (each for each in copy.glob(f"{path.stem}.*") if each.suffix != ".damaged")
            shutil.copy(path, whole)
            try:
                release = dp.read_release(copy)
                _ = getattr(release, "num_rows", None)
                refused += dp.verify_release(release) is None
            except dp.ReleaseError:
                refused += 1
            shutil.rmtree(copy)
    figures = {"damaged files refused": Figure(refused / number, "parts of all")}
    return Row("beam_dp: all formats", figures, runs=number)


def _ours_program() -> str:
    return str(pathlib.Path(sys.executable).with_name("beam-dp"))


def _run(
    command: list[Any], folder: pathlib.Path | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False, cwd=folder
    )
    if done.returncode:
        sys.exit(f"error: files: {command[:2]} failed:\n{done.stderr[-2000:]}")
    return done


def _installed(name: str, install: list[str]) -> pathlib.Path:
    """Returns a folder that holds a file of this judge and what a command installed for it."""
    place, wanted = _TOOLS / name.split(".")[0], (_FOLDER / name).read_text("utf-8")
    stamp = place / ".stamp"
    if not (stamp.exists() and stamp.read_text("utf-8") == wanted):
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(_FOLDER / name, place)
        _run(install, place)
        stamp.write_text(wanted, encoding="utf-8")
    return place


def _packages() -> pathlib.Path:
    return _installed("package.json", ["npm", "install", "--silent", "--no-audit", "--no-fund"])


def _java(paths: list[str]) -> Read | None:
    """Returns what Avro for Java reads; None without Java or Maven."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        return None
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    install = ["mvn", "--batch-mode", "--quiet", copy, "-DoutputDirectory=jars"]
    jars = _installed("pom.xml", install) / "jars" / "*"
    read: Read = json.loads(
        _run(["java", "-cp", str(jars), _FOLDER / "ReadAvro.java", *paths]).stdout
    )
    return read


def _node(program: str, paths: list[str]) -> Read | None:
    """Returns what a program of this folder prints under node; None without node or npm."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None
    place = _packages()
    shutil.copy(_FOLDER / program, place)  # node looks for modules next to a program
    read: Read = json.loads(_run(["node", place / program, *paths]).stdout)
    return read


def _pages(folder: pathlib.Path, place: pathlib.Path) -> list[Row]:
    """Returns the rows of the checkers of a report page, and of the same page with faults."""
    page, faulty = folder / "page.html", folder / "faulty.html"
    _run([_ours_program(), "report", place, "--output", page])
    text = page.read_text("utf-8")
    faults = '<img src="x"><a id="twice"></a><a id="twice" href="#"></a><table><p></table></main>'
    faulty.write_text(text.replace("</main>", f"{faults}", 1), encoding="utf-8")
    return [
        _checked("Nu HTML checker", page, faulty, _vnu),
        _checked("axe-core in Chromium", page, faulty, _axe),
    ]


def _checked(
    what: str, page: pathlib.Path, faulty: pathlib.Path, check: Callable[[pathlib.Path], int | None]
) -> Row:
    faults, control = check(page), check(faulty)
    if faults is None or control is None:
        return _missing(f"{what}: its program is missing")
    figures = {
        "faults of the page": Figure(faults, "number"),
        "faults of a wrong page": Figure(control, "number"),
    }
    return Row(f"{what}: report", figures, wanted="0")


def _vnu(page: pathlib.Path) -> int | None:
    if shutil.which("java") is None or shutil.which("npm") is None:
        return None
    jar = _packages() / "node_modules" / "vnu-jar" / "build" / "dist" / "vnu.jar"
    command = ["java", "-jar", str(jar), "--format", "json", "--exit-zero-always", str(page)]
    messages = json.loads(_run(command).stderr)["messages"]
    for each in messages:
        print(f"{page.name}: {each['type']}: {each['message']}", flush=True)
    return len(messages)


def _axe(page: pathlib.Path) -> int | None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if browser is None or shutil.which("npm") is None:
        return None
    axe = _packages() / "node_modules" / "axe-core" / "axe.min.js"
    checked = page.with_name(f"checked-{page.name}")
    # The page forbids scripts, also those of a checker.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text("utf-8"))
    checked.write_text(f'{text}<script src="{axe.as_uri()}"></script>{_AXE}', encoding="utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    shown = _run([*command, "--virtual-time-budget=60000", checked.as_uri()]).stdout
    (found,) = re.findall(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
    violations: dict[str, int] = json.loads(html.unescape(found))
    print(f"{page.name}: {violations}", flush=True)
    return len(violations)
