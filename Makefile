# Every target does its own set-up: a virtual environment in .venv, and for docs in build/docs, with what constraints.txt pins.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: eval test test-slow check coverage bench validity soak docs zoo zoo-check brought clean

eval: $(VENV)/.ready  ## the main job: LeNet-5 of every framework under the paper's attacks
	$(BIN)/python -m robustcmp.eval --model lenet5

test: $(VENV)/.ready
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

test-slow: $(VENV)/.ready  ## what takes long by its nature: processes that are killed, notebooks, long walks, whole tables
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m 'slow and not whole_zoo'

check: $(VENV)/.ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python tools/weigh.py
	$(BIN)/python tools/words.py
	$(BIN)/python -m pytest -q tests/test_imports.py tests/test_weigh.py

coverage: $(VENV)/.ready
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m 'not whole_zoo' --cov \
	  --cov-report=term-missing:skip-covered --cov-fail-under=95

bench: $(VENV)/.ready  ## how near the attacks are to the forward pass, and what other tools take; into benchmarks/results
	PYTHON311=$(abspath $(BIN)/python) benchmarks/rivals/environments.sh build/rivals
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/tables.py

validity: $(VENV)/.ready  ## what intervals cover and how often tests err, into docs/validity.md; then the tests of health checks
	$(BIN)/python validation/simulations.py
	$(BIN)/python -m pytest -v tests/test_checks.py

soak: $(VENV)/.ready  ## broken files, kills, flipped bits and full disks, into docs/reliability.md; SOAK=--quick takes minutes
	PYTHONPATH=validation $(BIN)/python -m soak $(SOAK)

docs: build/docs/.ready  ## the site, into site/; every warning, and every link or anchor that leads nowhere, is an error
	NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict

FRAMEWORKS := torch tensorflow jax
zoo: $(VENV)/.ready  ## train what ships of torch, tensorflow and jax again, into zoo/weights (six hours on two cores)
	for model in lenet1 lenet5; do \
	  $(BIN)/python -m robustcmp.train --model $$model --framework $(FRAMEWORKS) --dataset digits --training-seeds 0 1 2 3 4 5 6 7 8 9 \
	    --out build/zoo && \
	  $(BIN)/python -m robustcmp.train --model $$model --framework $(FRAMEWORKS) --dataset mnist --training-seeds 0 1 2 3 4 5 6 7 8 9 \
	    --out build/zoo || exit 1; \
	done
	$(BIN)/python -m robustcmp.train --model resnet20 --framework $(FRAMEWORKS) --out build/zoo
	$(BIN)/python tools/ship.py build/zoo/*.h5

zoo-check: $(VENV)/.ready  ## the accuracy of every model that ships, and ResNet-20 in Theano
	$(BIN)/python -m pytest -q -m whole_zoo tests/test_zoo.py tests/test_frameworks.py

brought: $(VENV)/.ready  ## try all that people bring, with the packages that are there, and write docs/what-you-can-bring.md
	rm -f tools/brought.json  # so that no line stays of a test that is gone
	$(BIN)/python -m pytest -q -m brought --brought tools/brought.json
	$(BIN)/python tools/brought.py

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage

$(VENV)/.ready: setup.cfg pyproject.toml constraints.txt
	@echo "Setting up $(VENV), once. Downloads about 1 GB, which takes some minutes."
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@for framework in torch tensorflow-cpu jax; do \
	  echo "  installing $$framework"; \
	  $(BIN)/python -m pip install --quiet --constraint constraints.txt $$framework || exit 1; \
	done
	@echo "  installing robustcmp and its tools"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch,tensorflow-cpu,jax,dev]'
	touch $@

build/docs/.ready: setup.cfg constraints.txt
	$(PYTHON) -m venv build/docs
	build/docs/bin/python -m pip install --quiet --upgrade pip
	build/docs/bin/python -m pip install --quiet --constraint constraints.txt '.[docs]'
	touch $@
