# make install | demo | test | test-systems | test-browser | test-trackers | test-classic | check | bench[-NAME] | attack | proof[-NAME] | mini   (each sets up .venv first, once)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIGHT := $(VENV)/.installed-demo
DANSEO := $(BIN)/danseo
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: install demo test test-systems test-browser test-trackers test-classic check format bench bench-scoring bench-training bench-probing bench-pretraining bench-tagger bench-using bench-pages attack proof proof-tasks \
	proof-masked proof-sweeps proof-llm proof-ner proof-own proof-re mini clean

install: $(STAMP)

# Rebuilt only when the requirements change. torch comes first and alone, so that its pinned build is the one kept.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing danseo into $(VENV) (the first time takes a few minutes)"
	@$(BIN)/pip install -qq --constraint constraints.txt torch
	@$(BIN)/pip install -qq --constraint constraints.txt --editable '.[train,ko,sweep,onnx,serve,board,llm,spacy,gliner,dev]'
	@$(BIN)/python -c "import danseo, torch, transformers, pytest, mypy"
	@touch $(STAMP)

# Only what the demo needs, where nothing is installed yet.
$(LIGHT): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing danseo into $(VENV) (the first time takes a minute or two)"
	@$(BIN)/pip install -qq --constraint constraints.txt torch
	@$(BIN)/pip install -qq --constraint constraints.txt --editable '.[train]'
	@touch $(LIGHT)

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(LIGHT))
	@$(DANSEO) demo

test: $(STAMP)
	@$(BIN)/python -m pytest -m "not lengthy"

# What takes its time: spaCy, GLiNER, the contract that every family keeps; several processes, kills, Ray, whole searches.
test-systems: $(STAMP)
	@$(BIN)/python -m pytest -m lengthy

# The pages in Debian's chromium, or another one, through playwright.
test-browser: $(STAMP)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		{ echo "test-browser needs chromium; on Debian: apt-get install chromium"; exit 1; }
	@$(BIN)/python -c "import playwright" 2>/dev/null || $(BIN)/pip install -qq --constraint constraints.txt playwright
	@DANSEO_BROWSER=1 $(BIN)/python -m pytest -n 0 tests/browser

# Runs told to MLflow, Weights & Biases and trackio, whose packages no other target needs.
test-trackers: $(STAMP)
	@$(BIN)/pip install -qq --constraint constraints.txt --editable '.[mlflow,wandb,trackio]'
	@$(BIN)/python -m pytest -n 0 tests/exports/test_trackers.py

# The worker of classic GLiNER checkpoints against the real package, which wants an environment of its own.
CLASSIC := .venv-classic
test-classic: $(STAMP)
	@test -x $(CLASSIC)/bin/python || $(PYTHON) -m venv $(CLASSIC)
	@$(CLASSIC)/bin/pip install -qq torch==$$($(BIN)/python -c "import torch; print(torch.__version__.split('+')[0])")
	@$(CLASSIC)/bin/pip install -qq 'gliner>=0.2.20' 'transformers>=4.51,<5.17'
	@DANSEO_SPAN_PYTHON=$(CLASSIC)/bin/python $(BIN)/python -m pytest -n 0 tests/systems/test_classic.py

check: $(STAMP)
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache

format: $(STAMP)
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

# Speed and memory against the usual ways, on the real data; each also alone. A quarter of an hour for all of it.
BENCHES := scoring training probing pretraining tagger
ALONE := using pages  # each alone, as they take their own time
bench: $(STAMP)
	@failed=0; for name in $(BENCHES); do $(BIN)/python bench/$$name.py || failed=1; done; exit $$failed

$(BENCHES:%=bench-%) $(ALONE:%=bench-%): bench-%: $(STAMP)
	@$(BIN)/python bench/$*.py

# Kills, damaged inputs, full disks, a hostile Hub, a dying node: a quarter of an hour at most, and a table of what held.
# Parts of it: make attack PARTS='fuzz hub' SIZE=0.1
PARTS ?=
SIZE ?= 1.0
attack: $(STAMP)
	@$(BIN)/python bench/attack.py $(PARTS) --size $(SIZE)

# What the product does on the real data, for docs/findings.md; each also alone. Slow: hours for all of it.
PROOFS := proof proof_masked proof_sweeps proof_own
proof: $(STAMP)
	@for name in $(PROOFS); do $(BIN)/python bench/$$name.py || exit 1; done

proof-tasks: $(STAMP)
	@$(BIN)/python bench/proof.py

proof-masked proof-sweeps proof-llm proof-ner proof-own: proof-%: $(STAMP)
	@$(BIN)/python bench/proof_$*.py

# Floors alone, or with an encoder the whole study: make proof-re MODEL=FOLDER MINUTES=90
MODEL ?=
MINUTES ?= 90
proof-re: $(STAMP)
	@$(BIN)/python bench/proof_re.py --minutes $(MINUTES) $(if $(MODEL),--model $(MODEL))

# The encoder in the box, pre-trained from nothing: half a day on one core. The same command goes on after a kill.
MINI_TEXT ?= ../shared/data/text/kowiki
MINI_OUT ?= $(HOME)/.cache/danseo/mini
THREADS ?= 1
mini: $(STAMP)
	@nice -n 19 $(DANSEO) pretrain --config configs/pretrain/mini.toml --text $(MINI_TEXT) --out $(MINI_OUT) \
		--set threads=$(THREADS)

clean:
	rm -rf $(VENV) build dist
