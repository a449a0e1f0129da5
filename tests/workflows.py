"""The workflows of continuous integration, as data."""

from typing import Any

import yaml
from package_sources import ROOT

Step = dict[str, Any]


class _Loader(yaml.SafeLoader):
    """Reads ``on`` as a word, as workflows do."""


_LETTERS = {
    letter: [(tag, kind) for tag, kind in kinds if tag != "tag:yaml.org,2002:bool"]
    for letter, kinds in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.yaml_implicit_resolvers = _LETTERS

ALL: dict[str, dict[str, Any]] = {
    path.name: yaml.load(path.read_text("utf-8"), _Loader)
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}


def steps(file: str, job: str) -> list[Step]:
    """The steps of a job."""
    found: list[Step] = ALL[file]["jobs"][job]["steps"]
    return found
