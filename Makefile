# make install | demo | test | check | bench | bench-training | proof   (each sets up .venv first, once)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DANSEO := $(BIN)/danseo
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: install demo test check format bench bench-training proof clean

install: $(STAMP)

# Rebuilt only when the requirements change. torch comes first and alone, so that its pinned build is the one kept.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing danseo into $(VENV) (the first time takes a few minutes)"
	@$(BIN)/pip install -qq --constraint constraints.txt torch
	@$(BIN)/pip install -qq --constraint constraints.txt --editable '.[train,ko,sweep,dev]'
	@$(BIN)/python -c "import danseo, torch, transformers, pytest, mypy"
	@touch $(STAMP)

demo: $(STAMP)
	@$(DANSEO) demo

test: $(STAMP)
	@$(BIN)/python -m pytest

check: $(STAMP)
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet . && $(BIN)/mypy

format: $(STAMP)
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

bench: $(STAMP)
	@$(BIN)/python bench/scoring.py

# Slow, about 15 minutes: fine-tuning speed against the usual ways.
bench-training: $(STAMP)
	@$(BIN)/python bench/training.py

# Slow: fine-tunes a small encoder on the real data of all eight tasks, and prints one table.
proof: $(STAMP)
	@$(BIN)/python bench/proof.py

clean:
	rm -rf $(VENV) build dist
