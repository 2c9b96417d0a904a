#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Build what loads the schedulers of sched_ext:
#
#   schedulers.sh TREE FOLDER VMLINUX NAME...
#
# clang 22, as the verifier refuses what clang 19 makes of scx_qmap.
set -e
tree=$1
folder=$2
vmlinux=$3
shift 3
for tool in clang-22:clang-22 llvm-strip-22:llvm-22 pahole:dwarves; do
	command -v "${tool%:*}" >/dev/null || {
		echo "the command '${tool%:*}' is missing: apt-get install ${tool#*:}"
		exit 1
	}
done
mkdir -p "$folder"
exec make -C "$tree/tools/sched_ext" -j"$(nproc)" O="$folder" VMLINUX_BTF="$vmlinux" \
	CLANG=clang-22 LLVM_STRIP=llvm-strip-22 "$@"
