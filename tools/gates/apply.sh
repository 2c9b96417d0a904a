#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# apply.sh PACKAGE PATCH...: download a source package of the kernel, unpack the
# files that the patches touch, and apply these without fuzz.
set -e

package=$1
shift
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
sed -n 's,^diff --git a/\(.*\) b/.*,\1,p' "$@" | sort -u >files
apt-get download "$package"
# What the patches add is not there yet.
dpkg-deb --fsys-tarfile *.deb | tar -xO --wildcards './usr/src/*.tar.xz' |
	tar -xJ --strip-components=1 --no-anchored -T files ||
	[ -e arch/x86/kernel/ioport.c ]
for patch; do
	echo "$patch"
	patch -p1 --fuzz=0 <"$patch"
done
