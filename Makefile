# SPDX-License-Identifier: GPL-2.0-only
# The front door.  Each target is one script of scripts/, which has --help.
#
#   KSRC=path   take this kernel tree as base (read only) instead of the
#               distribution's source package
#   FORCE=1     try the series on a tree of another version; with 'tree':
#               throw away what build/tree has
#   ACCEL=kvm   or tcg: how guests run (default: KVM where it really works)
#   NAME= EMAIL=  who sends the series, and for 'submit-prep' also
#   SET=        fixes, x86 or sched, a part of it; ONTO=commit, BRANCH=name
#   GATES=      check, all or no: what the patches must have passed before
#   BASE=path   with 'rebase': the tree to try the series on
#   FILES= ROOTFS=  with 'lab': where the boards find what they load
#   ONLY=cells REPEAT=n  with 'study': which, how often; REPEAT= also with
#                   'measure'

PYTHON := build/venv/bin/python

export KSRC FORCE ACCEL NAME EMAIL FIXES SET ONTO BRANCH BASE FILES ROOTFS

.DEFAULT_GOAL := help
.PHONY: help deps bench check check-debug unit tree export base kernels readme clean distclean rebase submit-prep lab lab-check quick check-all gates bisect-check stress mutants repeat race throughput yield-hz yield-stress study measure report

help: ## list the targets
	@echo "usage: make TARGET [KSRC=path] [FORCE=1] [ACCEL=tcg|kvm]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1 \2/p' $(firstword $(MAKEFILE_LIST)) | \
		awk '{ name = $$1; $$1 = ""; printf "  %-12s%s\n", name, $$0 }'

deps: ## install what is missing (as root; else say what to install)
	@scripts/deps

bench: deps ## build and boot base and series, measure, print the comparison
	@$(PYTHON) scripts/bench.py

quick: deps ## the edit loop: patch files, touched objects, some tests
	@$(PYTHON) scripts/gates.py --only quick

check: ## run all tests; the last line counts passed, failed, skipped
	@scripts/deps --with gates
	@$(PYTHON) scripts/check.py

check-debug: deps ## run KUnit on a kernel with KASAN, UBSAN and lockdep
	@$(PYTHON) scripts/check.py --only debug

gates: ## compilers, checkers, more kernels, installs, planted faults
	@scripts/deps --with gates
	@$(PYTHON) scripts/gates.py

bisect-check: deps ## every prefix of the series builds, boots and passes
	@$(PYTHON) scripts/gates.py --only bisect

check-all: ## check, check-debug, gates and bisect-check: hours
	@scripts/deps --with gates
	@$(PYTHON) scripts/gates.py --all

stress: deps ## random I/O permissions on that kernel, SECONDS=600 CPUS=2
	@$(PYTHON) scripts/stress.py --seconds $(or $(SECONDS),600) \
		--cpus $(or $(CPUS),2)

yield-hz: deps ## sched_yield() on the series with HZ=100 and HZ=250
	@$(PYTHON) scripts/yieldhz.py

yield-stress: deps ## sched_yield() on the debug kernel, SECONDS=600 CPUS=2
	@scripts/deps --with throughput
	@$(PYTHON) scripts/yieldstress.py --seconds $(or $(SECONDS),600) \
		--cpus $(or $(CPUS),2)

throughput: ## hackbench and stress-ng on base and series
	@scripts/deps --with throughput
	@$(PYTHON) scripts/throughput.py

mutants: deps ## plant each bug of mutants/ and see that its test finds it
	@$(PYTHON) scripts/mutants.py

race: deps ## look long for the window of dropped ports, WAKES=200000
	@$(PYTHON) scripts/race.py --wakes $(or $(WAKES),200000)

repeat: deps ## the tests of I/O ports on more kinds of guests, TIMES=10
	@$(PYTHON) scripts/repeat.py --times $(or $(TIMES),10)

unit: deps ## run only the tests of the scripts (no kernel build)
	@$(PYTHON) scripts/check.py --only scripts

base: deps ## get the base kernel
	@$(PYTHON) scripts/base.py

tree: deps ## make build/tree: the base in git, one commit per patch
	@$(PYTHON) scripts/tree.py

export: deps ## write patches/, series and the copies from build/tree
	@$(PYTHON) scripts/export.py

kernels: deps ## build the base and the series kernel
	@$(PYTHON) scripts/kernel.py

readme: deps ## put the last result of 'make bench' into README.md
	@$(PYTHON) scripts/readme.py

study: ## the measurements of the literature on many kernels: hours
	@scripts/deps --with study
	@$(PYTHON) scripts/study.py $(if $(ONLY),--only $(ONLY)) \
		$(if $(REPEAT),--repeat $(REPEAT))

measure: ## the same programs on the kernel that runs; no kernel is built
	@python3 scripts/measure.py $(if $(REPEAT),--repeat $(REPEAT))

report: ## one page: the figures of the literature and today's
	@python3 scripts/report.py

rebase: deps ## try the series on the tree BASE=path, tell what fails where
	@$(PYTHON) scripts/rebase.py

submit-prep: deps ## write the mails, from KSRC=clone NAME= EMAIL=; never sends
	@$(PYTHON) scripts/submit.py

lab: deps ## write job definitions for a LAVA lab, see lab/README.md
	@$(PYTHON) scripts/lab.py --jobs

lab-check: deps ## check the job definitions of lab/ against LAVA's schema
	@$(PYTHON) scripts/lab.py --check

clean: ## remove built kernels and results, keep the downloaded base
	@scripts/clean

distclean: ## remove all of build/
	@scripts/clean --all
