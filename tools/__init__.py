# SPDX-License-Identifier: GPL-2.0-only
"""The tools of the series, in layers; each imports only those above it.

core        paths, errors, progress, commands, files, the lock
series/     the base kernel, the patches on it, build/tree, the export
build       kernels and the programs of their selftests
guest/      boot a kernel: virtme-ng, a tiny deterministic guest, Xen
ktap, count, selftests      read, count and run tests
the rest    one job for each target of the Makefile, and what they share
"""

import sys

# In words that older ones read, and before what they do not.
if sys.version_info < (3, 11):
    sys.exit("error: Python is %d.%d, 3.11 or newer is needed"
             % sys.version_info[:2])
