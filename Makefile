# Justitia. `make help` lists the targets.
.PHONY: help build demo test bench lab packages install uninstall clean
OUT = out
PREFIX ?= /usr/local

help: ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 12

build: ## build target/release/justitia, and justitia-web, -probe and -lab beside it
	@scripts/setup
	cargo build --release --workspace --bins --quiet

demo: build ## containers of weight 100 to 800, without and with Justitia, on a stock kernel
	@scripts/demo $(OUT)/demo

test: ## everything that can be tested, virtual machines included
	@scripts/setup --test
	@scripts/test

bench: build ## cost of a tick over 10 to 5,000 groups
	cargo bench -p justitia-agent

lab: build ## all experiments, as in docs/results (hours)
	@scripts/lab $(OUT)/lab

packages: build ## Debian packages in target/packages
	@scripts/package

# Does not build: under sudo that would be root's Rust, and root's files in target/.
install: ## binaries, units, man pages and completions below $(PREFIX); after make build
	@for program in justitia justitia-web justitia-probe justitia-lab justitia-lab-guest; do \
	  test -x target/release/$$program || { \
	    echo "install: target/release/$$program is not there; run make build first, not as root" >&2; \
	    exit 1; }; \
	done
	@scripts/install $(PREFIX)

uninstall: ## undo install
	@scripts/install --remove $(PREFIX)

clean: ## remove what was built (the download cache stays)
	cargo clean
	rm -rf out
