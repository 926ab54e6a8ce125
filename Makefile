# Two commands do everything on a fresh Debian 12 machine with Go, make and
# root: `make lab` and `make test`. `make` alone lists the rest.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec

# One static binary is what users get, so everything is built without cgo.
export CGO_ENABLED := 0

# The binary, the checks and the tests are built with the same flags, so every package is compiled
# only once. Without paths of this machine, that also holds for copies of this folder.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell cd / && go env GOFLAGS 2>/dev/null)) -trimpath)

# Where Debian keeps the kernel's headers of this architecture, for clang.
export BPF2GO_CFLAGS := -I/usr/include/$(shell uname -m)-linux-gnu

# OUT takes the binary and the laboratory's reports.
OUT       ?= .
BIN       := $(OUT)/fairlead
VERSION   ?= $(shell cat VERSION)
COMMIT    ?= $(shell git describe --always --abbrev=12 --exclude='*' --dirty 2>/dev/null || echo unknown)
LAB_SUITE ?= quick
LAB_FLAGS ?=
BENCH     ?= .
# The packages that take longest come first, in this order: four packages are tested at a time (test/run), and the
# last ones should be short. test/vm has the CPU time that the others leave.
TEST      ?= ./test/vm ./test/e2e ./test/script ./test/docker ./test/newmachine ./internal/engine ./test/gateway \
	./test/cluster ./test/release ./internal/daemon ./internal/kernel/ebpf ./test/overlay ./test/arch ./test/balance \
	./test/foreign ./test/machines ./internal/kernel ./internal/cli ./test/attack ./test/dashboard/look \
	./internal/lab/load ./test/soak ./...
TEST_FLAGS ?=

SOAK       ?= 30m
AA_FLAGS   ?=

# The arguments of `lab run` for make ratios.
RATIOS ?= publish --workload tcp-rr,tcp-bulk --client remote --sessions 3 --rounds 8 --duration 1s

# Names and patterns of Autobahn's cases; empty means all.
CASES ?=

FIGURES_SUITES ?= quick publish modes bridge-filter rules waterfall scale attach docker
FIGURES_FLAGS  ?= --rounds 60 --duration 5s

# Everything that `make generate` writes, whole or between markers.
GENERATED := README.md docs NOTICE

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: lab
lab: build ## build, then measure what publishing a port costs on this machine (root; about four minutes)
	$(BIN) lab run $(LAB_SUITE) --html $(OUT)/fairlead-$(LAB_SUITE).html --json $(OUT)/fairlead-$(LAB_SUITE).json $(LAB_FLAGS)

.PHONY: check-go
check-go:
	@test/check/go

.PHONY: build
build: check-go ## build the static binary ./fairlead
	@mkdir -p $(OUT)
	go build -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o $(BIN) ./cmd/fairlead

.PHONY: image
image: build ## write the gateway's image, fairlead:latest in $(OUT)/fairlead-image.tar, for docker load
	packaging/image fairlead:latest $(OUT)/fairlead-image.tar $$(go env GOARCH)=$(BIN)

.PHONY: release
release: check-go ## write the artefacts of the release VERSION into dist: archives, packages, image, checksums, SBOMs
	packaging/release $(VERSION) $(COMMIT) $(OUT)/dist

# Where `make install` puts files; DESTDIR is prepended to each path, for packages.
PREFIX  ?= /usr/local
DESTDIR ?=

