# SPDX-License-Identifier: GPL-2.0-only
# The front door.  Each target is one module of tools/, which has --help.
# Below a target are its variables and an example, which 'make help' prints,
# and beside which tools/arguments.py takes none.  What they mean:
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
#   LIST=1        say what there is or what is left, run nothing
#   A=file B=file two files of 'make measure'
#   JOB= TIMES= SECONDS= CPUS=   which job, how often or how long, on how many
#   NAME= EMAIL= SET= GATES=no   who sends which part, without all gates
#   SET= KCONFIG= LSMOD=   which patches, of which configuration (a path, debian,
#                 debian-rt), with the modules that this output of lsmod names
#   FILES= ROOTFS=   where boards find what they load, URLs
#   ALL=1         remove all of build/

# $(call run,JOB,ARGUMENTS): look at the arguments, install what the job needs,
# run it; plain: a job that needs no Python package; look: nothing but look.
run = @TARGET=$@ tools/deps $(1) $(2) && build/venv/bin/python -m tools.$(strip $(1)) $(2)
plain = @TARGET=$@ tools/deps $(1) $(2) && python3 -m tools.$(strip $(1)) $(2)
look = @TARGET=$@ python3 -m tools.arguments $(1)
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
	@echo "usage: make TARGET [VARIABLE=value]..."
	@awk -F' ## ' '/^[a-z]+:.* ## / { sub(":.*", "", $$1); printf "  %-9s%s\n", $$1, $$2 } \
		sub("^#> ", "           ") { sub("; ", "\n           "); print }' Makefile
	@sed -n '1,/^$$/s/^#   /  /p' Makefile

deps: ## install what 'make check' needs; each target installs what it needs
	@TARGET=$@ tools/deps check

bench: ## build and boot base and series, measure, print the tables
#> KERNEL= KSRC= ACCEL= FORCE=; make bench KSRC=~/linux
	$(call run,bench)

check: ## run all tests; the last line counts passed, failed, skipped
#> ONLY= KERNEL= KSRC= ACCEL= FORCE=; make check ONLY="scripts series"
	$(call run,check,$(call each,--only,$(ONLY)))

gates: ## compilers, checkers, more kernels, installs: hours
#> ONLY= KERNEL= KSRC= ACCEL= FORCE=; make gates ONLY="gcc docs" KERNEL=6.12
	$(call run,gates,$(call each,--only,$(ONLY)))

mutants: ## plant each bug of tools/mutants and see that its test finds it
#> ONLY= LIST= KERNEL= KSRC= ACCEL= FORCE=; make mutants ONLY="07 slots"
	$(call run,mutants,$(ONLY) $(if $(LIST),--list))

soak: ## run the tests long: JOB=repeat, load, race, stress, yield-stress, ...
#> JOB= ONLY= TIMES= SECONDS= CPUS= KERNEL= KSRC= ACCEL= FORCE=; make soak JOB=repeat TIMES=10
	$(call run,soak,$(if $(JOB),'$(JOB)') $(if $(TIMES),--times '$(TIMES)') \
		$(if $(SECONDS),--seconds '$(SECONDS)') $(if $(CPUS),--cpus '$(CPUS)') \
		$(call each,--only,$(ONLY)))

study: ## the measurements of the literature: 90 minutes from built kernels
#> ONLY= LIST= KSRC= FORCE=; make study ONLY=blas_yield
	$(call run,study,$(call each,--only,$(ONLY)) $(if $(LIST),--list))

measure: ## the same on the kernel that runs: ten minutes, builds no kernel
#> ONLY= KERNEL= KSRC= FORCE=; make measure ONLY=pi_ping
	$(call look,measure $(call each,--only,$(ONLY)))
	@python3 -m tools.measure $(call each,--only,$(ONLY))

report: ## the page of 'make study', or of two files of 'make measure'
#> A= B= KSRC= FORCE=; make report A=build/results/a.json B=build/results/b.json
	$(if $(A)$(B),$(call run,measure,--compare '$(A)' '$(B)'),$(call run,report))

publish: ## copy what ran on these patches to results/, write its table
	$(call plain,publish)

tree: ## make build/tree: the base in git, one commit per patch
#> KERNEL= KSRC= FORCE=; make tree KERNEL=6.12
	$(call plain,series.tree)

export: ## write patches/, series and the copies from build/tree
#> KERNEL=; make export KERNEL=6.12
	$(call plain,series.export)

submit: ## write patches for git am, signed off by NAME= EMAIL=; never sends
#> NAME= EMAIL= SET= GATES= KERNEL=; make submit NAME="Your Name" EMAIL=you@example.org SET=fixes
	$(call run,submit)

lab: ## install and run a LAVA server below build/lab: tools/lab/README.md
#> FILES= ROOTFS= KERNEL= KSRC= FORCE=; make lab FILES=http://192.0.2.1/boards
	$(call run,lab,$(if $(FILES)$(ROOTFS),--jobs,--run))

deb: ## build Debian packages of the patched kernel
#> SET= KCONFIG= LSMOD= KERNEL= KSRC= FORCE=; make deb KCONFIG=debian SET=fixes
	$(call plain,deb,$(if $(SET),--set '$(SET)') $(if $(KCONFIG),--config '$(KCONFIG)') \
		$(if $(LSMOD),--lsmod '$(LSMOD)'))

release: ## write build/release: a patch per kernel, a tarball, checksums
	$(look)
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
#> ALL= FORCE=; make clean ALL=1
	$(look)
	@tools/clean $(if $(ALL),--all)
