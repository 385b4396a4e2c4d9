# make install | demo | test | test-systems | test-nightly | test-docs | test-browser | test-trackers | test-classic | check | docs | lock | bench[-NAME] | attack | proof[-NAME] | mini   (each sets up .venv first, once)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIGHT := $(VENV)/.installed-demo
DANSEO := $(BIN)/danseo
EXTRAS := train ko sweep onnx serve board llm spacy gliner dev
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: install demo test test-systems test-nightly test-docs test-browser test-trackers test-classic check docs format lock bench bench-scoring bench-training bench-probing bench-pretraining bench-tagger bench-using bench-pages bench-growth attack proof proof-tasks \
	proof-masked proof-sweeps proof-llm proof-ner proof-own proof-re mini clean

install: $(STAMP)

# Every package comes from a lock file, with its version and hash, and is built with tools from one. torch comes last: its file depends on the machine.
INSTALL := $(BIN)/pip install -qq
LOCKED := $(INSTALL) --no-deps --no-build-isolation --require-hashes
define install_locked
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(LOCKED) -r locks/build.txt
	@$(LOCKED) -r $(1)
	@$(INSTALL) -r locks/torch.txt
	@$(INSTALL) --no-deps --no-build-isolation --editable .
endef

# Rebuilt only when the requirements change.
$(STAMP): pyproject.toml locks/build.txt locks/install.txt locks/torch.txt
	@echo "installing danseo into $(VENV) (the first time takes a few minutes)"
	$(call install_locked,locks/install.txt)
	@$(BIN)/pip check
	@$(BIN)/python -c "import danseo, torch, transformers, pytest, mypy"
	@touch $(STAMP)

# Only what the demo needs, where nothing is installed yet.
$(LIGHT): pyproject.toml locks/build.txt locks/demo.txt locks/torch.txt
	@echo "installing danseo into $(VENV) (the first time takes a minute or two)"
	$(call install_locked,locks/demo.txt)
	@touch $(LIGHT)

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(LIGHT))
	@$(DANSEO) demo

test: $(STAMP)
	@$(BIN)/python -m pytest -m "not lengthy"

# What takes its time: spaCy, GLiNER, the contract that every family keeps; several processes, kills, Ray, whole searches.
test-systems: $(STAMP)
	@$(BIN)/python -m pytest -m "lengthy and not nightly"

# The longest ones: attacks in small, sharded language models, several processes with language models.
test-nightly: $(STAMP)
	@$(BIN)/python -m pytest -m nightly

# The code blocks of all documentation pages; some train models.
test-docs: $(STAMP)
	@DANSEO_ALL_PAGES=1 $(BIN)/python -m pytest tests/test_docs_commands.py

# The pages in Debian's chromium, or another one, through playwright.
test-browser: $(STAMP)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		{ echo "test-browser needs chromium; on Debian: apt-get install chromium"; exit 1; }
	@$(LOCKED) -r locks/browser.txt
	@$(LICENSES) locks/browser.txt
	@DANSEO_BROWSER=1 $(BIN)/python -m pytest -n 0 tests/browser

# Runs told to MLflow, Weights & Biases and trackio, whose packages no other target needs.
test-trackers: $(STAMP)
	@$(LOCKED) -r locks/trackers.txt
	@$(LICENSES) locks/trackers.txt
	@$(BIN)/python -m pytest -n 0 tests/export/test_trackers.py tests/export/test_live_tracker.py

# The worker of classic GLiNER checkpoints against the real package, which wants an environment of its own.
CLASSIC := .venv-classic
test-classic: $(STAMP)
	@test -x $(CLASSIC)/bin/python || $(PYTHON) -m venv $(CLASSIC)
	@$(CLASSIC)/bin/pip install -qq --no-deps --require-hashes -r locks/classic.txt
	@$(CLASSIC)/bin/pip install -qq -r locks/torch.txt
	@$(CLASSIC)/bin/python tools/check_licenses.py locks/classic.txt locks/torch.txt
	@DANSEO_SPAN_PYTHON=$(CLASSIC)/bin/python $(BIN)/python -m pytest -n 0 tests/systems/test_classic.py

# Format, lint, types, imports, and the licences of all packages that are installed.
LICENSES = $(BIN)/python tools/check_licenses.py
check: $(STAMP)
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache && \
		$(LICENSES) locks/build.txt locks/install.txt locks/torch.txt

