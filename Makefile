# The first command is `make demo`, the second `make test`; `make` alone lists all of them.

VENV := .venv
BIN := $(VENV)/bin
NEED := tests/services/apt-need.sh
# The newest Python that is new enough, the machine's own first.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$name" && break; done)
JAVA := java=default-jre-headless
PLUGINS := /usr/lib/nagios/plugins/check_load=monitoring-plugins-basic
POSTGRES := /usr/lib/postgresql/*/bin/postgres=postgresql
MAVEN := mvn=maven
RABBITMQ := /usr/lib/rabbitmq/bin/rabbitmq-server=rabbitmq-server
BROWSER := chromium=chromium pdftotext=poppler-utils
PROXY := tinyproxy=tinyproxy-bin
POOLER := /usr/sbin/pgbouncer=pgbouncer
# What `make test` needs beside Python; all else is for `make test-all`.
SERVICES := $(JAVA) $(POSTGRES) $(MAVEN) $(RABBITMQ)
FAULTS := strace=strace nft=nftables ip=iproute2 $(PROXY) $(POOLER) /usr/sbin/nginx=nginx openssl=openssl sqlite3=sqlite3
# Man pages are checked by their readers, completion by the shells themselves.
MANUAL := lexgrog=man-db groff=groff mandoc=mandoc
SHELLS := zsh=zsh fish=fish
SYSTEMD := systemd-analyze=systemd mmdebstrap=mmdebstrap dpkg-scanpackages=dpkg-dev
PROMTOOL := promtool=prometheus
PACKAGING := rpmbuild=rpm lintian=lintian rpmlint=rpmlint
# What docs/install.md installs, by the packages' own names.
INSTALL := $(foreach package,python3-venv postgresql default-jre-headless,/usr/share/doc/$(package)=$(package)) curl=curl
MORE := $(PLUGINS) $(FAULTS) $(SYSTEMD) $(PACKAGING) $(MANUAL) $(SHELLS) $(PROMTOOL) $(BROWSER) $(INSTALL)
PYTEST := $(BIN)/python -m pytest -n 3 --durations=30

# Tests start the programs thousands of times: the first start compiles them, for all the others.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo demo-full docs pictures test test-all test-extended mutants mutants-map check lint services needs clean pyz man packages bench-publish bench-load bench-consume bench-door bench-report bench-archive bench-pages bench-matrix bench-storm bench-scale soak soak-reports fuzz

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 15

install: $(VENV)/.installed ## all programs into .venv

demo: $(VENV)/.installed ## all programs on this machine: probes, spool, SQLite, Spark, report
	@$(NEED) $(JAVA)
	@$(NEED) $(PLUGINS) || echo "continuing without them: the demo runs the plugins it finds"
	@$(BIN)/python -m tests.demo

demo-full: $(VENV)/.installed ## the same with private ActiveMQ and PostgreSQL servers, and a proxy
	@$(NEED) $(JAVA) $(POSTGRES) $(MAVEN) $(PROXY)
	@$(NEED) $(PLUGINS) || echo "continuing without them: the demo runs the plugins it finds"
	@$(BIN)/python -m tests.demo --full

docs: $(VENV)/.tested ## write the generated tables of docs/
	$(BIN)/python -m docs.tables

pictures: $(VENV)/.tested-all ## write docs/pictures/ from the pages of `make demo`
	@$(NEED) $(BROWSER)
	$(BIN)/python -m tests.demo.pictures

test: lint services ## formatter, linter, types, then the tests, against real servers: 12 minutes
	$(PYTEST) --dist worksteal

test-all: test test-extended ## then packages, booted machines, browsers, shells, pages of docs/: 18 more

test-extended: $(VENV)/.tested-all services
	@$(NEED) $(MORE) || echo "their tests are skipped"
	@$(BIN)/python -m tests.services --all
	# A machine is booted once for all tests of a file, which tell its story in order.
	$(PYTEST) --dist loadfile --no-loadscope-reorder -p no:randomly tests/extended @tests/extended/as-root.txt

mutants: services ## whether the tests notice the deliberate errors of tests/mutants
	$(BIN)/python -m tests.mutants

mutants-map: services ## record which tests run the line of each of these errors
	$(BIN)/python -m tests.mutants --map

check: lint ## formatter, linter, types and unit tests, in two minutes
	$(BIN)/python -m pytest -q -n 2 tests/unit

lint: $(VENV)/.tested
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	# The publisher runs on Python 3.9; only the door, which needs 3.11, accepts proxies.
	$(BIN)/vermin --quiet --no-tips --target=3.9- --violations --exclude ssl.VERIFY_ALLOW_PROXY_CERTS publisher schema

services: $(VENV)/.tested
	@$(NEED) $(SERVICES)
	@$(BIN)/python -m tests.services

needs: ## with apt, as root: what `make test` and `make test-all` need of the system
	@$(NEED) $(SERVICES) $(MORE)

pyz: $(VENV)/.installed ## the publisher as one file for worker nodes: build/sam-publish.pyz
	@$(BIN)/python deploy/pyz/build.py build/sam-publish.pyz

packages: $(VENV)/.tested-all ## .deb and .rpm of all programs: build/packages/
	@$(NEED) rpmbuild=rpm
	@$(BIN)/python deploy/packages/build.py build/packages

man: $(VENV)/.tested-all ## man pages, and completion for bash, zsh and fish: build/manual/
	@$(BIN)/python -m deploy.manual build/manual

# Adds to the runs in build/soak/log.jsonl. Two of activemq, artemis and rabbitmq run at once; without
# BROKERS each pair in turn. A printed SEED repeats its events and worlds.
soak: soak-reports ## soak-reports, then load with kills, freezes, pauses: HOURS=1 or MINUTES=, RATE= BROKERS="artemis rabbitmq" SEED=
	@$(NEED) $(JAVA) $(POSTGRES) $(MAVEN) $(RABBITMQ)
	@$(BIN)/python -m tests.services
	$(BIN)/python -m tests.soak run $(if $(MINUTES),--minutes $(MINUTES),--hours $(or $(HOURS),1)) $(RATE:%=--rate %) $(if $(BROKERS),--brokers $(BROKERS)) $(SEED:%=--seed %)

soak-reports: $(VENV)/.tested ## Spark's reports of random small worlds against brute force: WORLDS=10000 SEED=
	@$(NEED) $(JAVA) $(POSTGRES)
	$(BIN)/python -m tests.oracle --worlds $(or $(WORLDS),10000) $(SEED:%=--seed %)

fuzz: $(VENV)/.tested ## millions of damaged records, frames, spool elements and requests: INPUTS=1000000 SEED=
	$(BIN)/python -m tests.fuzz --inputs $(or $(INPUTS),1000000) $(SEED:%=--seed %)

bench-publish: $(VENV)/.tested ## publisher: start-up, publishing, spooling
	@$(NEED) $(JAVA) $(MAVEN) $(RABBITMQ)
	$(BIN)/python -m tests.benchmarks.publish_start
	$(BIN)/python -m tests.benchmarks.publish_send
	$(BIN)/python -m tests.benchmarks.publish_spool

bench-load: $(VENV)/.tested ## loading rows, compared with plain tables
	@$(NEED) $(POSTGRES)
	$(BIN)/python -m tests.benchmarks.load

bench-consume: $(VENV)/.tested ## consumer: throughput, latency, memory (QUICK=1: a short run)
	@$(NEED) $(JAVA) $(POSTGRES) $(MAVEN) $(RABBITMQ)
	$(BIN)/python -m tests.benchmarks.consume $(if $(QUICK),--quick)

bench-storm: $(VENV)/.tested ## one-shot publishers: sessions a second, and spools instead (QUICK=1: a short run)
	@$(NEED) $(JAVA) $(MAVEN) $(RABBITMQ)
	$(BIN)/python -m tests.benchmarks.storm $(if $(QUICK),--quick)

bench-scale: $(VENV)/.tested-all ## what docs/scale.md is made of, into tests/benchmarks/measured.json: BROKER= QUICK=1
	@$(NEED) $(JAVA) $(POSTGRES) $(MAVEN) $(RABBITMQ)
	$(BIN)/python -m tests.benchmarks.scale $(BROKER:%=--broker %) $(if $(QUICK),--quick)

bench-door: $(VENV)/.tested ## HTTP door, compared with ActiveMQ's servlet and with STOMP (QUICK=1: a short run)
	@$(NEED) $(JAVA) $(POSTGRES) $(MAVEN) $(RABBITMQ)
	$(BIN)/python -m tests.benchmarks.door $(if $(QUICK),--quick)

bench-report: $(VENV)/.tested ## reports, compared with psql, DuckDB and an empty Spark program (QUICK=1: a short run)
	@$(NEED) $(JAVA) $(POSTGRES)
	$(BIN)/python -m tests.benchmarks.report $(if $(QUICK),--quick)

bench-archive: $(VENV)/.tested ## the archive written, and reports from it, compared with DuckDB (QUICK=1: a short run)
	@$(NEED) $(POSTGRES)
	$(BIN)/python -m tests.benchmarks.archive $(if $(QUICK),--quick)

bench-pages: $(VENV)/.tested ## the pages of reports: a month of 500 sites, a year of 60
	@$(NEED) $(POSTGRES)
	$(BIN)/python -m tests.benchmarks.pages

bench-matrix: $(VENV)/.tested ## brokers: producers x consumers x payloads, lag, losses, with plots (QUICK=1: a short run)
	@$(NEED) $(JAVA) $(MAVEN) $(RABBITMQ)
	$(BIN)/python -m tests.benchmarks.matrix $(if $(QUICK),--quick)

clean: ## remove everything these targets made
	rm -rf $(VENV) .cache demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { \
		echo "Python 3.11 or newer is needed: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(NEED) ensurepip=python3-venv
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml setup.py | $(VENV)/bin/python
	$(BIN)/pip install -q --disable-pip-version-check -e '.[consumer,door,reports]'
	@touch $@

$(VENV)/.tested: pyproject.toml setup.py | $(VENV)/.installed
	$(BIN)/pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@

$(VENV)/.tested-all: pyproject.toml | $(VENV)/.tested
	$(BIN)/pip install -q --disable-pip-version-check -e '.[test-all]'
	@touch $@
