# Every command of the project. README.md describes their output.
PYTHON := .venv/bin/python
ENVIRONMENT := .venv/installed-$(shell cat requirements/desk.txt .python-version pyproject.toml | sha256sum | cut -c1-16)

# The environment is installed without bytecode, which saves 40 s. Each module must keep its own at its first import.
unexport PYTHONDONTWRITEBYTECODE

RESOLVE := uv pip compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.13

.PHONY: help up down train preview test test-all fuzz faults bench docs pictures lint format programs environment audit lock

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile | expand -t 18

up: $(ENVIRONMENT) ## run everything on this machine: plan, admit, and train on two simulated TPU slices
	@MULTISLICE_MAKE=local $(PYTHON) -m cli.main up --stack local --sandbox $(ARGS)

down: $(ENVIRONMENT) ## destroy what `make up` created, except the checkpoint bucket
	@MULTISLICE_MAKE=local $(PYTHON) -m cli.main down --stack local --sandbox $(ARGS)

train: $(ENVIRONMENT) ## run the same trainer in four processes, without a cluster and without Go
	@$(PYTHON) -m cli.train $(ARGS)

preview: $(ENVIRONMENT) programs ## show settings, rules, price and queue of a plan: make preview STACK=dev
	@$(PYTHON) -m cli.main preview -s $(STACK) $(ARGS)

test: $(ENVIRONMENT) $(if $(ARGS),programs) ## run lint, types, import contracts and quick tests
	@$(PYTHON) -m $(if $(ARGS),pytest $(ARGS),tests)

test-all: $(ENVIRONMENT) ## run all of that and every other test except `make faults`
	@$(PYTHON) -m tests --all $(ARGS)

fuzz: $(ENVIRONMENT) ## fuzz all file readers with twenty times as many damaged files
	@$(PYTHON) -m pytest tests/fuzz --hypothesis-profile fuzz --timeout 1800 $(ARGS)

faults: $(ENVIRONMENT) programs ## inject every fault of the catalogue into jobs, or those that ARGS="-k NAME" selects
	@$(PYTHON) -m tests.faults $(ARGS)

bench: $(ENVIRONMENT) programs ## run the benchmarks of docs/explanation/benchmarks.md
	@$(PYTHON) -m benchmarks.cpu_step && $(PYTHON) -m benchmarks.cpu_start && $(PYTHON) -m benchmarks.checkpoints && $(PYTHON) -m benchmarks.previews && $(PYTHON) -m benchmarks.compiled_steps

docs: $(ENVIRONMENT) ## build the documentation in the folder site; broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet && echo "open site/index.html"

pictures: $(ENVIRONMENT) $(if $(ARGS),programs) ## draw the pictures of the documentation; ARGS=--record records a real `make up` first
	@$(PYTHON) -m tests.documents.pictures $(ARGS)

lint: $(ENVIRONMENT) ## check formatting, lint rules, strict types and import contracts
	@.venv/bin/ruff format --check --quiet . && .venv/bin/ruff check --quiet . && $(PYTHON) -m tests.words && .venv/bin/pyright && .venv/bin/lint-imports

format: $(ENVIRONMENT) ## format the sources and fix lint errors
	@.venv/bin/ruff format --quiet . && .venv/bin/ruff check --fix --quiet .

programs: $(ENVIRONMENT) ## find or build the Go programs of the sandbox
	@$(PYTHON) -m cli.programs

environment: $(ENVIRONMENT) ## create the Python environment in .venv

audit: $(ENVIRONMENT) ## list known vulnerabilities of the locked packages (asks PyPI)
	@.venv/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/desk.txt && .venv/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/image.txt

lock: ## resolve requirements/*.txt again from requirements/*.in (needs uv)
	@$(RESOLVE) $(addprefix requirements/,base.in gs.in functions.in stack.in trainer.in development.in) -o requirements/desk.txt
	@$(RESOLVE) requirements/trainer.in -o requirements/image.txt

$(ENVIRONMENT): requirements/desk.txt
	@python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' || { echo "needs Python 3.13 as python3, got $$(python3 --version 2>&1); install it, for example with 'pyenv install 3.13'"; exit 1; }
	@echo "installing the Python environment (about a minute) ..."
	@python3 -m venv .venv && .venv/bin/pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/desk.txt && PYTHONWARNINGS=ignore .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --editable .
	@rm -f .venv/installed-* && touch $@
