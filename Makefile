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
#   NAME= EMAIL= SET= GATES=   with 'submit': who sends which part
#   SET=fixes|ports|all KCONFIG= LSMOD=   with 'deb': which patches, of which
#                 configuration (a path, debian, debian-rt), which modules
#   FILES= ROOTFS=               with 'lab': where boards find what they load
#   ALL=1         with 'clean': remove all of build/

# $(call run,JOB,ARGUMENTS): look at the arguments, install what the job needs,
# run it; plain: a job that needs no Python package.
run = @tools/deps $(1) $(2) && build/venv/bin/python -m tools.$(strip $(1)) $(2)
plain = @tools/deps $(1) $(2) && python3 -m tools.$(strip $(1)) $(2)
each = $(foreach word,$(2),$(1) $(word))

export KERNEL KSRC FORCE ACCEL NAME EMAIL SET GATES FILES ROOTFS
# Python reads and writes UTF-8 in it, whatever the user's locale.
export LC_ALL := C
# A user without a name may have none, and pip asks for it.
export HOME ?= $(CURDIR)/build

.DEFAULT_GOAL := help
.PHONY: help deps bench check gates mutants soak study measure report publish \
	tree export submit lab deb release clean

help: ## list the targets
	@echo "usage: make TARGET [KSRC=path] [FORCE=1] [ACCEL=tcg|kvm] ..."
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		awk -F'|' '{ printf "  %-9s%s\n", $$1, $$2 }'
	@echo "The options are at the top of the Makefile."

deps: ## install what 'make check' needs; each target installs what it needs
	@tools/deps check

bench: ## build and boot base and series, measure, print the tables
	$(call run,bench)

check: ## run all tests; the last line counts passed, failed, skipped
	$(call run,check,$(call each,--only,$(ONLY)))

gates: ## compilers, checkers, more kernels, installs: hours
	$(call run,gates,$(call each,--only,$(ONLY)))

mutants: ## plant each bug of tools/mutants and see that its test finds it
	$(call run,mutants,$(ONLY))

soak: ## run the tests long: JOB=repeat, load, race, stress, yield-stress, ...
	$(call run,soak,$(JOB) $(if $(TIMES),--times $(TIMES)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(CPUS),--cpus $(CPUS)) \
		$(call each,--only,$(ONLY)))

study: ## the measurements of the literature: 90 minutes from built kernels
	$(call run,study,$(call each,--only,$(ONLY)) $(if $(LIST),--list))

measure: ## the same on the kernel that runs: ten minutes, builds no kernel
	@python3 -m tools.measure $(call each,--only,$(ONLY))

report: ## the page of 'make study', or A= B= of two files of 'make measure'
	$(if $(B),$(call run,measure,--compare $(A) $(B)),$(call run,report))

publish: ## copy what ran on these patches to results/, write its table
	$(call plain,publish)

tree: ## make build/tree: the base in git, one commit per patch
	$(call plain,series.tree)

export: ## write patches/, series and the copies from build/tree
	$(call plain,series.export)

submit: ## write patches for git am, signed off by NAME= EMAIL=; never sends
	$(call run,submit)

lab: ## install and run a LAVA server below build/lab: tools/lab/README.md
	$(call run,lab,$(if $(FILES),--jobs,--run))

deb: ## build Debian packages of the patched kernel
	$(call plain,deb,$(if $(SET),--set $(SET)) $(if $(KCONFIG),--config $(KCONFIG)) \
		$(if $(LSMOD),--lsmod $(LSMOD)))

release: ## write build/release: a patch per kernel, a tarball, checksums
	@set -eu; fail() { echo "error: $$*" >&2; exit 1; }; \
	export GIT_CONFIG_GLOBAL=tools/gitconfig GIT_CONFIG_SYSTEM=/dev/null; \
	[ -z "$$(git status --porcelain)" ] || fail "commit the changes first: a release is of a commit"; \
	version=$$(sed -n '/^## /{s/^## \([0-9][0-9.]*\).*/\1/p;q}' CHANGELOG.md); \
	[ "$$version" ] || fail "CHANGELOG.md has no heading '## NUMBER'"; \
	place=build/release/$$version name=ioport-yield-$$version; \
	rm -rf $$place.partial; mkdir -p $$place.partial; \
	for series in series patches/*/series; do \
		kernel=$$(sed -n 's/^# Linux v\([^:]*\):.*/\1/p' $$series); \
		sed '/^#/d; /^$$/d; s,^,patches/,' $$series | xargs cat \
			>$$place.partial/linux-$$kernel-$$name.patch; \
	done; \
	git archive --prefix=$$name/ -o $$place.partial/$$name.tar HEAD; \
	cd $$place.partial; xz -T1 -6 $$name.tar; sha256sum * >../SHA256SUMS.partial; \
	mv ../SHA256SUMS.partial SHA256SUMS; cd ..; \
	rm -rf $$version; mv $$version.partial $$version; cat $$version/SHA256SUMS; \
	echo "written: $$place"

clean: ## remove what was built, keep the downloads; ALL=1 removes build/
	@tools/clean $(if $(ALL),--all)
