"""What `pyproject.toml` cannot say: the compiled kernel, and a package that lies elsewhere.

Beam's `--setup_file` runs this file with the setuptools of whoever submits a job, which may be old.
"""

import json
import os
import pathlib
import re

from setuptools import Extension, find_packages, setup
from setuptools.command.egg_info import egg_info

LICENSE = "Apache-2.0"

# Without a compiler the package installs all the same, and hashes in numpy: slower, same results.
# Per-function targets and a look at the processor at run time: one wheel serves every machine.
KERNEL = Extension(
    "beam_dp.hashing._kernel",
    ["beam_dp/hashing/_kernel.c"],
    depends=[
        "beam_dp/hashing/_kernel_lanes.h",
        "beam_dp/hashing/_kernel_portable.h",
        "beam_dp/hashing/_kernel_x86.h",
    ],
    extra_compile_args=["-O3"] if os.name == "posix" else [],
    py_limited_api=True,
    optional=True,
)


class Metadata(egg_info):
    """Adds `sboms/beam_dp.cdx.json` (PEP 770): this package, and the packages that it requires."""

    def run(self) -> None:
        """Writes it beside the other metadata, which wheels copy as a whole."""
        version = self.distribution.get_version()
        own = f"pkg:pypi/beam-dp@{version}"
        parts = []
        for line in self.distribution.install_requires:
            name, limits = re.fullmatch(r"([\w-]+)(\S*)", line).groups()
            place = f"pkg:pypi/{name.replace('_', '-')}"
            part = {"type": "library", "bom-ref": place, "name": name, "purl": place}
            limits = "|".join(sorted(limits.split(","), reverse=True))
            parts.append({**part, "isExternal": True, "versionRange": f"vers:pypi/{limits}"})
        described = {
            "type": "library",
            "bom-ref": own,
            "name": "beam_dp",
            "version": version,
            "licenses": [{"license": {"id": LICENSE}}],
            "purl": own,
        }
        bill = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.7",
            "version": 1,
            "metadata": {"component": described},
            "components": parts,
            "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in parts]}],
        }
        folder = pathlib.Path(self.egg_info, "sboms")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "beam_dp.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", "utf-8")
        super().run()


setup(
    license=LICENSE,  # setuptools before 77 takes it only here
    cmdclass={"egg_info": Metadata},
    # A top-level package named `pipelines` would clash with others' once installed.
    packages=[*find_packages(include=["beam_dp", "beam_dp.*"]), "beam_dp.pipelines"],
    package_dir={"beam_dp.pipelines": "pipelines"},
    ext_modules=[KERNEL],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
