#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Run hackbench, and write its figures as the programs of tools/bench do:
#
#   hackbench.sh --json FILE NAME=OPTION,OPTION...
file=$2
shift 2
comma=
{
	echo '{"benchmark": "hackbench", "cases": ['
	for case; do
		said=$(hackbench $(echo "${case#*=}" | tr , ' ') 2>&1)
		took=$(echo "$said" | sed -n 's/^Time: //p')
		[ -n "$took" ] || {
			echo "$case: $said" >&2
			exit 1
		}
		echo "$comma{\"name\": \"${case%%=*}\", \"status\": \"ok\", \"seconds\": $took}"
		comma=,
	done
	echo ']}'
} >"$file"
