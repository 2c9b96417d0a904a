# SPDX-License-Identifier: GPL-2.0-only
# The front door: 'make help' prints the targets, each with its variables and an
# example.  Code reads these lines, and takes no other variables.  What they mean
# ('make help' prints this, too; a wrong value is answered with the right ones):
#
#   KSRC=path     take this kernel tree as base (it is only read) instead of the
#                 distribution's source package
#   KERNEL=6.12   the series for an older kernel of tools/BASE:
#                 patches/6.12/series; works in build/6.12, is published to
#                 results/6.12
#   FORCE=1       try the series on a tree of another version; with 'tree':
#                 throw away what build/tree has; with 'clean': remove it too
#   ACCEL=kvm     or tcg: how guests run (default: KVM where it really works)
#   ONLY=         check, gates: these groups; mutants: whose name has a word that
#                 begins so; study, measure: these programs; soak: these rows
#   LIST=1        say what there is or what is left, run nothing
#   JOB= TIMES= SECONDS= CPUS=   which job, how often, how long, on how many
#   BOARD=file    what came back from the stick: a page of results/boards/
#   A=file B=file two files of 'make measure'
#   SET= KCONFIG= LSMOD=   fixes, ports or all; of which configuration (a path,
#                 debian, debian-rt); with the modules that this output of lsmod
#                 names
#   ALL=1         bench: all cases of sched_yield(), at three points of a tick,
#                 and KVM's; clean: remove all of build/

# Look at the variables, which the job finds in its environment, install what it
# needs, run it; plain: a job that needs no Python package.
run = @tools/deps $@ && build/venv/bin/python -m tools $@
plain = @tools/deps $@ && python3 -m tools $@
look = @python3 -m tools --look $@

# Python reads and writes UTF-8 in it, whatever the user's locale.
export LC_ALL := C
# A user without a name may have none, and pip asks for it.
export HOME ?= $(CURDIR)/build

.DEFAULT_GOAL := help
.PHONY: help deps bench check gates mutants soak study measure report publish \
	tree export deb stick release clean

help: ## list the targets
	@echo "usage: make TARGET [VARIABLE=value]..."
	@awk -F' ## ' '/^[a-z]+:.* ## / { sub(":.*", "", $$1); printf "  %-9s%s\n", $$1, $$2 } \
		sub("^#> ", "           ") { sub("; ", "\n           "); print }' Makefile
	@sed -n '1,/^$$/s/^#   /  /p' Makefile

deps: ## install what 'make check' needs; each target installs what it needs
	@tools/deps $@

bench: ## build and boot base and series, measure, print the tables
#> ALL= KERNEL= KSRC= ACCEL= FORCE=; make bench KSRC=~/linux
	$(run)

check: ## run all tests; the last line counts passed, failed, skipped
#> ONLY= KERNEL= KSRC= ACCEL= FORCE=; make check ONLY="scripts series"
	$(run)

gates: ## compilers, checkers, more kernels, installs: hours
#> ONLY= KERNEL= KSRC= ACCEL= FORCE=; make gates ONLY="gcc docs" KERNEL=6.12
	$(run)

mutants: ## plant each bug of tools/mutants and see that its test finds it
#> ONLY= LIST= KERNEL= KSRC= ACCEL= FORCE=; make mutants ONLY="07 hotplug"
	$(run)

soak: ## long tests: JOB=repeat, load, race, stress, yield-stress or yield-hz
#> JOB= ONLY= TIMES= SECONDS= CPUS= KERNEL= KSRC= ACCEL= FORCE=; make soak JOB=repeat TIMES=10
	$(run)

study: ## the measurements of the literature on base and series, and their page
#> ONLY= LIST= KSRC= FORCE=; make study ONLY=blas_yield
	$(run)

measure: ## the same programs on the kernel that runs; builds no kernel
#> ONLY= KERNEL= KSRC= FORCE=; make measure ONLY=pi_ping.processes
	@python3 -m tools $@

report: ## the page of two files of 'make measure', side by side
#> A= B=; make report A=build/results/a.json B=build/results/b.json
	$(run)

publish: ## copy what ran on these patches to results/, write its table
#> BOARD=; make publish BOARD=file.json
	$(plain)

tree: ## make build/tree: the base in git, and a commit for each patch
#> KERNEL= KSRC= FORCE=; make tree KERNEL=6.12
	$(plain)

export: ## write patches/, series and the copies from build/tree
#> KERNEL=; make export KERNEL=6.12
	$(plain)

deb: ## build Debian packages of the patched kernel
#> SET= KCONFIG= LSMOD= KERNEL= KSRC= FORCE=; make deb KCONFIG=debian SET=fixes
	$(plain)

stick: ## write build/stick/*.img: boot it from USB, base and series on your PC
#> KERNEL= KSRC= FORCE=; make stick
	$(plain)

release: ## write build/release: a file for each kernel, a tarball, checksums
	$(look)
	@set -eu; fail() { echo "error: $$*" >&2; exit 1; }; \
	export GIT_CONFIG_GLOBAL=tools/gitconfig GIT_CONFIG_SYSTEM=/dev/null; \
	[ -e .git ] && git rev-parse -q --verify HEAD >/dev/null 2>&1 || \
		fail "a release is of a commit: run it in a clone"; \
	[ -z "$$(git status --porcelain)" ] || fail "commit the changes first: a release is of a commit"; \
	version=$$(sed -n '/^## /{s/^## \([0-9][0-9.]*\).*/\1/p;q}' CHANGELOG.md); \
	[ "$$version" ] || fail "CHANGELOG.md has no heading '## NUMBER'"; \
	place=build/release/$$version name=ioport-yield-$$version; \
	rm -rf $$place.partial; mkdir -p $$place.partial; \
	for series in series patches/*/series; do \
		kernel=$$(sed -n 's/^# Linux v\([^:]*\):.*/\1/p' $$series); \
		awk '/^# / { tests = /^# Tests / } /^[^#]/ && !tests { print "patches/" $$0 }' \
			$$series | xargs cat \
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
	@tools/clean
