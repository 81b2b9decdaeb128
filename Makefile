# make train   set everything up and train Pong (ARGS="num_envs=3 seed=1" passes overrides)
# make play    play a trained agent (ARGS="run=outputs/2026-01-31/12-00-00 record=true")
# make test    set everything up, then lint, type-check and run all tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=

.PHONY: help install train play ladder test lint format clean
.DEFAULT_GOAL := help

help:
	@echo 'make train      set everything up and train Pong (ARGS="num_envs=3" passes overrides)'
	@echo 'make play       play a trained agent (ARGS="run=FOLDER record=true overlay=true")'
	@echo 'make test       set everything up, lint, type-check, run all tests'
	@echo 'make install    the shared first step: $(VENV) with dqnspeed in it'
	@echo 'make ladder     every rung for 75 seconds, then the table (ARGS as above)'
	@echo 'make lint       ruff and mypy        make format   ruff, mending what it can'

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo 'dqnspeed needs Python 3.10 or newer; name one with PYTHON=python3.x'; exit 1; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

train: install
	$(BIN)/python -m dqnspeed.train $(ARGS)

$(VENV)/.installed-play: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[play]'
	@touch $@

play: $(VENV)/.installed-play
	$(BIN)/python -m dqnspeed.play $(ARGS)

LADDER := baseline,no_torch_no_grad,n_envs,process,tweaked_n_envs,tweaked_process,chapter6_dqn
ladder: install
	$(BIN)/python -m dqnspeed.train -m experiment=$(LADDER) stop.max_minutes=1.25 tracking=local \
	  $(ARGS)
	$(BIN)/python -m dqnspeed.report $$(ls -td multirun/*/*/ | head -n 1)

test: lint
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV)
