# Everything below works from a bare checkout with git, make and Python 3.11 or newer.
# Another interpreter: `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# Hundreds of processes import the package and its tests: they are compiled once.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo demo-stream journeys notebooks recipes synthesizers test test-jobs test-part \
  test-release test-pool test-apart style types lint lock pin generated bench judges fuzz flink kafka \
  prism java docs test-docs dist test-pythons test-oldest test-faults test-images clean

help:
	@echo "make demo          release a synthetic copy of 336,776 real flights and compare it with the truth"
	@echo "make demo-stream   release a day of flights hour by hour, while they arrive"
	@echo "make journeys      three tutorials on the command line, from a table to checked answers"
	@echo "make notebooks     three tutorials in Jupyter: runs every cell of examples/notebooks"
	@echo "make recipes       tasks that many have: rows of people, databases, Iceberg, nightly jobs, survey weights"
	@echo "make test          lint, types, and the tests that are quick and exact: two minutes"
	@echo "make test-jobs     the tests that start Beam, engines, servers or programs: eight minutes"
	@echo "make test-part     an eighth of the dear tests, and audits of what changed; PART=all: every one"
	@echo "make test-release  everything, with fresh seeds, before a release: hours"
	@echo "make test-oldest   the tests of code that uses Beam, on the oldest supported Beam"
	@echo "make generated     write the files and pages that are made from flags, refusals, commands and recorded benchmarks"
	@echo "make lock          choose the versions that developers, continuous integration and the images install"
	@echo "make pin           pin the images of others by their digests, with skopeo"
	@echo "make docs          build the site of these documents and the reference into build/site"
	@echo "make test-docs     the tests of that site"
	@echo "make bench         the benchmarks, with targets for speed and accuracy"
	@echo "make judges        measure releases with tools of other projects, in environments of their own"
	@echo "make synthesizers  compare with SDV: time, quality, attacks; its environment has six gigabytes"
	@echo "make fuzz          try hostile releases, domains and queries: 10 minutes or a million inputs each"
	@echo "make flink         fetch Beam's job server for Flink, or build it, with Maven"
	@echo "make kafka         fetch a broker of Kafka for tests, with Maven"
	@echo "make prism         build Prism, Beam's runner for one machine, with Go"
	@echo "make java          build the example of a pipeline in Java, with Maven"
	@echo "make dist          build and check the wheels and the source distribution of the last commit, in dist/"
	@echo "make test-pythons  test these in an empty environment of each installed version of Python"
	@echo "make test-images   build the images without Docker, and run compose.yaml: nine minutes, as root"
	@echo "make test-faults   kill parts of a Flink cluster 20 times in each way, about an hour"
	@echo "make clean         remove the environment and everything generated"

# uv fills an environment from its cache with links, where it is installed; pip otherwise, which
# compiles what is imported then, and the rest never.
UV := $(shell command -v uv)
ifdef UV
  new_environment = $(UV) venv --quiet --seed --clear --python '$(PYTHON)' $(1)
  install_into = $(UV) pip install --quiet --python $(1)/bin/python
else
  new_environment = $(PYTHON) -m venv $(1)
  install_into = $(1)/bin/python -m pip --disable-pip-version-check install --quiet --no-compile
endif
CONSTRAINTS := tools/constraints.txt
LOCKED := tools/requirements.txt

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "error: PYTHON: '$(PYTHON)' is refused; must be Python 3.11 or newer"; exit 2; }
	$(call new_environment,$(VENV))

# A stamp is newer than the files that say what to install, so a second run installs nothing. pip
# takes hashes only if everything has one, and a checkout has none: it is installed after the rest.
EXTRAS := demo notebooks test
INSTALLED := setup.py pyproject.toml $(LOCKED) $(wildcard beam_dp/hashing/_kernel*.[ch])
STAMP := $(VENV)/.stamp
$(STAMP): $(INSTALLED) | $(BIN)/python
	$(call install_into,$(VENV)) --require-hashes --requirement $(LOCKED)
	$(call install_into,$(VENV)) --no-deps --no-build-isolation --editable .
	@touch $@

