# make train   set everything up and train Pong in minutes (ARGS="seed=1" passes overrides, "experiment=ppo" too)
# make play    watch the newest run play (ARGS="run=outputs/2026-01-31/12-00-00 record=true")
# make bench   which of the speed-ups pays on this machine? (ARGS="suite=micro" measures the parts alone)
# make bench-compare  the working tree against a commit, part by part (BASE=HEAD ARGS="fail_below=0.9")
# make report  a page with the newest run or sweep (ARGS="outputs multirun watch=true")
# make gpu     check this machine's GPU in at most 12 minutes (ARGS="tests train"; INSTALL=no PYTHON=python3)
# make test    set everything up, then lint, type-check, hold imports to their contract and run all tests
# make quick   the same with the quick tests alone, a few minutes, for every change
# make integration  the tests that train until something is learnt, or go over many games
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=

.PHONY: help install train play bench bench-compare report ladder docs docs-serve gpu test quick integration lint format clean
.DEFAULT_GOAL := help
.NOTPARALLEL:  # two would install into one environment

help:
	@echo 'make train      set everything up and train Pong in minutes: experiment=speedrun (ARGS="seed=1" changes'
	@echo '                it, "env=breakout" plays another game; with another algo name experiment=baseline too;'
	@echo '                or resume=FOLDER)'
	@echo 'make play       watch the newest run play (ARGS="run=FOLDER record=true overlay=true")'
	@echo 'make bench      which of the speed-ups pays on this machine, and one line to paste: ten minutes'
	@echo '                (ARGS="suite=full env=breakout")'
	@echo 'make bench-compare  what became faster or slower since a commit (BASE=HEAD~1 ARGS="fail_below=0.9")'
	@echo 'make report     a page with the newest run or sweep (ARGS="FOLDER watch=true")'
	@echo 'make gpu        check this machine'"'"'s GPU in at most 12 minutes (ARGS="tests train emulator throughput";'
	@echo '                INSTALL=no PYTHON=python3 with the packages that are there)'
	@echo 'make test       set everything up, lint, type-check, run all tests'
	@echo 'make quick      the same with the quick tests alone: a few minutes'
	@echo 'make integration  the tests that train until something is learnt, or go over many games'
	@echo 'make install    the shared first step: $(VENV) with dqnspeed in it'
	@echo 'make ladder     every rung for 75 seconds, then the table (ARGS as above)'
	@echo 'make docs       the documentation as a site, in site/; make docs-serve shows it while it is written'
	@echo 'make lint       ruff, mypy and the contract of imports'
	@echo 'make format     ruff, mending what it can'

install: $(VENV)/.installed

PIP      := $(BIN)/python -m pip install --disable-pip-version-check
EMULATOR := -e ./packages/atari-warp  # in each pip command with an extra, so that pip needs no other source for it

# The Python of an environment, or that which is to make it.
FIT  := 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))'
ours  = if test -x $(1)/bin/python; then $(1)/bin/python -c $(FIT) || \
	  { echo 'dqnspeed needs Python 3.10 to 3.13, and $(1) has another: delete it, and name one with PYTHON=python3.x'; exit 1; }; \
	else $(PYTHON) -c $(FIT) || \
	  { echo 'dqnspeed needs Python 3.10 to 3.13; name one with PYTHON=python3.x'; exit 1; }; fi

$(VENV)/.installed: pyproject.toml packages/atari-warp/pyproject.toml constraints.txt
	@$(call ours,$(VENV))
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(PIP) -q 'pip>=21.3'
	$(PIP) -c constraints.txt $(EMULATOR) -e '.[emulator,live]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -c constraints.txt $(EMULATOR) -e '.[dev]'
	@touch $@

# Hydra takes flags before or after all overrides, and resume= no experiment, nor do sweeps that have their own.
NAMED  := $(foreach name,experiment= resume= sweep=ladder sweep=speedrun,$(findstring $(name),$(ARGS)))
RECIPE := $(if $(strip $(NAMED)),,experiment=speedrun)
train: install
	$(BIN)/python -m dqnspeed.train $(if $(filter -%,$(firstword $(ARGS))),$(ARGS) $(RECIPE),$(RECIPE) $(ARGS))

$(VENV)/.installed-play: $(VENV)/.installed
	$(PIP) -c constraints.txt $(EMULATOR) -e '.[play]'
	@touch $@

play: $(VENV)/.installed-play
	$(BIN)/python -m dqnspeed.play $(ARGS)

$(VENV)/.installed-bench: $(VENV)/.installed
	$(PIP) -c constraints.txt $(EMULATOR) -e '.[bench]'
	@touch $@

bench: $(VENV)/.installed-bench
	$(BIN)/python -m dqnspeed.bench $(ARGS)

BASE ?= HEAD
bench-compare: $(VENV)/.installed-bench
	$(BIN)/python tools/compare_commits.py base='$(BASE)' $(ARGS)

$(VENV)/.installed-report: $(VENV)/.installed
	$(PIP) -c constraints.txt $(EMULATOR) -e '.[report]'
	@touch $@

report: $(VENV)/.installed-report
	$(BIN)/python -m dqnspeed.report $(ARGS)

SWEEP := multirun/$(shell date +%Y-%m-%d/%H-%M-%S)
ladder: $(VENV)/.installed-report
	$(BIN)/python -m dqnspeed.train sweep=ladder tracking=local $(ARGS) hydra.sweep.dir=$(SWEEP)
	$(BIN)/python -m dqnspeed.report $(SWEEP)

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) -c constraints.txt $(EMULATOR) -e '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs
	$(BIN)/python -m mkdocs build --strict

docs-serve: $(VENV)/.installed-docs
	$(BIN)/python -m mkdocs serve

# On Linux the torch of PyPI is a CUDA build; constraints.txt pins the one that the tests on CPUs ran with.
GPU_VENV ?= .venv-gpu
INSTALL  ?= yes
CUDA_HERE := { command -v nvidia-smi || test -e /dev/nvidiactl || test -e /dev/dxg; } >/dev/null 2>&1

$(GPU_VENV)/.installed: pyproject.toml packages/atari-warp/pyproject.toml constraints.txt
	@$(CUDA_HERE) || { echo 'dqnspeed: make gpu needs a CUDA device, and this machine has no NVIDIA driver.' >&2; exit 2; }
	@$(call ours,$(GPU_VENV))
	@$(GPU_VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(GPU_VENV)
	grep -v '^torch==' constraints.txt > $(GPU_VENV)/constraints.txt
	$(GPU_VENV)/bin/python -m pip install --disable-pip-version-check -c $(GPU_VENV)/constraints.txt \
	  $(EMULATOR) -e '.[emulator]' hypothesis pytest pytest-timeout pytest-xdist
	@touch $@

ifeq ($(INSTALL),no)
gpu:
	PYTHONPATH=.:packages/atari-warp$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) tools/gpu_check.py $(ARGS)
else
gpu: $(GPU_VENV)/.installed
	$(GPU_VENV)/bin/python tools/gpu_check.py $(ARGS)
endif

# One worker more than cores, as many tests wait for processes of theirs.
WORKERS = $(shell $(PYTHON) -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: lint
	$(PYTEST) -m 'not integration'

quick: lint
	$(PYTEST) -m 'not slow and not integration'

integration: $(VENV)/.installed-dev
	$(PYTEST) -m integration --timeout 900

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(GPU_VENV) site
