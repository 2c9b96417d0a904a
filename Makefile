# SPDX-License-Identifier: GPL-2.0-only
# The front door.  Each target is one module of tools/, which has --help.
#
#   KSRC=path     take this kernel tree as base (it is only read) instead of the
#                 distribution's source package
#   KERNEL=6.12   the series for an older kernel of tools/BASE:
#                 patches/6.12/series; works in build/6.12 and publishes to
#                 results/6.12
#   FORCE=1       try the series on a tree of another version; with 'tree':
#                 throw away what build/tree has; with 'clean': remove it too
#   ACCEL=kvm     or tcg: how guests run (default: KVM where it really works)
#   ONLY=         check, gates: these groups; mutants, study, measure: these
#                 names; soak: these rows
#   LIST=1        study: say what is left, measure nothing
#   A=file B=file report: two files of 'make measure'
#   JOB= TIMES= SECONDS= CPUS=   with 'soak': which job, how long
#   PUBLISH=1     bench, report, soak: copy the result to results/ and README.md
#   BASE=path ONTO=commit        with 'rebase': the tree to try the series on
#   NAME= EMAIL= SET= BRANCH= GATES=   with 'submit': who sends which part
#   SET=fixes|ports|all KCONFIG= LSMOD=   with 'deb': which patches, of which
#                 configuration (a path, debian, debian-rt), which modules
#   FILES= ROOTFS=               with 'lab': where boards find what they load
#   ALL=1         with 'clean': remove all of build/

RUN := build/venv/bin/python -m tools.
each = $(foreach word,$(2),$(1) $(word))

export KERNEL KSRC FORCE ACCEL NAME EMAIL SET ONTO BRANCH BASE GATES FILES ROOTFS

.DEFAULT_GOAL := help
.PHONY: help deps bench check gates mutants soak study measure report tree \
	export rebase submit lab deb release clean

help: ## list the targets
	@echo "usage: make TARGET [KSRC=path] [FORCE=1] [ACCEL=tcg|kvm] ..."
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		awk -F'|' '{ printf "  %-9s%s\n", $$1, $$2 }'
	@echo "The options are at the top of the Makefile."

deps:
	@tools/deps

bench: deps ## build and boot base and series, measure, print the tables
	@$(RUN)bench $(if $(PUBLISH),--publish)

check: ## run all tests; the last line counts passed, failed, skipped
	@tools/deps
	@$(RUN)check $(call each,--only,$(ONLY))

gates: ## compilers, checkers, more kernels, installs: hours
	@tools/deps --with gates
	@$(RUN)gates $(call each,--only,$(ONLY))

mutants: deps ## plant each bug of tools/mutants and see that its test finds it
	@$(RUN)mutants $(ONLY)

soak: ## run the tests long: JOB=repeat, load, race, stress, yield-stress, ...
	@tools/deps --with throughput
	@$(RUN)soak $(JOB) $(if $(TIMES),--times $(TIMES)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(CPUS),--cpus $(CPUS)) \
		$(call each,--only,$(ONLY)) $(if $(PUBLISH),--publish)

study: ## the measurements of the literature: 90 minutes from built kernels
	@tools/deps --with study
	@$(RUN)study $(call each,--only,$(ONLY)) $(if $(LIST),--list)

measure: ## the same on the kernel that runs: ten minutes, builds no kernel
	@python3 -m tools.measure $(call each,--only,$(ONLY))

report: deps ## the page of 'make study', or A= B= of two files of 'make measure'
	@$(RUN)$(if $(B),measure --compare $(A) $(B),report $(if $(PUBLISH),--publish))

tree: deps ## make build/tree: the base in git, one commit per patch
	@$(RUN)series.tree

export: deps ## write patches/, series and the copies from build/tree
	@$(RUN)series.export

rebase: deps ## try the series on the tree BASE=path, tell what fails where
	@$(RUN)series.rebase

submit: deps ## write the mails, from KSRC=clone NAME= EMAIL=; never sends
	@$(RUN)submit

lab: deps ## write job definitions for a LAVA lab, see tools/lab/README.md
	@$(RUN)lab $(if $(FILES),--jobs,--run)

deb: ## build Debian packages of the patched kernel
	@tools/deps --with deb
	@$(RUN)deb $(if $(SET),--set $(SET)) $(if $(KCONFIG),--config $(KCONFIG)) \
		$(if $(LSMOD),--lsmod $(LSMOD))

release: deps ## write build/release: a patch per kernel, a tarball, checksums
	@$(RUN)release

clean: ## remove what was built, keep the downloads; ALL=1 removes build/
	@tools/clean $(if $(ALL),--all)
