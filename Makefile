# Skandha. `make help` lists what can be done; `make run` and `make test` do all
# their set-up themselves.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

# What can be set, e.g. `make run-services RUNNERS=3`.
RUNNERS  ?= 1
FUZZTIME ?= 50000x
GUIDED   ?= yes
STORM    ?= 3000
PKGS     ?= $(SLOWEST) ./pkg/... ./services/... ./services/provider-gemini-legacy/...
BIN      ?= bin
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

# One way to compile, so that every target uses the same build cache; only the race detector
# needs another.
export CGO_ENABLED := 0
export GOFLAGS     += -trimpath

MODULES  := pkg services services/provider-gemini-legacy
# Outside of the workspace, so that the client of Kubernetes, which Helm brings, and the collector change no version there.
APART    := deploy/k8s/test deploy/observability/test
CACHE    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/skandha
COMMANDS := ./services/skandha $(addprefix ./,$(wildcard services/*/cmd/skandha-*))
STATIC   := go build -buildvcs=false -ldflags '-s -w -X skandha.dev/services/internal/buildinfo.Version=$(VERSION)'
COMPOSE   = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
REPORT   := bin/testreport

# The slowest packages come first: go test starts packages in this order, and a run should not
# end with one of them alone.
SLOWEST := $(addprefix ./services/,test/sandboxtest test/webtest test/e2e test/e2e/compose core/shell)

# How many packages are tested at a time. Most tests wait, for timers and other processes, more
# than they compute, so a small machine does more at a time than it has processors.
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 4 ? 4 : n)))

# The order of a package's tests; without it (SHUFFLE=off) go test takes the results of
# packages that have not changed from its cache. It does not see changes of what a test
# builds and runs as another process.
SHUFFLE  ?= on

GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
GOTESTSUM_VERSION := v1.13.0
GOTESTSUM := $(CACHE)/gotestsum-$(GOTESTSUM_VERSION)/gotestsum

# $(call tests,NAME,PACKAGES,FLAGS,DIR) runs tests, in a directory other than this one if the
# packages are outside of the workspace. What fails is run again, alone, up to twice,
# unless it is a data race or a panic. The events and the output of flaky tests stay in
# dist/tests and dist/flaky. Vetting is left to make lint, which applies all of go vet.
define tests
@mkdir -p dist/tests dist/flaky; rm -rf dist/flaky/$(1); code=0; \
$(if $(4),cd $(4) && GOWORK=off )$(GOTESTSUM) --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped,output \
  --rerun-fails=2 --rerun-fails-max-failures=20 --rerun-fails-abort-on-data-race \
  --jsonfile $(CURDIR)/dist/tests/$(1).jsonl --packages "$(2)" -- -vet=off -p $(JOBS) -shuffle=$(SHUFFLE) $(3) || code=$$?; cd $(CURDIR); \
$(REPORT) --keep dist/flaky/$(1) dist/tests/$(1).jsonl || code=1; exit $$code
endef

##@ Use

.PHONY: run
run: setup-build ## Build and talk to an agent: everything in one process, data in .data/ (no Docker, no Redis, no key needed)
	@mkdir -p bin
	$(STATIC) -o bin/ ./services/skandha
	exec bin/skandha chat --data .data

.PHONY: run-services
run-services: build ## Run NATS, Redis (if installed), core, provider, RUNNERS=n tool runners, the sandbox, the listeners of SKANDHA_CONFIG and the page as processes; what dies is started again; Ctrl-C ends them
	@RUNNERS=$(RUNNERS) exec deploy/dev/run-services.sh

.PHONY: build
build: setup-build ## Build every command into BIN=bin (static, stripped)
	@mkdir -p $(BIN)
	$(STATIC) -o $(BIN)/ $(COMMANDS)

##@ Check

.PHONY: test
test: setup $(GOTESTSUM) $(REPORT) ## Set up and run every test; one that fails and then passes alone is listed as FLAKY (SHUFFLE=off: unchanged packages from the cache; RACE=apart: without what test-race runs)
	$(call tests,test,$(if $(filter apart,$(RACE)),$$(go list $(PKGS) | grep -E '/($(NO_RACE))$$' | tr '\n' ' '),$(PKGS)),-timeout 20m)

# What the race detector adds nothing to: work that is done in other processes (sandboxes,
# plugins, containers, browsers, whole deployments), functions without goroutines, and what is
# slow only because SQLite's engine or a converter of pages is checked instead of our code.
NO_RACE := sandboxtest|internal/backup|sandbox/(agent|bwrap|deps|docker|snapshot)|conformance|e2e|e2e/(compose|outside|storm)|webtest|listener/examples|services/(skandha|bench|sandbox)|skandha/scaffold|cmd/skandha-[a-z]+|test/(archtest|contract|golden|legacytest|rightstest|testreport|worstcase|model|model/explore)|uibridge/(examples|markdown)|core/(commands|decide|planner|planner/engine|planner/match|security|security/grant)|internal/(audit|lexical|seccomp|memory/chroma|memory/sqlite)|pkg/(event|guide|hook|memory|provider|subject|tool)|tools/(calc|clock|web/page|web/pdftext|web/source)

.PHONY: test-race
test-race: export CGO_ENABLED := 1
test-race: setup $(GOTESTSUM) $(REPORT) ## The tests of everything that shares memory, under the race detector
	$(call tests,race,$$(go list $(PKGS) | grep -vE '/($(NO_RACE))$$' | tr '\n' ' '),-race -timeout 30m)

.PHONY: chart
chart: setup $(GOTESTSUM) $(REPORT) ## Template the Helm chart, hold it to its policies, and run the bus, Redis and the collector as they are configured
	$(call tests,chart,./...,-count=1,deploy/k8s/test)
	$(call tests,collector,./...,-count=1,deploy/observability/test)

.PHONY: storm
storm: setup ## Long storms over a whole deployment: kills and pauses for STORM turns or a time (default 3000), overload, a hung core
	@SKANDHA_STORM=$(STORM) go test -count=1 -v -timeout 90m ./services/test/e2e/storm

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint, on every module
	@bad=0; for m in $(MODULES); do (cd $$m && $(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...) || bad=1; done; \
	for m in $(APART); do (cd $$m && GOWORK=off $(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...) || bad=1; done; exit $$bad

.PHONY: fmt
fmt: $(GOLANGCI) ## Format every Go file
	@set -e; export GOWORK=off; for m in $(MODULES) $(APART); do (cd $$m && $(GOLANGCI) fmt --config $(CURDIR)/.golangci.yml ./...); done

.PHONY: fmt-check
fmt-check: ## Say which Go files gofmt would change
	@files=$$(gofmt -l pkg services deploy); \
	if [ -n "$$files" ]; then echo "not formatted (make fmt):"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## go vet
	@go vet $(PKGS)

.PHONY: modules
modules: ## Compile each module alone, without the workspace, and hold its go.mod to what it imports
	@set -e; export GOWORK=off; for m in $(MODULES) $(APART); do \
	  echo "$$m: compile"; (cd $$m && go list -export ./... >/dev/null); \
	  echo "$$m: go.mod"; (cd $$m && go mod tidy -diff); \
	done

.PHONY: schemas
schemas: $(GOTESTSUM) $(REPORT) ## Hold schemas/ and the Go types against each other
	$(call tests,schemas,./services/test/contract/...,)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME inputs or seconds (default 50000x; GUIDED=no: without coverage, which compiles less)
	@GUIDED=$(GUIDED) deploy/dev/fuzz.sh $(FUZZTIME) pkg services

.PHONY: bench
bench: setup-build ## Measure this machine against the budgets, each beside the raw operation
	@mkdir -p bin
	$(STATIC) -o bin/ ./services/skandha ./services/bench/cmd/skandha-bench
	bin/skandha-bench

# Not in CI, and nothing of ours is imported there: it needs no look when ours changes.
.PHONY: peers
peers: setup-build ## Measure a turn beside the same turn in adk-go, Temporal, Restate and DBOS, as far as their servers are in PATH
	@mkdir -p bin
	$(STATIC) -o bin/ ./services/bench/cmd/skandha-bench
	cd deploy/bench/peers && GOWORK=off go build -buildvcs=false -o $(CURDIR)/bin/skandha-peers .
	bin/skandha-bench peers

##@ Docker

.PHONY: compose-up
compose-up: .env ## Build the images of docker-compose.yml, make its keys, start the system, wait until it is healthy, and say how to use it
	@docker image inspect skandha/sandbox:latest >/dev/null 2>&1 || $(MAKE) sandbox-image
	@deploy/docker/images.sh $(COMPOSE)
	@deploy/dev/compose-secrets.sh $(COMPOSE)
	@deploy/dev/compose-invite.sh $(COMPOSE)
	$(COMPOSE) up -d --no-build --scale toolrunner=$(RUNNERS)
	@deploy/dev/compose-healthy.sh $(COMPOSE)
	@deploy/dev/compose-use.sh $(COMPOSE)

.PHONY: sandbox-image
sandbox-image: ## Build the image that untrusted code runs in: from a registry, or else from Debian's packages (as root)
	@docker build -t skandha/sandbox:latest deploy/docker/sandbox || { \
	  echo "no registry was reached: from Debian's packages instead"; deploy/docker/sandbox/build.sh; }

.PHONY: compose-down
compose-down: .env ## Stop it; its data stays (VOLUMES=yes removes that too)
	COMPOSE_PROFILES=cli,gemini-legacy,observability,chroma,examples,example-listener $(COMPOSE) down $(if $(filter yes,$(VOLUMES)),--volumes)

.PHONY: compose-backup
compose-backup: .env ## Write a backup of the running system into BACKUPS=backups
	@deploy/dev/compose-backup.sh $(COMPOSE)

.PHONY: compose-restore
compose-restore: .env ## Stop the services, restore FILE=…, and start them (REPLACE=yes: over what is there)
	@deploy/dev/compose-restore.sh $(COMPOSE)

.PHONY: compose-upgrade
compose-upgrade: .env ## Make new images, take a backup, and replace one service after the other (IMAGES=build|pull|present)
	@deploy/dev/compose-upgrade.sh $(COMPOSE)

.PHONY: compose-back
compose-back: .env ## Go back to the images before the last upgrade
	@BACK=yes deploy/dev/compose-upgrade.sh $(COMPOSE)

.PHONY: tls tls-renew
tls: .env build ## Make certificates for the bus in SKANDHA_TLS=./tls, and have docker-compose.yml use TLS
	@deploy/dev/tls.sh

tls-renew: .env build ## Make a new certificate of the bus
	@deploy/dev/tls.sh renew

.PHONY: secrets
secrets: .env ## Make the keys of the bus of docker-compose.yml in SKANDHA_SECRETS=./secrets; keys that are there stay
	@deploy/dev/compose-secrets.sh

# The passwords of docker-compose.yml, each made once.
.PHONY: passwords
.env: passwords
	@umask 077; \
	for name in SKANDHA_REDIS_PASSWORD SKANDHA_UI_TOKEN; do \
	  grep -qs "^$$name=" .env && continue; \
	  printf '%s=s%s\n' "$$name" "$$(od -An -N 24 -tx1 /dev/urandom | tr -d ' \n')" >> .env; \
	  echo "wrote $$name of docker-compose.yml into .env"; \
	done

##@ House

.PHONY: setup
setup: ## Install what the tests need (Debian, as root), or say what is missing (elsewhere, or with SKANDHA_INSTALL=no)
	@deploy/dev/setup.sh test

.PHONY: setup-build
setup-build:
	@deploy/dev/setup.sh build

.PHONY: clean
clean: ## Remove what was built; .data/ and .env stay
	rm -rf bin dist

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z.-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(REPORT): $(wildcard services/test/testreport/*.go services/test/archtest/*.go) | setup-build
	@mkdir -p bin
	go build -buildvcs=false -o $@ ./services/test/testreport

$(GOTESTSUM):
	@echo "building gotestsum $(GOTESTSUM_VERSION) into $(dir $@)"
	GOWORK=off GOFLAGS= GOBIN=$(dir $@) go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION) into $(dir $@)"
	GOWORK=off GOFLAGS= GOBIN=$(dir $@) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
