# SPDX-License-Identifier: Apache-2.0
#
# `make test` and `make demo` need nothing but Python 3.11 to 3.13, a C++20 compiler and make: they
# set up .venv themselves. `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
CXX ?= g++
JOBS ?= 2
TARGET ?=
SIDECAR ?=
ARGS ?=

# Without a GPU, PyPI's torch for Linux would bring gigabytes of CUDA libraries along. The CPU build
# of TORCH comes from PyTorch's own index (or from a folder that pip's find-links names); where that
# cannot be reached within seconds, plain PyPI is taken. With a GPU, PyPI's build is the right one.
TORCH ?= torch==2.13.0
TORCH_CPU ?= --no-deps --timeout 5 --retries 1 --index-url https://download.pytorch.org/whl/cpu

export OOOSPEC_WERROR = $(WERROR)  # 1: warnings are errors

BIN = $(VENV)/bin
READY = $(VENV)/ready
PIP = $(BIN)/pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup build test demo cpp-test cpp-passed py-test check format wheel bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
	@echo "variables: PYTHON, VENV, CXX, JOBS, TORCH; demo: TARGET, SIDECAR (model folders or hub ids), ARGS"
	@echo "tests on real models run where OOOSPEC_CHECKPOINTS (a folder with model folders) and"
	@echo "OOOSPEC_DATA (a folder with request files, *.jsonl or *.jsonl.gz) are set"

setup: $(READY)  ## make .venv: torch (CPU build without a GPU), tools, ooospec in editable mode

$(READY): pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit( \
	  "ooospec needs Python 3.11 to 3.13, got %d.%d; run make PYTHON=python3.12" % v)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) 'setuptools>=77' 'pybind11>=2.13' 'ninja>=1.11'
	@$(BIN)/python -c 'import torch' 2>/dev/null || { echo "installing $(TORCH)"; \
	  { ! command -v nvidia-smi >/dev/null && $(PIP) $(TORCH_CPU) $(TORCH) 2>/dev/null; } || $(PIP) $(TORCH); }
	@echo "compiling ooospec and installing its tools: takes minutes"
	@$(PIP) --no-build-isolation --editable '.[test,dev]'
	@touch $@

build: $(READY)  ## compile the C++ core in place (only what changed)
	@$(BIN)/python setup.py -q build_ext --inplace

test: cpp-test py-test  ## set-up, build, C++ tests, Python tests

py-test: build
	@$(BIN)/pytest -n $(JOBS) --dist worksteal $(ARGS)

demo: build  ## a request answered live: make demo TARGET=... SIDECAR=...
	@$(BIN)/ooospec demo $(if $(TARGET),--target $(TARGET)) $(if $(SIDECAR),--sidecar $(SIDECAR)) $(ARGS)

