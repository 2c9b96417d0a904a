#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Run on the board: kselftests, then benchmarks, results for LAVA.
#
# usage: run.sh SIDE [BUILD_ID [COLLECTION:TEST]...]
#
# Leaves these tests out, and tests no kernel but the one with this build ID.
# A result is one call of lava-test-case.  What a benchmark measured is printed
# as lines 'LAB-DATA SIDE NAME base64', for 'python -m tools.lab --collect'.
# On purpose without 'set -e': one failure must not hide the rest.
set -u

side=${1:?SIDE is missing}
top=${LAB_TOP:-/opt/lab}
notes=${LAB_NOTES:-/sys/kernel/notes}

result() {
	if command -v lava-test-case >/dev/null; then
		lava-test-case "$1" --result "$2"
	else
		echo "LAB-RESULT $side $1 $2"
	fi
}

# Whatever else it finds, on another kernel it means nothing.
case "$(od -An -v -tx1 "$notes" | tr -d ' \n')" in
*"${2-}"*) result kernel pass ;;
*)
	echo "$(uname -r) is not the kernel with build ID $2"
	result kernel fail
	exit 1
	;;
esac

[ $# -le 2 ] && without= || { shift 2; without=$(printf ' -S %s' "$@"); }
cd "$top/kselftest" || exit 1
ran=0
for collection in x86 sched; do
	grep -q "^$collection:" kselftest-list.txt || continue
	./run_kselftest.sh -c "$collection" $without 2>&1 | tee "$top/$collection.ktap"
	# 'ok 3 selftests: x86: iopl_64 # SKIP ...', at the outermost level
	sed -n 's/^\(not ok\|ok\) [0-9]* selftests: \([^:]*\): \(\S*\)\(.*\)$/\1|\2.\3|\4/p' \
		"$top/$collection.ktap" >"$top/rows"
	while IFS='|' read -r verdict name rest; do
		ran=$((ran + 1))
		case "$verdict $rest" in
		*"# SKIP"*) result "$name" skip ;;
		"ok "*) result "$name" pass ;;
		*) result "$name" fail ;;
		esac
	done <"$top/rows"
done
# A run of nothing is not a pass.
[ "$ran" -gt 0 ] && result kselftest-ran pass || result kselftest-ran fail

for program in x86/ioperm_latency_64 ../yield_latency; do
	[ -x "$program" ] || continue
	name=$(basename "$program" _64)
	json=$top/$name.json
	rm -f "$json"
	"./$program" --json "$json"
	if [ -s "$json" ]; then
		base64 -w 76 "$json" | sed "s/^/LAB-DATA $side $name /"
		result "$name" pass
	else
		result "$name" fail
	fi
done

# A warning of the kernel fails whatever caused it.
if dmesg | grep -E 'WARNING: |BUG: |Oops|general protection fault.*\[#'; then
	result dmesg fail
else
	result dmesg pass
fi
