# Two commands to know: `make serve` and `make test`. All of them set up .venv first.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# Compilers' environments export a HOST of their own: only `make HOST=...` and CAPSNET_HOST count.
ifneq ($(origin HOST),command line)
HOST := $(or $(CAPSNET_HOST),127.0.0.1)
endif
PORT ?= $(or $(CAPSNET_PORT),8000)
ARGS ?=
FIRST = serve|test|check|docs|install-training|image|help-all
CPU_VENV ?= runs/cpu
REPLICAS ?= 1
ENGINE ?= $(notdir $(shell command -v docker || command -v podman || echo docker))
BASE ?= docker.io/library/python:3.13-slim
TARGET ?= cpu
IMAGE ?= localhost/capsnet-service:$(TARGET)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
REVISION = $(shell git rev-parse HEAD 2>/dev/null)
NEW_ENOUGH = import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	"Python 3.11 or later is needed, this is " + sys.version.split()[0] + "; PYTHON=... takes another")
# The format that has a HEALTHCHECK; podman would choose another.
export BUILDAH_FORMAT = docker

.PHONY: help help-all install-training serve ray test test-cpu test-slow test-cuda check audit docs generate gpu fire bench attack lock image image-test

help: ## Show the targets that most people need.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | grep -E '^($(FIRST)):' | sed -E 's/:.*## /\t/' | expand -t 20

help-all: ## Show all targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

serve: $(VENV)/.serve site/index.html ## Serve the shipped bundles on http://HOST:PORT.
	CAPSNET_HOST=$(HOST) CAPSNET_PORT=$(PORT) exec $(BIN)/python -m service

install-training: $(VENV)/.dev ## Install what `python -m training` and development need.

ray: $(VENV)/.ray ## Serve with REPLICAS replicas on Ray Serve (ARGS="--model mnist ...").
	$(BIN)/python -m deploy.ray --host $(HOST) --port $(PORT) --replicas $(REPLICAS) $(ARGS)

# Five at once, also on two cores: tests wait for services, browsers and clocks half of the time.
# The first ones may wait for minutes until the bundles that all share are exported.
test: $(VENV)/.dev ## Run all tests; CAPSNET_DATA_DIR=... adds those that need data sets.
	$(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder --timeout 900 $(ARGS)

test-cpu: ## Run the service's tests where only the extra cpu and pytest are installed.
	@$(PYTHON) -m venv $(CPU_VENV) && $(CPU_VENV)/bin/python -m pip install --quiet \
		--constraint constraints.txt --editable ".[cpu]" httpx pytest pytest-timeout
	$(CPU_VENV)/bin/python -m pytest --timeout 300 tests/service tests/views/test_views.py $(ARGS)

test-slow: $(VENV)/.dev ## Run the tests that take minutes: training, faults, Ray, the whole test split over HTTP.
	$(BIN)/python -m pytest -m "slow or faults or ray or release" $(ARGS)

test-cuda: $(VENV)/.dev ## Run the tests that need a CUDA device; fails where there is none.
	$(BIN)/python -c "from model.runtime.cuda import CudaDevice, CudaOptions; CudaDevice(CudaOptions())"
	$(BIN)/python -m pytest -m cuda $(ARGS)

check: $(VENV)/.dev ## Lint, types and architecture.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: $(VENV)/.dev ## Write an image's pinned packages to sbom-TARGET.cdx.json, and look for known vulnerabilities.
	$(BIN)/cyclonedx-py requirements docker/requirements-$(TARGET).txt --pyproject pyproject.toml \
		--output-reproducible --output-file sbom-$(TARGET).cdx.json
	$(BIN)/pip-audit --disable-pip --no-deps --vulnerability-service osv --requirement constraints.txt

docs: $(VENV)/.dev ## Build the documentation in site/; broken links and missing pages fail.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

generate: $(VENV)/.dev ## Write what follows from the views: client, methods, examples, docs/reference.
	$(BIN)/python -m tools.client
	$(BIN)/python -m tools.examples
	$(BIN)/python -m tools.docs_reference docs/reference

gpu: $(VENV)/.dev ## Measure a GPU; tables and logs go to runs/gpu.
	sh tools/gpu.sh $(BIN)/python $(ARGS)

fire: $(VENV)/.dev ## Load, faults and malice, with figures; half an hour.
	$(BIN)/python -m tests.fire $(ARGS)

lock: $(VENV)/.dev ## Write the digests of what images install; after a change of constraints.txt.
	sh tools/lock.sh $(BIN)

image: ## Build IMAGE for TARGET (cpu or gpu) with docker or podman (ARGS="--network host ...").
	$(ENGINE) build --file docker/service.Dockerfile --target $(TARGET) --tag $(IMAGE) \
		--build-arg BASE=$(BASE) --label org.opencontainers.image.version=$(VERSION) \
		--label org.opencontainers.image.revision=$(REVISION) $(ARGS) .

image-test: $(VENV)/.dev ## Run the end-to-end tests against a container of IMAGE.
	$(BIN)/python -m pytest tests/e2e --engine $(ENGINE) --image $(IMAGE)

bench: $(VENV)/.dev ## Load this service and a plain FastAPI service in turn (ARGS="--model mnist-compact ...").
	$(BIN)/python -m benchmarks.load $(ARGS)

attack: $(VENV)/.dev ## Attack a service of its own, about twelve minutes (ARGS="--case long-heads --json out.json ...").
	$(BIN)/python -m tests.attack $(ARGS)

# The gpu extra where an NVIDIA driver new enough for CUDA 13 answers, the cpu extra elsewhere.
$(VENV)/.serve: pyproject.toml client/pyproject.toml constraints.txt tools/choose_extra.sh
	@$(BIN)/python -c '$(NEW_ENOUGH)' 2>/dev/null || { $(PYTHON) -c '$(NEW_ENOUGH)' && \
		$(PYTHON) -m venv --clear $(VENV); }
	@$(BIN)/python -m pip install --quiet --upgrade pip  # older ones need minutes to find packages
	@extra=$$(sh tools/choose_extra.sh) && \
		$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt --editable ".[$$extra]" \
		--editable ./client
	@touch $@

# The documentation that the page links to. The service starts without it, too.
site/index.html: mkdocs.yml $(wildcard *.md model/bundles/*/CARD.md) $(shell find docs -name '*.md') | $(VENV)/.serve
	-@$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt --editable ".[docs]" && \
		NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --no-strict

$(VENV)/.ray: $(VENV)/.serve
	$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt --editable ".[ray]"
	@touch $@

$(VENV)/.dev: $(VENV)/.serve
	$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@
