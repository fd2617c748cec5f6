# Targets are steps of one way of working; each one can be run first. "make help" lists them.
export GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
export FUZZTIME ?= 1m
# The program, its tests and the linters are compiled one way, so that each finds what another has compiled.
export CGO_ENABLED ?= 0
export GOFLAGS ?= -trimpath
# Git refuses a checkout of another user's; the build then goes without its revision.
VCS := $(shell git rev-parse HEAD >/dev/null 2>&1 || echo -buildvcs=false)

.PHONY: run help check test drill weather upgrade race newest lint bench fuzz build release migrate clean ensure

run: ensure build ## A ready demo at http://127.0.0.1:8080, with PostgreSQL in INTEGRITY_DATA_DIR (default ./data).
	bin/integrity serve --demo

help: ## This list.
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check: ## Before a commit, in a minute: format, vet, lint of what changed, the tests that need no database.
	.ci/check

test: ensure ## For a review, in six minutes: all tests but the long stories, with a real PostgreSQL and a browser.
	.ci/test

drill: ensure ## The long stories: loss of the primary, bad weather, kills, restores, rebuilds, clients of others.
	.ci/drill

weather: ensure ## Everything fails at random and at once for LENGTH (3m), and what all clients saw is judged: SEED, PREVIOUS=<commit>, REGION=false.
	@LENGTH='$(LENGTH)' SEED='$(SEED)' PREVIOUS='$(PREVIOUS)' REGION='$(REGION)' .ci/weather

upgrade: ensure ## From the previous version to this one, forth and back, under load and without a failed request: PREVIOUS=<commit>.
	.ci/upgrade $(PREVIOUS)

race: ensure ## The race detector, where goroutines meet, on the newest PostgreSQL.
	.ci/race

newest: ensure ## What else runs a server, on the newest PostgreSQL.
	.ci/newest

lint: ## The whole tree, and the OpenAPI documents where npm is.
	$(GOLANGCI) run --allow-parallel-runners ./...
	cd cmd/lab && $(GOLANGCI) run --allow-parallel-runners ./...
	.ci/prose
	.ci/lint-contract

# The peers are a module of their own, which nothing else downloads.
bench: ensure build ## The benchmark. ARGS='--help' lists what it can measure; PEERS=1 measures immudb and Tessera beside the service.
	go -C cmd/lab build $(VCS) -o ../../bin/ ./bench
	$(if $(PEERS),mkdir -p bin/peers && GOWORK=off go -C cmd/lab/peers build $(VCS) -o ../../../bin/peers/ . github.com/codenotary/immudb/cmd/immudb)
	bin/bench $(if $(PEERS),--peers=bin/peers) $(ARGS)

fuzz: ensure ## Every fuzz target of the tree, FUZZTIME each.
	.ci/fuzz

build: ## The program, as bin/integrity.
	@.ci/build $(VCS)

release: ensure ## Programs, Debian packages, image, components and sums in bin/release, registered in the release ledger. ARGS='--help'.
	GOTOOLCHAIN=go$$(awk '/^go /{print $$2}' go.mod) go -C cmd/lab run -buildvcs=false ./release $(ARGS)

migrate: ensure build ## The newest schema for INTEGRITY_DATABASE_URL, or for the PostgreSQL in INTEGRITY_DATA_DIR.
	bin/integrity migrate

clean: ## Removes bin. It keeps data, which may hold a ledger.
	rm -rf bin

ensure:
	@.ci/ensure
