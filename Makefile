# The two commands a newcomer needs: `make run` and `make test`. Each does all its own set-up.

VENV      ?= .venv
PYTHON    ?= python3
BIN       := $(VENV)/bin
NODE_DIR  := tests/clients/node
PACKAGES  := broker exchanges queues flow_control clients spark pyspark_leveret
SOURCES   := $(PACKAGES) tests benchmarks examples
# Tests wait about as much as they compute: one worker more than there are processors.
WORKERS   ?= $(shell expr $$(nproc) + 1)
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
APT       := apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq

.DEFAULT_GOAL := help
.PHONY: help run test lint types imports unit cluster-semantics rabbitmq-clients bench sim soak chaos nightly \
	format constraints clean

help:  ## show what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); \
	  echo "installing Debian's python3-venv"; $(APT) python3-venv; \
	  $(PYTHON) -m venv $(VENV); }

# What running takes, and what testing takes on top; both pinned by constraints.txt.
$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.run

$(NODE_DIR)/node_modules/.installed: $(NODE_DIR)/package.json $(NODE_DIR)/package-lock.json
	@command -v npm >/dev/null || { echo "installing Debian's nodejs and npm"; $(APT) nodejs npm; }
	@cd $(NODE_DIR) && npm ci --silent --no-audit --no-fund
	@touch $@

# Spark runs on Java 17 or 21; any that is there is taken.
$(VENV)/.java: | $(BIN)/python
	@command -v java >/dev/null || { echo "installing Debian's openjdk-17-jre-headless"; \
	  $(APT) openjdk-17-jre-headless; }
	@touch $@

# What tests meet from outside: a browser for the console, a database for pipelines, RabbitMQ's tool.
$(VENV)/.chromium: | $(BIN)/python
	@command -v chromium >/dev/null || { echo "installing Debian's chromium"; $(APT) chromium; }
	@touch $@

$(VENV)/.postgresql: | $(BIN)/python
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { echo "installing Debian's postgresql"; \
	  $(APT) postgresql; }
	@touch $@

$(BIN)/rabbitmqadmin: | $(BIN)/python
	@echo "taking rabbitmqadmin out of Debian's rabbitmq-server"
	@set -e; dir=$$(mktemp -d); chmod 755 $$dir; apt-get update -qq; \
	  (cd $$dir && apt-get download -qq rabbitmq-server && dpkg-deb -x rabbitmq-server_*.deb .); \
	  install -m 755 $$dir/usr/bin/rabbitmqadmin $@; rm -rf $$dir

run: $(VENV)/.run  ## start the broker on its defaults (ARGS="--amqp-port 5673" for more)
	@exec $(BIN)/leveret serve $(ARGS)

test: lint types imports unit  ## everything that decides whether a change may land

lint: $(VENV)/.dev  ## ruff: rules and format
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(VENV)/.dev  ## mypy --strict
	$(BIN)/mypy

imports: $(VENV)/.dev  ## import-linter: who may know whom
	$(BIN)/lint-imports --no-cache

# Tests start many processes; none shall compile all sources anew, whatever the environment says.
unit: export PYTHONDONTWRITEBYTECODE :=
unit: $(VENV)/.dev $(VENV)/.java $(VENV)/.chromium $(VENV)/.postgresql $(BIN)/rabbitmqadmin \
  $(NODE_DIR)/node_modules/.installed  ## the tests, side by side
	$(BIN)/pytest $(SIDE_BY_SIDE) $(PYTEST_ARGS)
	LEVERET_TEST_CLUSTER=1 $(BIN)/pytest $(SIDE_BY_SIDE) tests/semantics tests/sqs \
	  -k "not transient and not classic" $(PYTEST_ARGS)

# `unit` has most of it: transient and classic queues live on the node that the client is connected to.
cluster-semantics: $(VENV)/.dev  ## all that clients are promised, by the first of three nodes
	LEVERET_TEST_CLUSTER=1 $(BIN)/pytest tests/semantics $(PYTEST_ARGS)

rabbitmq-clients: $(VENV)/.dev  ## the tests of the AMQP clients, against a real RabbitMQ
	$(BIN)/python -m tests.amqp_client.rabbitmq $(PYTEST_ARGS)

SEED  ?= 1
SEEDS ?= 1-5000

sim: $(VENV)/.dev  ## replay one simulated run of a node, a Raft group and a cluster (SEED=n)
	$(BIN)/python -m tests.simulation --seed $(SEED)
	$(BIN)/python -m tests.raft.sim --seed $(SEED)
	$(BIN)/python -m tests.cluster_simulation --seed $(SEED)

soak: $(VENV)/.dev  ## thousands of simulated runs (SEEDS=a-b)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)
	$(BIN)/python -m tests.raft.sim --seeds $(SEEDS)
	$(BIN)/python -m tests.cluster_simulation --seeds $(SEEDS)

nightly: soak  ## soak, fifty times kill -9 under load, and a cluster under faults
	$(BIN)/python -m tests.durability.kills --kills 50 --seed $(SEED)
	$(BIN)/python -m tests.durability.stream_kills --kills 50 --seed $(SEED)
	$(BIN)/python -m tests.durability.transaction_kills --kills 50 --seed $(SEED)
	$(BIN)/python -m tests.cluster.matrix --seconds 60 --seed $(SEED)

chaos: $(VENV)/.dev  ## each fault by itself on three nodes, and all together (SEED=n)
	$(BIN)/python -m tests.cluster.matrix --seconds 20 --seed $(SEED)

bench: $(VENV)/.dev  ## load on this broker and, where installed, on RabbitMQ beside it
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

format: $(VENV)/.dev  ## let ruff format the code
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

constraints: $(VENV)/.dev  ## pin what is installed now
	$(BIN)/python -m pip freeze --exclude-editable --disable-pip-version-check > constraints.txt

clean:  ## remove everything that set-up made
	rm -rf $(VENV) $(NODE_DIR)/node_modules build *.egg-info .mypy_cache .ruff_cache .pytest_cache
