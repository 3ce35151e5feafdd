# The two commands of this project. Both do all the set-up that a fresh machine needs.
.PHONY: help demo test setup llama-server lint clean

PY := .venv/bin/python

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## what is missing: virtual environment, Prometheus, llama-server, small weights
	@bash scripts/setup.sh

llama-server: ## build llama-server into the cache, once
	@bash scripts/build-llama-server.sh

demo: setup ## four real runs of 60 s on this machine, then the report
	@$(PY) -m sweep -m 'model=static,baseline/threshold,local/smollm2-135m' \
		scale=3 algorithm=leastconn duration_s=60 sweep.name=demo
	@$(PY) -m sweep.report outputs/demo

test: setup ## all tests
	@$(PY) -m pytest

lint: ## ruff
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .

clean: ## remove the virtual environment; results in outputs/ stay
	rm -rf .venv build *.egg-info
