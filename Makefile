# Targets are steps of one way of working; each one can be run first.
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 1m
# Git refuses a checkout of another user's; the build then goes without its revision.
VCS := $(shell git rev-parse HEAD >/dev/null 2>&1 || echo -buildvcs=false)

.PHONY: run test drill lint bench fuzz build migrate upgrade clean ensure

# A ready demo at http://127.0.0.1:8080, with PostgreSQL in INTEGRITY_DATA_DIR (default ./data).
run: ensure build
	bin/integrity serve --demo

test: ensure
	.ci/test

# The drills of make test, with longer loads and what takes its time.
drill: ensure
	DRILL=1 go test -count=1 -parallel 1 -timeout 25m -v -run '^(TestFailover|TestFaultsBeforeTheDatabase|TestBenchRebuild)$$' ./cmd/integrity

lint:
	$(GOLANGCI) run --allow-parallel-runners ./...
	.ci/lint-contract

bench: ensure build
	bin/integrity bench

# Every fuzz target of the tree, FUZZTIME each.
fuzz: ensure
	FUZZTIME=$(FUZZTIME) .ci/fuzz

build:
	CGO_ENABLED=0 go build $(VCS) -trimpath -o bin/ ./cmd/integrity

migrate: ensure build
	bin/integrity migrate

# An earlier version is replaced by this one, under load and without a failed request: make upgrade PREVIOUS=<commit>.
upgrade: ensure
	.ci/upgrade $(PREVIOUS)

# Keeps data/: it may hold a ledger.
clean:
	rm -rf bin

ensure:
	@.ci/ensure
