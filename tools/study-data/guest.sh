#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# What a guest of 'make study' runs:
#
#   guest.sh ROUNDS SCHEDULER PROGRAM [ARGUMENT]...
#
# ROUNDS of a loop go by first: runs shall not begin in the same phase of the
# tick.  SCHEDULER loads a scheduler of sched_ext, and unloads it when it ends;
# "-" is none.  The kernel throws a scheduler out that lets a task wait for 30 s:
# then, and when it does not load, this fails.
state=/sys/kernel/sched_ext/state
said=/tmp/scheduler

fail() {
	echo "$1:"
	tail -n 20 $said
	exit 1
}

left=$1
scheduler=$2
shift 2
export PATH="${GUEST_PATH:-/bin}"
ulimit -n 16384
# mpirun wants both.
hostname guest
ip link set lo up
while [ "$left" -gt 0 ]; do left=$((left - 1)); done
[ "$scheduler" != - ] || exec "$@"

"$scheduler" >$said 2>&1 &
left=300
until grep -qx enabled $state; do
	left=$((left - 1))
	[ $left -gt 0 ] || fail "the scheduler does not load"
	sleep 0.1
done
"$@"
status=$?
grep -qx enabled $state || fail "the scheduler was thrown out"
kill -INT $!
wait $!
exit $status
