# The commands of this repository. `make demo` and `make test` set up a fresh Debian or Ubuntu
# by themselves; `make help` lists the rest.

CARGO ?= cargo
SEED ?= 1
SEEDS ?= 50000
CUTS ?= 50
ROUNDS ?= 3
THREAD_SEEDS ?= 10000
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release

# Where PostgreSQL cannot be had, the demo brings a database of its own.
SQLITE = $(if $(wildcard /usr/lib/postgresql/*/bin/initdb)$(shell command -v initdb),,--features sqlite)

.PHONY: help setup build package image demo check test long lint sim threads models cuts scenario soak fuzz bench lab lab-gallery

help: ## what can be asked for
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: ## install what the build, the demo and the tests need
	@tools/setup

build: setup ## the binary `spindle`, optimised
	$(CARGO) build --release --locked -p spindle-cli

package: build ## a .deb and an .rpm of this version, in target/package/
	@tools/setup package
	$(CARGO) build --release --locked -p spindle-lab
	@tools/package

image: package ## a container image of this version, in target/package/
	@tools/setup image
	@tools/container-image

demo: build ## PostgreSQL on a mirrored group: disks die, return and join, the power goes, nothing is lost
	$(CARGO) build --release --locked -p spindle-demo $(SQLITE)
	$(RELEASE)/spindle-demo $(DEMO)
	@$(MAKE) --no-print-directory lab

check: ## for every day: format, clippy, units, stories and 1,000 seeds, in three minutes when warm
	@tools/test check

test: ## everything that CI runs
	@tools/setup test
	@SEEDS=$(SEEDS) THREAD_SEEDS=$(THREAD_SEEDS) CUTS=$(CUTS) ROUNDS=$(ROUNDS) tools/test

long: ## what takes longer than CI may: many more seeds, power cuts, kills, rounds and scenarios
	@tools/setup test
	@tools/setup long
	@SEEDS=300000 THREAD_SEEDS=300000 CUTS=200 ROUNDS=20 SCENARIOS=20 \
		SPINDLE_TEST_KILLS=90 SPINDLE_TEST_MOUNTS=650 SPINDLE_TEST_DISKS=4096 tools/test

lint: ## format, clippy, the repository's own rules, dependencies and spelling
	@tools/test lint

sim: ## one run of the simulator again: make sim SEED=17
	$(CARGO) run --locked -p spindle-sim -- --seed $(SEED)

threads: ## one run of the simulator of threads again: make threads SEED=17
	$(CARGO) run --locked --manifest-path harness/threads/Cargo.toml -- --seed $(SEED)

models: ## what relies on an order of memory that no lock gives it, in every way that loom finds
	$(CARGO) test --locked --manifest-path harness/loom/Cargo.toml

cuts: setup ## power cuts under PostgreSQL: make cuts CUTS=50 SEED=1 CHANGES=--with-changes
	$(CARGO) build --locked -p spindle-cli -p spindle-proof
	target/debug/spindle-proof cuts --cuts $(CUTS) --seed $(SEED) $(CHANGES)

scenario: ## disks change and daemons die under two databases: make scenario ROUNDS=3 SEED=1
	@tools/setup test
	$(CARGO) build --locked -p spindle-cli -p spindle-proof
	target/debug/spindle-proof scenario --rounds $(ROUNDS) --seed $(SEED)

soak: setup ## simulator, power cuts, scenario and fuzzing, in turn, until stopped
	@tools/soak

fuzz: setup ## build every fuzz target and run each for a short while
	@tools/fuzz

bench: build ## every figure side by side with its rival: make bench BENCH='--only mount --quick'
	@tools/setup bench
	$(CARGO) build --release --locked -p spindle-proof -p spindle-device -p spindle-group --examples
	$(CARGO) build --release --locked -p spindle-proof
	$(RELEASE)/spindle-proof bench $(BENCH)

lab: build ## which storage is faster for a database here: two minutes on loop devices (as root)
	$(CARGO) build --release --locked -p spindle-lab
	@if [ "$$(id -u)" = 0 ]; then $(RELEASE)/spindle-lab quick $(LAB); \
	else echo "the lab makes devices and mounts: sudo $(RELEASE)/spindle-lab quick"; fi

lab-gallery: build ## the reports in docs/lab/gallery/ made again, an hour and a half (as root): make lab-gallery GALLERY='--only 3-random'
	@tools/setup bench
	$(CARGO) build --release --locked -p spindle-lab
	$(RELEASE)/spindle-lab gallery $(GALLERY)
