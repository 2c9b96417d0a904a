#!/usr/bin/perl
# SPDX-License-Identifier: GPL-2.0-only
# The calls of LTP's ioperm01, ioperm02, iopl01, iopl02 and sched_yield01, as
# root on x86-64, and what LTP expects of them.  LTP is in no package of Debian.
# https://github.com/linux-test-project/ltp, testcases/kernel/syscalls

use strict;
use warnings;
use Errno;

my ($ioperm, $iopl, $sched_yield, $nobody) = (173, 172, 24, 65534);
# Test, user, error or 0, system call and its arguments.
my @calls = (
	["ioperm01", 0, 0, $ioperm, 65533, 3, 1],
	["ioperm01 cleanup", 0, 0, $ioperm, 65533, 3, 0],
	["ioperm02 range", 0, "EINVAL", $ioperm, 65534, 3, 1],
	["ioperm02 user", $nobody, "EPERM", $ioperm, 65533, 3, 1],
	(map { ["iopl01 level $_", 0, 0, $iopl, $_] } 0 .. 3),
	["iopl01 cleanup", 0, 0, $iopl, 0],
	["iopl02 level", 0, "EINVAL", $iopl, 4],
	["iopl02 user", $nobody, "EPERM", $iopl, 1],
	["sched_yield01", 0, 0, $sched_yield],
);

print "TAP version 13\n1.." . @calls . "\n";
my ($number, $failed) = (0, 0);
for (@calls) {
	my ($name, $user, $error, @call) = @$_;

	$> = $user;
	$! = 0;
	my $result = syscall($call[0], @call[1 .. $#call]);
	my $good = $error ? $result == -1 && $!{$error} : $result == 0;
	my $said = $!;
	$> = 0;
	$number++;
	$failed ||= !$good;
	print $good ? "ok" : "not ok", " $number $name",
		$good ? "" : " # returned $result: $said", "\n";
}
exit($failed ? 1 : 0);
