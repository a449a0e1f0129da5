"""The blocks that tests do not run, by page and first words, each with the reason.

Of the command lines of `beam-dp` in them the flags are checked all the same.
"""

from collections.abc import Mapping

NOT_RUN: Mapping[str, Mapping[str, str]] = {
    "README.md": {
        "pip install .  ": "installed by tests/wheel",
        "make demo  ": "minutes; run by .ci/run",
        "pip install --no-deps": "installed by tests/wheel",
    },
    "CONTRIBUTING.md": {
        "make test  ": "minutes; run by .ci/run",
        "beam_dp/   ": "a list of folders: tests/test_documents.py",
    },
    "RELEASING.md": {"SITE_VERSIONS=mike": "minutes: make docs"},
    "docs/accuracy.md": {
        **{
            f"python benchmarks/{name}.py": "minutes: make bench"
            for name in ("error_bars", "error_parts", "planned")
        },
        "python -m benchmarks.small_tables": "minutes: make bench",
        "python -m benchmarks.gate": "minutes: make bench",
    },
    "docs/claims.md": {"python benchmarks/claims.py": "KEY is a placeholder: tests/test_claims.py"},
    "docs/dataflow.md": {
        "pip install beam_dp 'apache-beam[gcp]": "Dataflow",
        "IMAGE=": "Docker and Dataflow",
    },
    "docs/flink.md": {
        "make flink\nexport": "Flink: make test-release",
        "python -m apache_beam.runners.worker": "a cluster of Flink: make test-release",
        "make flink && cd tests": "a cluster of Flink: make test-release",
        "podTemplate:": "Kubernetes",
        "beam-dp release-intervals ... --input '/data": "Kubernetes",
    },
    "docs/images.md": {
        "docker build --file deploy/Dockerfile --tag beam_dp .": "Docker: make test-images",
        "docker build --file deploy/Dockerfile --target dataflow": "Docker: make test-images",
        "docker run --rm beam_dp cat": "Docker: make test-images",
        "cd deploy": "Docker's Compose: make test-images",
        "docker compose run": "Docker's Compose: make test-images",
        "docker compose down": "Docker's Compose: make test-images",
    },
    "docs/journeys.md": {"$ python analyst.py": "followed by tests/wheel"},
    "docs/privacy.md": {"P(release of D in S)": "a formula"},
    "docs/references.md": {"@software": "an entry for BibTeX"},
    "docs/releases.md": {"SELECT WITH DIFFERENTIAL_PRIVACY": "BigQuery"},
    "docs/runners.md": {
        "make prism": "Prism: make test-release",
        "gcloud storage buckets": "Google Cloud",
        "echo 'beam_dp==": "not published yet",
        "beam-dp release-intervals ... --setup_file": "other machines: make test-release",
        "beam-dp release-intervals ... --runner=SparkRunner": "Spark",
    },
    "docs/streams.md": {
        "beam-dp release-windows": "a stream on Prism: make test-release",
        "visits = dp.ReadKafka": "Kafka: make test-release",
        "- type: ReadKafka": "Kafka: make test-release",
        "--runner FlinkRunner": "flags of Flink: make test-release",
        "out/week-48/": "a list of files",
    },
    "docs/yaml.md": {"make java ": "Java and Prism: make test-release"},
}


def reason(page: str, text: str) -> str:
    """Returns why a block of a page is not run; empty if it is."""
    if "benchmarks" in page:
        return "minutes, and other systems: make bench"
    found = [why for start, why in NOT_RUN.get(page, {}).items() if text.startswith(start)]
    assert len(found) <= 1, (page, text, found)
    return found[0] if found else ""
