"""Prints what an image contains, with licences, as a CycloneDX bill of materials: JSON."""

import importlib.metadata
import json
import re
import subprocess
import sys
from typing import Any
from urllib.parse import quote

OF_CLASSIFIER = "License ::"


def licences(package: importlib.metadata.PackageMetadata) -> list[dict[str, Any]]:
    """Returns what a package says of its licence: by SPDX, in its classifiers, or in a line."""
    if expression := package.get("License-Expression"):
        return [{"expression": expression}]
    classifiers = package.get_all("Classifier", [])
    names = [line.split(" :: ")[-1] for line in classifiers if line.startswith(OF_CLASSIFIER)]
    text = package.get("License", "").strip().partition("\n")[0]
    return [{"license": {"name": name}} for name in names or filter(None, [text])]


def component(kind: str, place: str, name: str, version: str, **fields: Any) -> dict[str, Any]:
    """Returns a part: its purl is the place in `pkg:`, with its name and version."""
    purl = f"pkg:{place}/{name}@{quote(version, safe='')}"
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, **fields}


def contents() -> dict[str, Any]:
    """Returns the packages of Python and of Debian, and Beam's program that starts workers."""
    packages = {}
    for each in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", each.name).lower()
        stated = licences(each.metadata)
        packages[name] = component("library", "pypi", name, each.version, licenses=stated)
    parts = [packages[name] for name in sorted(packages)]
    own, beam = packages["beam-dp"], packages["apache-beam"]
    boot = "github.com/apache/beam/sdks/v2/python/container"
    parts.append(component("application", "golang", boot, f"v{beam['version']}"))
    command = ["dpkg-query", "--show", "--showformat=${Package} ${Version}\n"]
    for line in subprocess.check_output(command, text=True).splitlines():
        name, version = line.split(" ")
        parts.append(component("library", "deb/debian", name, version))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "name": "beam_dp", "version": own["version"]}
        },
        "components": parts,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(contents(), indent=1) + "\n")
