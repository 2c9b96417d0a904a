#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# stress-ng's stressors beside yielders of other policies, of nice levels and
# in a throttled cgroup, hackbench, and yield_latency, which sets custom
# slices.  In a guest with the debug kernel.
#
# usage: yield-stress.sh SECONDS YIELD_LATENCY hotplug|core-scheduling; prints KTAP
#
# Not both at once: a CPU is in its sibling's mask before sched_core_cpu_starting()
# has made them share a lock, so the sibling picks for it without its lock, and
# lockdep says so; with the feature bit off, too.  That bit stays as it is: a
# guest with two CPUs under QEMU 7.2's TCG may die of the breakpoint (int3) that
# patching code which both of them run puts there for a moment.

seconds=$1 program=$2 kind=$3
tmp=${SOAK_ROOT-}/tmp
group=${SOAK_ROOT-}/sys/fs/cgroup
cpu=${SOAK_ROOT-}/sys/devices/system/cpu/cpu1/online
# However this script ends, a part does: a command by the signal, unless the end
# came before that was asked for, a loop soon.
bound="setpriv --pdeathsig TERM sh -c '[ \$PPID = $$ ] && exec \"\$@\"' bound"
stress="$bound stress-ng --temp-path $tmp --timeout $seconds --metrics-brief"
again="while kill -0 $$ && [ \$(date +%s) -lt $(($(date +%s) + seconds)) ]; do"
# Gives what comes after it a cookie of its own: prctl(PR_SCHED_CORE,
# PR_SCHED_CORE_CREATE, ...).
cookie="python3 -c 'import ctypes, os, sys; ctypes.CDLL(None).prctl(62, 1, 0, 0, 0) and \
sys.exit(\"no core scheduling\"); os.execvp(sys.argv[1], sys.argv[1:])'"
parts=

# part NAME COMMAND: run it beside the others; keep its words.
part() {
	( eval "$2" ) >"$tmp/$1.out" 2>&1 &
	parts="$parts $1:$!"
}

mount -t cgroup2 none "$group" 2>/dev/null
echo +cpu >"$group/cgroup.subtree_control"
mkdir -p "$group/throttled" "$group/heavy"
echo 1000 >"$group/heavy/cpu.weight" &&
	echo "20000 100000" >"$group/throttled/cpu.max"
cgroups=$?

part nice "exec nice -n 19 $stress --yield 1"
part idle "exec chrt --idle 0 $stress --yield 1"
# Beside the others these two hardly get the CPU to start, with the base's
# sched_yield() as well.
sleep 20
part stress-ng "exec $stress --yield 4 --switch 2 --wait 2 --sockpair 1"
part batch "exec chrt --batch 0 $stress --yield 1"
part fifo "exec chrt --fifo 1 prlimit --rttime=10000000 $stress --cpu 1 --cpu-load 20"
# Who writes 0 there moves itself.
part throttled "echo 0 >$group/throttled/cgroup.procs && exec $stress --yield 2"
part hackbench "$again hackbench -g 1 -l 20 || exit 1; done"
# Its own watchdog takes what is this slow for a hang: it gets its share.
part yield_latency "echo 0 >$group/heavy/cgroup.procs && $again \
	taskset -c 0 $program --seconds 0.02 --rounds 500 || exit 1; done"
if [ "$kind" = hotplug ]; then
	# While it starts, stress-ng 0.15 reads about each CPU in /sys. When that
	# fails, as a CPU goes offline, it zeroes buffer[-errno] on its stack.
	calm=$((seconds < 360 ? seconds / 4 : 90))
	part hotplug "sleep $calm; $again echo 0 >$cpu && sleep 1 && echo 1 >$cpu &&
		sleep 2 || exit 1; done"
else
	part core-1 "exec $cookie $stress --yield 2 --sockpair 1"
	part core-2 "exec $cookie $stress --yield 1 --switch 1"
fi

number=0
# result NAME STATUS
result() {
	number=$((number + 1))
	[ "$2" = 0 ] || printf 'not '
	echo "ok $number $1"
}
for part in $parts; do
	name=${part%:*}
	wait "${part#*:}"
	status=$?
	{ tail -n 40 "$tmp/$name.out"; grep '^not ok' "$tmp/$name.out"; } | sed 's/^/# /'
	result "$name" $status
done
calls=$(sed -n 's/.*\] yield  *\([0-9]*\) .*/\1/p' "$tmp"/*.out | awk '{ n += $1 } END { print n + 0 }')
echo "# in all: $calls calls of sched_yield()"
result calls_counted $((calls == 0))
result cgroups_set $cgroups
echo "1..$number"
