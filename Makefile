# Every command of the project; each is one line of what it runs. README.md says what they print.
PYTHON := .venv/bin/python
ENVIRONMENT := .venv/installed-$(shell cat requirements/desk.txt .python-version | sha256sum | cut -c1-16)

.PHONY: up down train preview test test-all fuzz chaos bench docs lint format programs environment licences sbom audit lock lock-plugins

up: $(ENVIRONMENT) ## the whole chain on this machine: plan, admit, train on two simulated TPU slices
	@$(PYTHON) -m cli.up $(ARGS)

down: $(ENVIRONMENT) ## destroy what `make up` made; the checkpoint bucket stays
	@$(PYTHON) -m cli.down $(ARGS)

train: $(ENVIRONMENT) ## the same trainer in four processes, with no cluster and no Go
	@$(PYTHON) -m cli.train $(ARGS)

preview: $(ENVIRONMENT) programs ## settings, rules, price and queue of a plan: make preview STACK=dev
	@$(PYTHON) -m cli.multislice preview -s $(STACK) $(ARGS)

test: $(ENVIRONMENT) $(if $(ARGS),programs) ## lint, types, import contracts, and tests with the whole chain once: at most 12 minutes
	@$(PYTHON) -m $(if $(ARGS),pytest $(ARGS),tests)

test-all: $(ENVIRONMENT) ## all of that and every other test: at most 45 minutes
	@$(PYTHON) -m tests --all $(ARGS)

fuzz: $(ENVIRONMENT) ## all that is read from files, with twenty times as many damaged ones
	@$(PYTHON) -m pytest tests/fuzz --hypothesis-profile fuzz --timeout 1800 $(ARGS)

chaos: $(ENVIRONMENT) programs ## strike jobs with every fault of the catalogue, or with those that ARGS names
	@$(PYTHON) -m chaos $(ARGS)

bench: $(ENVIRONMENT) programs ## what docs/benchmarks.md records; peers run where ARGS names their Python
	@$(PYTHON) -m benchmarks.cpu_step $(ARGS) && $(PYTHON) -m benchmarks.cpu_start $(ARGS) && $(PYTHON) -m benchmarks.checkpoints && $(PYTHON) -m benchmarks.previews && $(PYTHON) -m benchmarks.compiled_steps && $(PYTHON) -m benchmarks.read_ahead

docs: $(ENVIRONMENT) ## these pages as a site in the folder site; a link that leads nowhere fails
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet && echo "open site/index.html"

lint: $(ENVIRONMENT) ## formatting, lint rules, strict types, import contracts
	@.venv/bin/ruff format --check --quiet . && .venv/bin/ruff check --quiet . && $(PYTHON) -m tests.words && .venv/bin/pyright && .venv/bin/lint-imports

format: $(ENVIRONMENT) ## rewrite the sources as lint wants them
	@.venv/bin/ruff format --quiet . && .venv/bin/ruff check --fix --quiet .

programs: $(ENVIRONMENT) ## find or build the Go programs that the sandbox runs
	@$(PYTHON) -m cli.programs

environment: $(ENVIRONMENT) ## the Python environment alone, in .venv

licences: $(ENVIRONMENT) ## hold the licence of every package of the image against requirements/licences.yaml
	@$(PYTHON) -m cli.ci licences

sbom: $(ENVIRONMENT) ## write image.cdx.json, the bill of materials of the image's Python packages
	@$(PYTHON) -m cli.ci sbom > image.cdx.json

audit: $(ENVIRONMENT) ## known vulnerabilities of the locked packages; asks PyPI
	@.venv/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/desk.txt && .venv/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/image.txt

lock: ## resolve requirements/*.txt anew from pyproject.toml (needs uv)
	@uv pip compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.13 --extra infra --extra workloads --extra keras --extra tpu --extra policy --extra sandbox --extra cli --extra dev pyproject.toml -o requirements/desk.txt
	@uv pip compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.13 --extra workloads --extra keras --extra tpu pyproject.toml -o requirements/image.txt

lock-plugins: $(ENVIRONMENT) ## write the checksums of Pulumi's plugins, which CI installs, to requirements/plugins.json
	@$(PYTHON) -m cli.ci lock-plugins

$(ENVIRONMENT): requirements/desk.txt
	@python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' || { echo "needs Python 3.13 as python3, got $$(python3 --version 2>&1); install it, for example with 'pyenv install 3.13'"; exit 1; }
	@echo "installing the Python environment (about a minute) ..."
	@python3 -m venv .venv && .venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/desk.txt
	@rm -f .venv/installed-* && touch $@