# The documentation site, in site/; pages with broken links fail. Its packages have an environment of their own.
SITE := .venv-docs
$(SITE)/.installed: locks/docs.txt
	@test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/pip install -qq --no-deps --require-hashes -r locks/docs.txt
	@$(SITE)/bin/python tools/check_licenses.py locks/docs.txt
	@touch $@

docs: $(SITE)/.installed
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --strict --clean
	@$(PYTHON) tools/check_site.py site

format: $(STAMP)
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

# The lock files again, from pyproject.toml: all extras together first, so that one version of a package serves all targets.
# Versions stay where they can; newer ones: make lock UPGRADE=--upgrade
LOCKER := .venv-lock
COMPILE = $(LOCKER)/bin/uv pip compile -q --constraint locks/torch.txt
PART = $(COMPILE) --constraint $(LOCKER)/all.txt
UPGRADE ?=
lock:
	@test -x $(LOCKER)/bin/python || $(PYTHON) -m venv $(LOCKER)
	@$(LOCKER)/bin/pip install -qq --require-hashes -r locks/uv.txt
	@cat locks/build.txt locks/install.txt locks/trackers.txt locks/browser.txt > $(LOCKER)/all.txt
	@$(COMPILE) $(UPGRADE) pyproject.toml --all-extras --group build --group browser -o $(LOCKER)/all.txt
	@$(PART) --group build -o locks/build.txt
	@$(PART) pyproject.toml $(EXTRAS:%=--extra %) -o locks/install.txt
	@$(PART) pyproject.toml --extra train -o locks/demo.txt
	@$(PART) pyproject.toml --extra mlflow --extra wandb --extra trackio -o locks/trackers.txt
	@$(PART) --group browser -o locks/browser.txt
	@$(COMPILE) $(UPGRADE) --group classic -o locks/classic.txt
	@$(COMPILE) $(UPGRADE) --group docs -o locks/docs.txt
	@$(COMPILE) $(UPGRADE) --group lock -o locks/uv.txt

# Speed and memory against the usual ways, on the real data; each also alone. A quarter of an hour for all of it.
BENCHES := scoring training probing pretraining tagger
ALONE := using pages growth  # each alone, as they take their own time
bench: $(STAMP)
	@failed=0; for name in $(BENCHES); do $(BIN)/python bench/run.py $$name || failed=1; done; exit $$failed

$(BENCHES:%=bench-%) $(ALONE:%=bench-%): bench-%: $(STAMP)
	@$(BIN)/python bench/run.py $*

# Kills, damaged inputs, full disks, a hostile Hub, a dying node: a quarter of an hour at most, and a table of what held.
# Parts of it: make attack PARTS='fuzz hub' SIZE=0.1
PARTS ?=
SIZE ?= 1.0
attack: $(STAMP)
	@$(BIN)/python bench/attack.py $(PARTS) --size $(SIZE)

# What the product does on the real data, for docs/results.md; each also alone. Slow: hours for all of it.
PROOFS := proof proof_masked proof_sweeps proof_own
proof: $(STAMP)
	@for name in $(PROOFS); do $(BIN)/python bench/$$name.py || exit 1; done

proof-tasks: $(STAMP)
	@$(BIN)/python bench/proof.py

proof-masked proof-sweeps proof-llm proof-ner proof-own: proof-%: $(STAMP)
	@$(BIN)/python bench/proof_$*.py

# Baselines alone, or with an encoder the whole study: make proof-re MODEL=FOLDER MINUTES=90
MODEL ?=
MINUTES ?= 90
proof-re: $(STAMP)
	@$(BIN)/python bench/proof_re.py --minutes $(MINUTES) $(if $(MODEL),--model $(MODEL))

# The bundled model, pre-trained from nothing: half a day on one core. The same command goes on after a kill.
MINI_TEXT ?= ../shared/data/text/kowiki
MINI_OUT ?= $(HOME)/.cache/danseo/mini
THREADS ?= 1
mini: $(STAMP)
	@nice -n 19 $(DANSEO) pretrain --config configs/pretrain/mini.toml --text $(MINI_TEXT) --out $(MINI_OUT) \
		--set num_threads=$(THREADS)

clean:
	rm -rf $(VENV) $(SITE) build dist site
