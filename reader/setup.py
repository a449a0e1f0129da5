"""The distribution `beam_dp_reader`: what reads releases, of the package `beam_dp`.

`pip install ./reader` in a checkout, whose folder `beam_dp` is linked here.
"""

import pathlib

from setuptools import find_packages, setup

# What makes releases is of the distribution `beam_dp`: the setup.py of the checkout has it.
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

setup(
    name="beam_dp_reader",
    version="0.1.0",
    description="Reads the differentially private releases of beam_dp, without Apache Beam",
    long_description=pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The beam_dp maintainers",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["differential privacy", "synthetic data", "linear queries"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
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
    packages=find_packages(
        include=["beam_dp", "beam_dp.*"],
        exclude=[f"beam_dp.{room}{below}" for room in MAKING for below in ("", ".*")],
    ),
    package_data={"beam_dp": ["py.typed", "cli/*_flags.json", "reports/style.css"]},
    exclude_package_data={"": ["*.so", "*.pyd", "*.c", "*.h"]},
    install_requires=[
        "numpy>=1.26",
        "numpy>=2; sys_platform == 'win32'",  # whose integers have 32 bits there in earlier ones
        "rich>=13",
        "shtab>=1.13",  # completions of shells; earlier ones know no fish
        "threadpoolctl>=3",
    ],
    extras_require={
        "arrow": ["pyarrow>=18"],  # answers and records as tables of Arrow, records in Parquet
        "gcs": ["google-cloud-storage>=2.19"],
        "s3": ["boto3>=1.40.61"],  # copies objects on the condition that the target does not exist
    },
    entry_points={"console_scripts": ["beam-dp=beam_dp.cli.main:main"]},
)
