#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-only
# init of the stick: run all of /steps on this kernel and keep what comes out.
#
# Parameters of the kernel: stick=base, series, again, report or shell; tour=,
# when it began; after=reboot or off; only=, a pattern of steps; crash=, hang=,
# where to do so.  Without the stick, as by PXE, all goes to the consoles.
# On purpose without 'set -e': one failure must not hide the rest.
export PATH=/bin HOME=/
dmi=/sys/class/dmi/id cpus=/sys/devices/system/cpu

# Print what the figures depend on: rows of a name and a command.
describe() {
	while read -r name command; do
		echo "\"$name\": \"$(eval "$command" 2>/dev/null | tr -c ' -~' ' ' | tr -s ' "\\' " ''")\","
	done <<-'END'
		machine echo "$(uname -r), $(nproc) CPUs, $(cat $dmi/product_name), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
		product cat $dmi/sys_vendor $dmi/product_name $dmi/board_name
		firmware cat $dmi/bios_version; [ -d /sys/firmware/efi ] && echo UEFI
		processor sed '1d; /^siblings/,$d' /proc/cpuinfo
		hypervisor grep -qw hypervisor /proc/cpuinfo && echo yes && dmesg | grep -o 'Hypervisor detected.*'
		cpus cat $cpus/online; grep MemTotal /proc/meminfo
		mitigations cd $cpus/vulnerabilities && grep . * | sed 's/$/;/'
		smt cat $cpus/smt/control
		governor cat $cpus/cpu0/cpufreq/scaling_driver $cpus/cpu0/cpufreq/scaling_governor
		clocksource cat /sys/devices/system/clocksource/clocksource0/current_clocksource
		tsc dmesg | grep -iE 'tsc.*(unstable|unsynchronized|skew)'
		preemption cat /sys/kernel/debug/sched/preempt
		splat dmesg | grep -E 'WARNING: |BUG: |Oops|general protection fault.*\[#'
		failed cat /tmp/failed
		date date -u +%Y-%m-%dT%H:%M:%S+00:00
	END
	cat /about
}

# Give the next step so many seconds: feed() stops after them.
allow() {
	echo $(($(cut -d. -f1 /proc/uptime) + $1)) >/tmp/until
}

feed() {
	until [ -e /tmp/stop ]; do
		[ "$(cut -d. -f1 /proc/uptime)" -gt "$(cat /tmp/until)" ] || echo
		sleep 5
	done
	printf V
}

# Rows of /steps: seconds, measure or test, name, command.
run_steps() {
	grep -E "${only:-.}" /steps >/tmp/steps
	: >/tmp/cells
	left=$(awk '{ n += $1 } END { print n }' /tmp/steps)
	while read -r seconds kind name command; do
		echo "$stick: $name; about $(((left + 59) / 60)) minutes left on this kernel"
		left=$((left - seconds))
		allow $((8 * seconds + 120))
		: >/tmp/json
		[ $kind = test ] || command="$command --json /tmp/json"
		timeout -s KILL $((8 * seconds + 60)) $command >/tmp/log 2>&1 </dev/null
		case $? in
		0) verdict=pass ;;
		4 | 127) verdict=skip ;;
		*)
			verdict=fail
			: >/tmp/json
			# What stands before the first of those that failed, and the end.
			{
				echo "$name:"
				grep -B 3 '^not ok' /tmp/log | head -n 24
				tail -n 3 /tmp/log
			} | tee -a /tmp/failed
			;;
		esac
		echo "$name: $verdict"
		echo "\"$name\": \"$verdict\"," >>/tmp/verdicts
		[ ! -s /tmp/json ] || { echo "\"$name\":"; cat /tmp/json; echo ,; } >>/tmp/cells
	done </tmp/steps
}

# Mounted for a moment only: at any other time the stick may be pulled out.
# Where that fails /stick is empty, so nothing can be written there.
on_stick() {
	[ "$part" ] && mount -t vfat "$part" /stick
	(cd /stick && "$@")
	set -- $?
	umount /stick 2>/dev/null
	return $1
}

# Add this kernel's results to those of the tour; fail if the stick lacks them.
keep() {
	{
		if [ -e "$file.json" ]; then sed '$d' "$file.json"; echo ,; else echo '{'; fi
		cat /tmp/results
		echo '}'
	} >/tmp/tour
	awk -f /table.awk /figures /tmp/tour >/tmp/table
	cp /tmp/tour results/new && mv results/new "$file.json" && cp /tmp/table "$file.txt"
}

# Show all; GRUB begins another tour.  The file that says so is not moved.
finish() {
	printf '%-1024s' '#_GRUB_Environment_Block/next=base/' | tr '_ /' ' #\n' |
		dd of=grub/grubenv conv=notrunc 2>/dev/null
	printf '\033c'
	if [ -e /tmp/lost ]; then
		cat /tmp/table
		echo "No stick has all of this: please photograph it."
	elif cat "$file.txt"; then
		echo "This is $file.txt on the stick; README.txt says where its .json goes."
	fi
}

main() {
	[ "$crash" != "$stick" ] || echo c >/proc/sysrq-trigger
	for try in $(seq 20); do
		part=$(findfs UUID=494F-5054) && break
		sleep 1
	done
	file=results/$(echo "$(cat $dmi/product_name)-$(printf '%d-%02d-%02d-%02d%02d' \
		$(echo "$tour" | tr - ' '))" | tr -cs 'A-Za-z0-9\n' -)
	echo "$stick: $(uname -r); $file on ${part:-no stick, so all is printed}"
	if [ "$stick" != report ]; then
		allow 300
		for dog in /dev/watchdog?; do feed >$dog & done
		[ "$hang" != "$stick" ] || { allow 0; sleep 9999; }
		run_steps
		{
			echo "\"$stick\":"; echo '{'; describe
			echo '"verdicts": {'; sed '$s/,$//' /tmp/verdicts
			echo '}, "cells": {'; sed '$d' /tmp/cells; echo '}}'
		} >/tmp/results
		on_stick keep || {
			: >/tmp/lost
			gzip </tmp/results | base64 | sed "s/^/STICK /"
		}
		touch /tmp/stop
		wait
	fi
	# Another kernel would clear the only table.
	[ "$after" = reboot ] && [ ! -e /tmp/lost ] ||
		{ on_stick finish; echo "It powers off in a minute."; sleep 60; }
}

/bin/busybox mkdir -p /proc /sys /dev /tmp /stick
/bin/busybox mount -t proc none /proc
/bin/busybox --install -s /bin
for row in devtmpfs:/dev sysfs:/sys debugfs:/sys/kernel/debug tmpfs:/tmp \
	securityfs:/sys/kernel/security cgroup2:/sys/fs/cgroup; do
	mount -t "${row%%:*}" none "${row#*:}"
done
consoles=$(sed 's|[^ ]*|/dev/&|g' /sys/class/tty/console/active)
if [ "$stick" = shell ]; then
	for tty in $consoles; do
		setsid sh -c "exec sh <>$tty >&0 2>&1" &
	done
	wait
else
	main 2>&1 | tee $consoles >/dev/null
fi
[ "$after" != reboot ] || [ -e /tmp/lost ] || reboot -f
poweroff -f