# A wheel runs with the glibc it was linked against and newer. Zig's compiler links against any, and
# libc++ statically: the wheel then runs wherever torch does.
GLIBC ?= 2.28
wheel: $(READY)  ## dist/*.whl for glibc 2.28 (GLIBC=...) or newer, and dist/*.tar.gz
	@$(PIP) ziglang && rm -rf dist
	CXX="$(abspath $(BIN))/python -m ziglang c++ -target $(shell uname -m)-linux-gnu.$(GLIBC)" \
	  $(BIN)/python -m build --outdir dist .
	@$(BIN)/auditwheel show dist/*.whl && ls -l dist

SMALL = $(OOOSPEC_CHECKPOINTS)/qwen2.5-coder-0.5b
bench: build  ## the benchmarks, small enough to see that they run; those on models where they are
	$(BIN)/python bench/bench_hint_ring.py --smoke
	$(BIN)/python bench/bench_peers.py --smoke
	$(BIN)/python bench/bench_linear.py --smoke
	$(BIN)/python bench/bench_round.py --smoke
	$(BIN)/python bench/bench_wave.py --smoke
	$(BIN)/python bench/bench_colocation.py --smoke
	$(BIN)/python bench/bench_tree_attention.py --smoke
	$(BIN)/python bench/bench_kv_compact.py --smoke
	$(BIN)/python bench/bench_tiny.py --smoke
	$(BIN)/ooospec bench --smoke --out $$(mktemp -d)
ifneq ($(OOOSPEC_CHECKPOINTS),)
	$(BIN)/python bench/bench_host.py --smoke --tokenizer $(SMALL) --data $(OOOSPEC_DATA)
	$(BIN)/python bench/bench_gap.py --smoke --tokenizer $(SMALL) --data $(OOOSPEC_DATA)
	$(BIN)/python bench/bench_retokenise.py --smoke --tokenizer qwen=$(SMALL) --data $(OOOSPEC_DATA)
	$(BIN)/python bench/bench_span.py --smoke --tokenizer $(SMALL) --data $(OOOSPEC_DATA)
	$(BIN)/python bench/bench_survival.py --smoke --tokenizer $(SMALL) --data $(OOOSPEC_DATA)
	$(BIN)/python bench/bench_train.py --smoke --data $(OOOSPEC_DATA)
	$(BIN)/python bench/bench_serve.py --smoke --data $(OOOSPEC_DATA) --max-tokens 4
	$(BIN)/python bench/bench_methods.py --mode rounds --smoke --data $(OOOSPEC_DATA)
	$(BIN)/python bench/bench_split.py --smoke --data $(OOOSPEC_DATA)
	$(BIN)/python bench/bench_cells.py --smoke --table other --data $(OOOSPEC_DATA)
	$(BIN)/python bench/bench_ablations.py --smoke --data $(OOOSPEC_DATA)
	$(BIN)/python bench/bench_methods.py --mode time --smoke --max-tokens 24 --data $(OOOSPEC_DATA)
endif

# --- checks ---------------------------------------------------------------------------------------

CPP_FILES = $(shell find csrc tests bench examples -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh')

check: WERROR = 1
check: build  ## formatting, lint, types, and a compile without warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run -Werror $(CPP_FILES) && echo 'clang-format: all well'
	$(BIN)/mypy

format: $(READY)  ## bring all files into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP_FILES)

# --- C++ tests ------------------------------------------------------------------------------------
# Every tests/cpp/*_test.cc is a program, run under ASan and UBSan; those that start threads run
# under TSan too. Objects are kept under build/cpp, so that only what changed is compiled.

CORE_FILES := $(wildcard $(patsubst %,csrc/%/*.cc,common ring tree call index draft wave))
CPP_TESTS := $(wildcard tests/cpp/*_test.cc)
TSAN_TESTS := $(shell grep -ls '^#include <thread>' $(CPP_TESTS) /dev/null)

CPP_FLAGS = -std=c++20 -O1 -g -Wall -Wextra -Werror -Icsrc -Itests -MMD -MP -fno-omit-frame-pointer
asan_FLAGS = -fsanitize=address,undefined -fno-sanitize-recover=all
tsan_FLAGS = -fsanitize=thread

# The runtime of TSan cannot map its shadow memory where the kernel randomises addresses widely.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)
asan_RUN = UBSAN_OPTIONS=print_stacktrace=1
tsan_RUN = TSAN_OPTIONS=halt_on_error=1 $(FIXED_ADDRESSES)

define SANITIZED
build/cpp/$(1)/%.o: %.cc
	@mkdir -p $$(@D) && $$(CXX) $$(CPP_FLAGS) $$($(1)_FLAGS) -c $$< -o $$@
build/cpp/$(1)/core.a: $$(CORE_FILES:%.cc=build/cpp/$(1)/%.o)
	@rm -f $$@ && ar rcs $$@ $$^
build/cpp/$(1)/%_test: build/cpp/$(1)/tests/cpp/%_test.o build/cpp/$(1)/core.a
	@$$(CXX) $$($(1)_FLAGS) $$^ -o $$@
build/cpp/$(1)/%_test.passed: build/cpp/$(1)/%_test
	@$$($(1)_RUN) $$< > $$@.log 2>&1 || { cat $$@.log; exit 1; }
	@cat $$@.log && mv $$@.log $$@
-include $$(wildcard build/cpp/$(1)/*/*/*.d)
endef
$(eval $(call SANITIZED,asan))
$(eval $(call SANITIZED,tsan))
.SECONDARY:

CPP_PASSED = $(patsubst tests/cpp/%.cc,build/cpp/asan/%.passed,$(CPP_TESTS)) \
	$(patsubst tests/cpp/%.cc,build/cpp/tsan/%.passed,$(TSAN_TESTS))

cpp-test:  ## the C++ tests under ASan+UBSan, those with threads also under TSan
	@$(MAKE) --no-print-directory -j$(JOBS) cpp-passed
	@echo "C++: $(words $(CPP_TESTS)) programs passed under ASan+UBSan, $(words $(TSAN_TESTS)) under TSan"

cpp-passed: $(CPP_PASSED)

clean:  ## remove what was built; .venv stays
	rm -rf build dist python/ooospec/*.so python/*.egg-info
