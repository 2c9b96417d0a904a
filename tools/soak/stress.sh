#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Random I/O permissions against a model, while CPUs go off- and online and
# allocations fail; then look for leaks.  In a guest with the debug kernel.
#
# usage: stress.sh SECONDS IOPERM_RANDOM; prints KTAP

leaks=${SOAK_ROOT-}/sys/kernel/debug/kmemleak
echo clear >"$leaks"
# What any allocation of a task may do that asks for a failure; not written to
# the log each time.
for setting in failslab/ignore-gfp-wait=N failslab/cache-filter=N failslab/verbose=0 \
	failslab/times=-1 fail_page_alloc/ignore-gfp-wait=N fail_page_alloc/min-order=0 \
	fail_page_alloc/verbose=0 fail_page_alloc/times=-1; do
	echo "${setting#*=}" >"${SOAK_ROOT-}/sys/kernel/debug/${setting%=*}"
done
# It ends, and cleans up, when this script is killed, or was already.
setpriv --pdeathsig TERM sh -c '[ $PPID = "$0" ] && exec "$@"' $$ \
	"$2" --seconds "$1" --seed "$(date +%s)" --hotplug --failslab
status=$?
echo 1..2
[ $status = 0 ] || printf 'not '
echo "ok 1 exit_status"

# kmemleak takes an object for a leak only some seconds after its allocation,
# and a pointer that moves can hide from one scan.
sleep 6; echo scan >"$leaks"
sleep 6; echo scan >"$leaks"
found=$(cat "$leaks" || echo "it cannot be read")
echo "# $found" | head -n 4
[ -z "$found" ] || printf 'not '
echo "ok 2 nothing_leaked"
