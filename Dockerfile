# One image for programs and workers, with the package and all that it needs: docs/images.md.
#
#   docker build --tag beam_dp .                     programs, and Python workers of Flink
#   docker build --target dataflow --tag IMAGE .     the same, and what Dataflow needs besides
#
# Whoever submits a job must have the same Beam, and a Python of the same minor version.
ARG VERSION=0.1.0
ARG PYTHON=3.11
ARG BEAM=2.77.0
ARG EXTRAS=gcs,kafka,postgresql,s3,sql

FROM apache/beam_python${PYTHON}_sdk:${BEAM} AS beam

# Google names no release of it. Only the target dataflow needs it: a program that does not look at
# Python, so that one launcher is for all versions.
# hadolint ignore=DL3007
FROM gcr.io/dataflow-templates-base/python311-template-launcher-base:latest AS launcher

# A compiler is needed for the hashing kernel, and stays in this stage.
FROM python:${PYTHON}-slim-bookworm AS wheels
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
ARG EXTRAS
RUN pip wheel --no-cache-dir --wheel-dir /wheels --constraint images/constraints.txt \
    ".[${EXTRAS}]"

FROM python:${PYTHON}-slim-bookworm AS package
# Beam's program that starts workers, with its licenses.
COPY --from=beam /opt/apache/beam /opt/apache/beam
ARG EXTRAS
# Those wheels are all that pip may take.
# hadolint ignore=DL3013
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "beam_dp[${EXTRAS}]" \
    && pip check \
    && python -c 'import beam_dp.hashing._kernel'
COPY --chmod=755 images/entrypoint.sh /usr/local/bin/entrypoint.sh
# Workers have all that they need, so Beam makes no environment for each of them.
ENV RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
RUN useradd --uid 10001 --create-home beam_dp \
    && install --directory --owner 10001 --group 10001 /data /data/out
WORKDIR /data
ENTRYPOINT ["entrypoint.sh"]
CMD ["beam-dp", "--help"]
ARG VERSION
ARG PYTHON
LABEL org.opencontainers.image.title="beam_dp" \
      org.opencontainers.image.description="Differentially private answers to many linear queries, on Apache Beam" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/library/python:${PYTHON}-slim-bookworm"

# Here root is the user: Dataflow mounts folders that belong to it, and its launcher writes under
# /var/log.
# hadolint ignore=DL3002
FROM package AS dataflow
COPY --from=launcher /opt/google/dataflow/python_template_launcher /opt/google/dataflow/
RUN --mount=type=bind,source=images,target=/images \
    pip install --no-cache-dir --constraint /images/constraints.txt 'apache-beam[gcp]' \
    && pip check
COPY dataflow/main.py /opt/beam_dp/main.py
# Which program a template runs.
ARG PROGRAM=release_synthetic_database
ENV BEAM_DP_PROGRAM=${PROGRAM} \
    FLEX_TEMPLATE_PYTHON_PY_FILE=/opt/beam_dp/main.py

# What `docker build` makes by default.
FROM package AS worker
USER 10001:10001