# The versions for every supported Python: of all extras, and with hashes of what developers and
# continuous integration install, of what `make dist` and `make docs` need, and of what is in the
# images. `UPGRADE=` keeps those that still fit.
UPGRADE := --upgrade
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 $(UPGRADE) --no-header \
  --no-annotate --no-emit-index-url --no-emit-find-links
HASHED := $(LOCK) --generate-hashes
lock:
	$(LOCK) --all-extras --output-file $(CONSTRAINTS) pyproject.toml
	$(HASHED) --constraint $(CONSTRAINTS) $(EXTRAS:%=--extra %) --output-file $(LOCKED) pyproject.toml
	for each in distributions site; do \
	  $(HASHED) --output-file tools/$$each/requirements.txt tools/$$each/requirements.in || exit 1; done
	$(HASHED) $(patsubst %,--extra %,gcs kafka postgresql s3 sql) \
	  --output-file deploy/images/requirements.txt pyproject.toml deploy/images/requirements.in
	echo setuptools | $(HASHED) --output-file deploy/images/build.txt -

# Writes the digests that the images of others have in their registries today. It needs skopeo.
pin:
	@for each in $$(sed -nE 's/^(ARG \w+_IMAGE=| +image: )(\S+:\S+)$$/\2/p' deploy/Dockerfile deploy/compose.yaml); do \
	  name=$${each%@*}; digest=$$(skopeo inspect --no-tags --format '{{.Digest}}' docker://$$name) || exit 2; \
	  sed -i "s|$$each\$$|$$name@$$digest|" deploy/Dockerfile deploy/compose.yaml; echo "$$name@$$digest"; \
	done

demo: $(STAMP)
	$(BIN)/python examples/flights.py

demo-stream: $(STAMP)
	$(BIN)/python examples/flights_stream.py

journeys: $(STAMP)
	$(BIN)/python examples/analyst.py
	$(BIN)/python examples/engineer.py
	$(BIN)/python examples/officer.py

notebooks: $(STAMP)
	$(BIN)/python examples/notebooks/run.py

# Without a PostgreSQL server its recipe is skipped and says so.
recipes: $(STAMP)
	$(call install_into,$(VENV)) --constraint $(CONSTRAINTS) --editable '.[recipes]'
	$(BIN)/python -m pytest -rs --tiers all --part all tests/test_recipes.py

style: $(STAMP)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

MYPY := $(BIN)/python -m mypy
types: $(STAMP)
	$(MYPY)

lint: style types

# A worker that has no test left takes over half of another's. PYTEST_OPTIONS: more of pytest's.
PYTEST := $(BIN)/python -m pytest --dearest 10 $(PYTEST_OPTIONS)
POOL := -n $(WORKERS) --dist worksteal
TIERS ?= job
PART ?=

# Types are checked at the same time, because that takes one core.
test: style
	@types=$$(mktemp); $(MYPY) > $$types 2>&1 & \
	$(PYTEST) $(POOL) --tiers test; code=$$?; \
	wait $$! || code=1; cat $$types; rm $$types; exit $$code

test-jobs:
	$(MAKE) test-pool test-apart TIERS=job

test-part:
	$(MAKE) test-pool test-apart TIERS=part PART=$(PART)

test-pool: $(STAMP)
	$(PYTEST) $(POOL) --tiers $(TIERS) --part '$(PART)' -m 'not (engines or wheel)'

# Engines and environments are shared by tests, so one process runs them. Without Java or Maven the
# tests on Flink and Kafka are skipped and say so; without Go those on Prism.
test-apart: $(STAMP)
	@ls $(FLINK_JARS)/*.jar 2> /dev/null || $(MAKE) flink || echo "no job server: Flink is skipped"
	@ls $(PRISM_BIN)/prism 2> /dev/null || $(MAKE) prism || echo "no Prism: it is skipped"
	@$(MAKE) kafka || echo "no broker: Kafka is skipped"
	@$(MAKE) java || echo "no example in Java: it is skipped"
	$(PYTEST) -rs --tiers $(TIERS) --part '$(PART)' -m 'engines or wheel' \
	  -o addopts=--strict-markers tests/engines tests/wheel tests/transforms

# Everything, with a seed that no landing has seen; its tables are committed. FAULT_TRIALS=3 is less.
SEED ?=
test-release: $(STAMP)
	@folder=$$(mktemp -d); seed=$(SEED); \
	seed=$${seed:-$$($(PYTHON) -c 'import secrets; print(secrets.randbelow(2**32))')}; \
	export PYTEST_OPTIONS="--seed=$$seed"; \
	stage() { $(BIN)/python tools/stages.py run $$folder "$$@"; }; \
	stage lint $(MAKE) lint; \
	stage pool $(MAKE) test-pool TIERS=test,job,part PART=all; \
	stage apart $(MAKE) test-apart TIERS=job,part PART=all; \
	for each in demo demo-stream journeys notebooks recipes test-docs test-pythons test-oldest \
	  test-images test-faults bench judges; do stage $$each $(MAKE) $$each; done; \
	$(BIN)/python tools/stages.py report $$folder --seed $$seed \
	  --record tests/release_run.json --costs tests/costs.json

# The oldest Beam, numpy and pyarrow that pyproject.toml allows, in an environment of their own.
OLDEST_VENV := .venv-oldest
OLDEST := $(shell sed -nE 's/^ *"(apache-beam|numpy|pyarrow)>=([0-9.]+).*/"\1==\2.*"/p' pyproject.toml)
$(OLDEST_VENV)/.stamp: $(INSTALLED)
	$(call new_environment,$(OLDEST_VENV))
	$(call install_into,$(OLDEST_VENV)) --editable '.[test]' $(OLDEST)
	@touch $@

test-oldest: $(OLDEST_VENV)/.stamp
	$(OLDEST_VENV)/bin/python -m pytest $(POOL) $(PYTEST_OPTIONS) --tiers test,job \
	  -m 'not (engines or wheel)' tests/contracts tests/secret tests/transforms tests/pipelines

generated: $(STAMP)
	$(BIN)/python tools/write_flags.py
	$(BIN)/python tools/write_schemas.py
	$(BIN)/python benchmarks/write_pages.py
	PYTHONPATH=.:tests:tests/contracts $(BIN)/python tests/contracts/test_refusals.py
	PYTHONPATH=.:tests:tests/contracts $(BIN)/python tests/contracts/test_printed.py

# The whole of it takes long: `python benchmarks/NAME.py --help` tells what else there is.
bench: $(STAMP)
	$(BIN)/python -m benchmarks.start
	$(BIN)/python benchmarks/distributed_pass.py --quick
	$(BIN)/python benchmarks/size.py --quick
	$(BIN)/python benchmarks/hashing.py --quick
	PYTHONPATH=.:tests $(BIN)/python benchmarks/resources.py
	$(BIN)/python benchmarks/projection_pass.py --quick
	$(BIN)/python benchmarks/sparse_queries.py --quick
	$(BIN)/python benchmarks/sparse_queries.py --quick --weighted
	$(BIN)/python benchmarks/accuracy.py wide --ways 2 --epsilon 1 --delta 1e-9 --runs 1
	$(BIN)/python benchmarks/intervals.py sizes --measured 64
	$(BIN)/python benchmarks/sparse_release.py --quick
	$(BIN)/python benchmarks/sparse_grid.py --quick
	$(BIN)/python benchmarks/windows.py --quick
	PYTHONPATH=.:tests $(BIN)/python -m benchmarks.flink_scale --wide_rows 0
	@if [ -n "$$BEAM_DP_DATA" ]; then set -x; \
	  $(BIN)/python benchmarks/accuracy.py nltcs --ways 3 --epsilon 1 --delta 1e-9 --runs 3; \
	else echo "accuracy: skipped, BEAM_DP_DATA is not set"; fi
	$(PYTEST) $(POOL) --tiers release -m benchmark tests benchmarks/tests

# A part of each; `python benchmarks/judges/judge.py --help` tells how all of it is recorded.
judges: $(STAMP)
	$(BIN)/python benchmarks/judges/judge.py --quick

# The tables are in BEAM_DP_DATA. With MBI_MECHANISMS, a folder of mbi's repository, AIM is asked too.
synthesizers: $(STAMP)
	$(BIN)/python benchmarks/judges/judge.py synthesizers

# Without atheris, which has no wheel for every machine, inputs are random instead of guided.
FUZZ_SECONDS ?= 600
fuzz: $(STAMP)
	-$(call install_into,$(VENV)) --constraint $(CONSTRAINTS) --editable '.[fuzz]'
	for target in read_release read_records read_sparse_release read_window read_intervals \
	  read_domain_release read_horizon parse_domain parse_workload domain_draft verify; do \
	  $(BIN)/python tests/fuzz/run.py $$target --seconds $(FUZZ_SECONDS) || exit 1; \
	done

# The job server of the installed Beam is taken from Maven's registry; of the versions of Flink that
# Beam knows, the newest. A registry that lacks it may still hold the parts of deploy/flink/pom.xml.
FLINK_JARS := flink-jars
FLINK_VERSION ?=
PRINT_ARTIFACT := import sys, apache_beam; \
  from apache_beam.options.pipeline_options import FlinkRunnerOptions as options; \
  flink = sys.argv[1] or options.PUBLISHED_FLINK_VERSIONS[-1]; \
  print(f"org.apache.beam:beam-runners-flink-{flink}-job-server:{apache_beam.__version__}")
MAVEN := mvn --batch-mode --quiet -Dstyle.color=never
MAVEN_COPY := $(MAVEN) org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy
flink: $(STAMP)
	@command -v java > /dev/null || { echo "error: java: missing; Java 17 must be installed"; exit 2; }
	@command -v mvn > /dev/null || { echo "error: mvn: missing; Maven must be installed"; exit 2; }
	@artifact=$$($(BIN)/python -c '$(PRINT_ARTIFACT)' "$(FLINK_VERSION)" 2> /dev/null); \
	if $(MAVEN_COPY) -Dartifact=$$artifact -DoutputDirectory=$(FLINK_JARS) > /dev/null 2>&1; then \
	  echo "job server: $$artifact, which Maven found"; \
	elif [ -n "$(FLINK_VERSION)" ]; then \
	  echo "error: FLINK_VERSION: Maven finds no $$artifact"; exit 2; \
	elif $(MAVEN) --file deploy/flink/pom.xml package && mkdir -p $(FLINK_JARS) && \
	  mv build/flink/beam-dp-flink-*-job-server-*.jar $(FLINK_JARS)/; then \
	  echo "job server: built from deploy/flink/pom.xml, for Maven finds no $$artifact"; \
	else echo "error: flink: Maven finds neither $$artifact nor the parts of deploy/flink/pom.xml"; exit 2; fi
	@ls $(FLINK_JARS)/*.jar

# The site has an environment of its own: nothing of it is needed by the package or its tests.
SITE_VENV := .venv-site
$(SITE_VENV)/.stamp: tools/site/requirements.txt
	$(call new_environment,$(SITE_VENV))
	$(call install_into,$(SITE_VENV)) --require-hashes --requirement $<
	@touch $@

# Plain Markdown first, with the outputs of notebooks that run in $(VENV); then HTML of it.
docs: $(SITE_VENV)/.stamp $(STAMP)
	$(SITE_VENV)/bin/python tools/site/write_pages.py
	$(SITE_VENV)/bin/zensical build --clean --strict

test-docs: $(SITE_VENV)/.stamp $(STAMP)
	$(PYTEST) --tiers release -m site tests/test_site.py

# So do the distributions. They are built from the last commit, the same bytes each time.
DIST_VENV := .venv-dist
$(DIST_VENV)/.stamp: tools/distributions/requirements.txt
	$(call new_environment,$(DIST_VENV))
	$(call install_into,$(DIST_VENV)) --require-hashes --requirement $<
	@touch $@

dist: $(DIST_VENV)/.stamp
	$(DIST_VENV)/bin/python tools/distributions/build.py

# `make test-pythons PYTHONS=3.13` takes one of the versions.
test-pythons: dist $(STAMP)
	$(PYTEST) --tiers release tests/pythons

# The broker that tests of topics need.
KAFKA_JARS := kafka-jars
kafka:
	@command -v mvn > /dev/null || { echo "error: mvn: missing; Maven must be installed"; exit 2; }
	@ls $(KAFKA_JARS)/kafka_*.jar > /dev/null 2>&1 || $(MAVEN) --file tests/engines/kafka/pom.xml \
	  org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
	  -DoutputDirectory=$(CURDIR)/$(KAFKA_JARS)
	@ls $(KAFKA_JARS)/kafka_*.jar

# Prism of the installed Beam, from Beam's Go module; it takes minutes the first time.
PRISM_BIN := prism-bin
PRISM_VERSION ?=
PRISM_MODULE := github.com/apache/beam/sdks/v2/go/cmd/prism
PRINT_BEAM := import apache_beam; print(apache_beam.__version__)
prism: $(STAMP)
	@command -v go > /dev/null || { echo "error: go: missing; Go must be installed"; exit 2; }
	@version=$(PRISM_VERSION); \
	version=$${version:-$$($(BIN)/python -c '$(PRINT_BEAM)' 2> /dev/null)}; \
	GOBIN="$(CURDIR)/$(PRISM_BIN)" go install $(PRISM_MODULE)@v$$version || \
	  { echo "error: prism: Go cannot build $(PRISM_MODULE)@v$$version"; exit 2; }
	@ls $(PRISM_BIN)/prism

# A pipeline in Java with transforms of this package.
JAVA_EXAMPLE := build/java/classes/CountAges.class
java: $(JAVA_EXAMPLE)
$(JAVA_EXAMPLE): examples/java/pom.xml examples/java/src/main/java/CountAges.java
	@command -v mvn > /dev/null || { echo "error: mvn: missing; Maven must be installed"; exit 2; }
	@$(MAVEN) --file $< compile org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
	  -DoutputDirectory=$(CURDIR)/build/java/jars
	@touch $@

# FAULT_TRIALS=3 runs fewer.
test-faults: $(STAMP)
	@ls $(FLINK_JARS)/*.jar 2> /dev/null || $(MAKE) flink
	$(PYTEST) --tiers release -m faults tests/engines

# Its tools that are no Debian packages, in an environment of their own.
IMAGES_VENV := .venv-images
$(IMAGES_VENV)/.stamp: tests/images/requirements.txt
	$(call new_environment,$(IMAGES_VENV))
	$(call install_into,$(IMAGES_VENV)) --requirement $<
	@touch $@

# It says what is missing, and that it is skipped then.
test-images: $(IMAGES_VENV)/.stamp $(STAMP)
	@ls $(FLINK_JARS)/*.jar 2> /dev/null || $(MAKE) flink || echo "no job server"
	$(PYTEST) --tiers release -m images tests/images

clean:
	rm -f beam_dp/hashing/*.so
	rm -rf $(VENV) $(OLDEST_VENV) $(SITE_VENV) $(DIST_VENV) $(IMAGES_VENV) .venv-judges demo-output build dist $(FLINK_JARS) $(KAFKA_JARS) $(PRISM_BIN) *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