.PHONY: install
install: build ## install the binary, licences, man pages, completions and systemd units (PREFIX, DESTDIR)
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/fairlead
	install -d $(DESTDIR)$(PREFIX)/share/doc/fairlead
	install -m 644 LICENSE NOTICE $(DESTDIR)$(PREFIX)/share/doc/fairlead
	install -d $(DESTDIR)$(PREFIX)/share/man/man8
	install -m 644 docs/man/*.8 $(DESTDIR)$(PREFIX)/share/man/man8
	@for shell in bash:bash-completion/completions/fairlead zsh:zsh/site-functions/_fairlead fish:fish/vendor_completions.d/fairlead.fish; do \
		to=$(DESTDIR)$(PREFIX)/share/$${shell#*:}; \
		echo "fairlead completion $${shell%%:*} > $$to"; \
		install -d $$(dirname $$to); $(BIN) completion $${shell%%:*} > $$to; \
	done
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 644 packaging/systemd/*.socket $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's#^ExecStart=/usr/bin/#ExecStart=$(PREFIX)/bin/#' packaging/systemd/fairlead.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/fairlead.service

.PHONY: debian
debian:
	@test/install-debian

.PHONY: engine
engine: check-go debian ## install what the tests need (Debian, root): packages and a Docker engine
	@test/install-engine

.PHONY: test
test: check-go debian engine ## install what the tests need (Debian, root), then run all of them
	@test/run $(TEST_FLAGS) $(TEST)

.PHONY: check
check: check-go check-format check-words check-lint check-generated check-binaries ## format, words, vet, linter, generated files, tracked binaries

.PHONY: check-format
check-format:
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "gofmt these files (gofmt -w):"; echo "$$files"; exit 1; }

.PHONY: check-words
check-words:
	@test/check/words
	@test/check/subjects
	go mod tidy -diff

.PHONY: check-lint
check-lint:
	go vet ./...
	go tool staticcheck ./...

.PHONY: check-generated
# It writes files that the other checks read, so it comes after them (make -j).
check-generated: debian check-format check-words check-lint
	@test/check/fresh $(GENERATED)

.PHONY: check-binaries
check-binaries:
	@test/check/binaries
	@test/check/long-files

# How long each fuzzer runs.
FUZZ ?= 30s

.PHONY: fuzz
fuzz: check-go ## run every fuzzer, FUZZ=30s each (root)
	@test/fuzz $(FUZZ)

.PHONY: bench
bench: ## run the Go benchmarks (BENCH=regexp)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -p 1 ./...

.PHONY: aa
aa: build ## compare 40 pairs of reports of the same path: how often is an interval with sessions wrong? (root, idle machine; at most 15 minutes)
	go run ./test/aa $(AA_FLAGS) $(BIN)

.PHONY: soak
soak: ## change publishes under load while the engine, then the daemon, is killed, SOAK=30m each; then 10,000 operations; then rolling updates, changes and upgrades of the gateway; then kill laboratories and agents; then simulate faults of virtual addresses, and make 2,000 in an hour, and as many while sandboxes come and go; then keep etcd away for ten minutes; then end hosts of a service under load; then run random pairs of clients and servers of the gateway under the race detector for an hour (needs gcc); then compare the gateway's parsers of HTTP/1.1 with net/http, with ten million inputs each; then put 100,000 generated configurations and label sets to use; then compare explanations of 30,000 flows over generated hosts with packets; then install, upgrade and remove the package on Debian 12 and 13 (root)
	SOAK_DURATION=$(SOAK) go test -count=1 -timeout 0 -v ./test/soak
	FAIRLEAD_OPERATIONS=10000 go test -count=1 -timeout 0 -v -run TestAnyOperations ./internal/daemon
	FAIRLEAD_GATEWAY_RATE=1000 FAIRLEAD_GATEWAY_ROUNDS=20 FAIRLEAD_GATEWAY_CHANGES=1000 FAIRLEAD_GATEWAY_UPGRADES=20 \
		go test -count=1 -timeout 0 -v -run 'TestStack|TestUpgrade' ./test/gateway
	FAIRLEAD_GATEWAY_RATE=500 FAIRLEAD_GATEWAY_DEPLOYMENTS=50 \
		go test -count=1 -timeout 0 -v -run TestStartFirst ./test/gateway
	FAIRLEAD_OWNER_ORDERS=500 go test -count=1 -v -run TestOwnersInAnyOrder ./internal/frontend/traefik
	FAIRLEAD_MACHINES_KILLS=100 go test -count=1 -timeout 0 -v -run Killed ./test/machines
	FAIRLEAD_SEEDS=100000 go test -count=1 -timeout 0 -v -run SimulatedFaults ./internal/cluster/vip
	FAIRLEAD_FAULTS=2000 go test -count=1 -timeout 0 -v -run 'TestFaults|TestNetworkFaults' ./test/cluster
	FAIRLEAD_AWAY=10m go test -count=1 -timeout 0 -v -run LongAway ./test/cluster
	FAIRLEAD_SERVICE_RATE=1000 go test -count=1 -timeout 0 -v -run ServiceFailover ./test/cluster
	FAIRLEAD_NODES=1000 go test -count=1 -timeout 0 -v -run ManyNodes ./test/cluster
	FAIRLEAD_LIMITS=1 go test -count=1 -timeout 0 -v -run 'NewSandboxes|MovesWithAddress' ./test/cluster
	CGO_ENABLED=1 FAIRLEAD_PAIRS=1h go test -race -count=1 -timeout 0 -v -run TestPairs ./internal/gateway
	for package in h1 h1/forward h1/wire; do \
		go test -run '^$$' -fuzz Fuzz -fuzztime 10000000x ./internal/gateway/$$package || exit 1; \
	done
	FAIRLEAD_CONFIGURATIONS=100000 go test -count=1 -timeout 0 -v -run GeneratedConfigurations ./internal/process/standalone
	FAIRLEAD_TRUTH=30000 FAIRLEAD_TRUTH_FIRST=$$(date +%s) go test -count=1 -timeout 0 -v -run GeneratedHosts ./test/truth
	FAIRLEAD_DEBIANS=bookworm,trixie FAIRLEAD_UPGRADES=20 go test -count=1 -timeout 0 -v -run TestPackage$$ ./test/release

# -accept makes the counted instructions the accepted ones, and -format json prints them as JSON.
INSTRUCTIONS_FLAGS ?=

.PHONY: instructions
instructions: check-go debian ## count the instructions of a round trip, connection and packet per path on other kernels, and compare them with the accepted figures
	cd test/vm && go test -count=1 -timeout 1h -run '^TestInstructions$$' -whole $(INSTRUCTIONS_FLAGS)

.PHONY: ratios
ratios: ## measure the same on one machine and between two namespaces as machines, and compare the ratios (root, an idle machine; about 15 minutes)
	FAIRLEAD_RATIOS='$(RATIOS)' go test -run '^$$' -bench Ratios -benchtime 1x -timeout 0 ./test/machines

.PHONY: autobahn
autobahn: check-go debian ## run Autobahn's cases for WebSocket through the gateway, for clients and servers (root; many minutes)
	kosoku=$$(test/install-autobahn) && go run ./test/autobahn "$$kosoku" $(CASES)

# What make differential plays; RECORD=1 records the answers of Traefik that the tests compare with.
SEED     ?= 1
REQUESTS ?= 2000
LABELS   ?= 200
RECORD   ?=

.PHONY: differential
differential: check-go ## compare the gateway with Traefik, which it builds once, in REQUESTS=2000 generated requests and LABELS=200 sets of labels (root)
	program=$$(test/install-traefik) && FAIRLEAD_TRAEFIK=$$program FAIRLEAD_SEED=$(SEED) \
		FAIRLEAD_REQUESTS=$(if $(RECORD),300,$(REQUESTS)) FAIRLEAD_LABELS=$(if $(RECORD),50,$(LABELS)) FAIRLEAD_RECORD=$(RECORD) \
		go test -count=1 -timeout 0 -v -run SameAsTraefik ./test/differential

.PHONY: figures
figures: build ## run every suite for hours, for figures to publish (root)
	for suite in $(FIGURES_SUITES); do \
		$(BIN) lab run $$suite --html $(OUT)/fairlead-figures-$$suite.html --json $(OUT)/fairlead-figures-$$suite.json $(FIGURES_FLAGS); \
	done

.PHONY: generate
generate: build ## write all generated files: lists of drivers and others, go generate, man pages, NOTICE, tables in the docs
	go run ./test/lists .
	go generate ./...
	$(BIN) docs man docs/man
	$(BIN) schema > docs/fairlead.schema.json
	go run ./test/notice NOTICE
	go run ./test/script/fill $(BIN) $(GENERATED)

.PHONY: clean
clean: ## remove what the other targets wrote
	rm -rf $(BIN) bin $(OUT)/dist $(OUT)/fairlead-*.html $(OUT)/fairlead-*.json
